//! How long one round trip from a benchmarker to a worker takes: `worker_hop PROGRAM [COUNT]`.
//!
//! Asks the mock for decode steps, for which it computes nothing, so that only the way there and back is measured: a line
//! through a pipe, read, answered, and a line through a pipe. In the root of the repository:
//!
//!     $ cargo build --release -p cuda-engine
//!     $ cargo run --release -p cuda-engine --example worker_hop -- target/release/cuda-engine

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;

use bench_protocol::Response;

/// Round trips before the first that counts: both processes and their caches are warm then.
const WARM_UP: usize = 1000;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let program = args.next();
    let count = args.next().map_or(Some(20_000), |text| text.to_str().and_then(|text| text.parse().ok()));
    let (Some(program), Some(count @ 1usize..), None) = (program, count, args.next()) else {
        eprintln!("usage: worker_hop PROGRAM [COUNT]");
        return ExitCode::from(2);
    };
    match measure(&program, count) {
        Ok(mut hops_us) => {
            hops_us.sort_by(f64::total_cmp);
            let at = |share: f64| hops_us.get((hops_us.len() as f64 * share) as usize).copied().unwrap_or_default();
            println!("{count} hops: median {:.1} us, p99 {:.1} us", at(0.5), at(0.99));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}

fn measure(program: &OsStr, count: usize) -> io::Result<Vec<f64>> {
    let mut command = Command::new(program);
    command.args(["runtime-worker", "--mock"]).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (Some(mut requests), Some(responses)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("it has no streams"));
    };
    let mut responses = BufReader::new(responses);
    let mut line = Vec::new();
    next(&mut responses, &mut line)?;
    requests.write_all(b"{\"id\":0,\"kind\":\"decode_begin\",\"seed_tokens\":[1]}\n")?;
    next(&mut responses, &mut line)?;
    let mut hops_us = Vec::with_capacity(count);
    for hop in 1..=WARM_UP + count {
        let begun = Instant::now();
        let request = format!("{{\"id\":{hop},\"kind\":\"decode_step\",\"token\":{}}}\n", hop % 1000);
        requests.write_all(request.as_bytes())?;
        next(&mut responses, &mut line)?;
        if hop > WARM_UP {
            hops_us.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    drop(requests);
    responses.read_to_end(&mut line)?;
    child.wait()?;
    Ok(hops_us)
}

/// Reads a response and decodes it: that is part of the way. One that is a refusal is no hop.
fn next(responses: &mut BufReader<ChildStdout>, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    responses.read_until(b'\n', line)?;
    match Response::parse(line) {
        Ok(response) if response.ok => Ok(()),
        Ok(response) => Err(io::Error::other(response.error.unwrap_or_default())),
        Err(error) => Err(io::Error::other(error)),
    }
}
