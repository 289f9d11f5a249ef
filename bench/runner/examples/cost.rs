//! What the benchmarker costs: `cost PROGRAM [WEIGHTS]`.
//!
//! Prints the median and the 99th percentile of 20,000 round trips from a session to a worker, checks included, and which part
//! of a processor this process took while the worker ran 128 tokens. In the root of the repository:
//!
//!     $ cargo build --release -p cuda-engine
//!     $ cargo run --release -p bench-runner --example cost -- target/release/cuda-engine
//!
//! The worker runs what it was built with. Over the mock only the round trips mean anything, since its runs take no time.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench_runner::{Interrupt, Launch, WorkerEnvironment};
use rustix::time::{ClockId, clock_gettime};

/// Round trips before the first that counts: both processes and their caches are warm then.
const WARM_UP: usize = 1000;
const HOPS: usize = 20_000;
const RUN_TOKENS: u32 = 128;
/// Windows, so that a short one is not a single reading.
const RUNS: usize = 10;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(program), weights, None) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: cost PROGRAM [WEIGHTS]");
        return ExitCode::from(2);
    };
    match measure(program, weights) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(program: OsString, weights: Option<OsString>) -> Result<(), Box<dyn Error>> {
    let environment = WorkerEnvironment::from_parent([]);
    let mut launch = Launch::new(program, environment, Interrupt::new()?);
    match weights {
        Some(weights) => launch.weights = Some(weights.into()),
        None => launch.args = vec!["--mock".into()],
    }
    let mut session = launch.connect()?;
    println!("{} on {}, {}", session.hello().backend, session.hello().device, session.sandbox());
    let mock = launch.weights.is_none();
    if mock {
        let mut token = session.correctness_begin(&[1, 2, 3])?.value.token;
        let mut hops_us = Vec::with_capacity(HOPS);
        for hop in 0..WARM_UP + HOPS {
            let begun = Instant::now();
            token = session.correctness_step(token % 1000)?.value.token;
            if hop >= WARM_UP {
                hops_us.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        session.close_phase()?;
        hops_us.sort_by(f64::total_cmp);
        let at = |share: f64| hops_us.get((HOPS as f64 * share) as usize).copied().unwrap_or_default();
        println!("{HOPS} hops: median {:.1} us, p99 {:.1} us", at(0.5), at(0.99));
    }
    let (mut wall, mut processor) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..RUNS {
        session.free_decode_begin(&[1, 2, 3], None)?;
        let (begun, before) = (Instant::now(), processor_time());
        session.free_decode_run(RUN_TOKENS)?;
        wall += begun.elapsed();
        processor += processor_time().saturating_sub(before);
        session.close_phase()?;
    }
    let (wall, processor) = (wall.as_secs_f64(), processor.as_secs_f64());
    let share = 100.0 * processor / wall;
    println!("{RUNS} windows of {RUN_TOKENS} tokens: {wall:.6} s, {processor:.6} s of a processor here, {share:.2} %");
    session.finish()?;
    Ok(())
}

/// Of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
