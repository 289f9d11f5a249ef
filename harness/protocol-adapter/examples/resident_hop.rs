//! How long one round trip from a worker to a resident engine takes: `resident_hop SOCKET [COUNT]`.
//!
//! Asks for the counters, which no engine computes anything for, so that only the way there and back is measured. In the root
//! of the repository:
//!
//!     $ cargo build --release -p cuda-engine
//!     $ target/release/cuda-engine resident --stub --socket /tmp/hop.sock &
//!     $ cargo run --release -p cuda-engine --example resident_hop -- /tmp/hop.sock

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use cuda_engine::resident::{PATIENCE, Resident};
use cuda_engine::target::{Target, TargetError};

/// Round trips before the first that counts: both processes and their caches are warm then.
const WARM_UP: usize = 1000;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let socket = args.next().map(PathBuf::from);
    let count = args.next().map_or(Some(20_000), |text| text.to_str().and_then(|text| text.parse().ok()));
    let (Some(socket), Some(count @ 1usize..), None) = (socket, count, args.next()) else {
        eprintln!("usage: resident_hop SOCKET [COUNT]");
        return ExitCode::from(2);
    };
    match measure(&socket, count) {
        Ok(mut hops_us) => {
            hops_us.sort_by(f64::total_cmp);
            let at = |share: f64| hops_us.get((hops_us.len() as f64 * share) as usize).copied().unwrap_or_default();
            println!("{count} hops: median {:.1} us, p99 {:.1} us", at(0.5), at(0.99));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", error.one_line());
            ExitCode::FAILURE
        }
    }
}

fn measure(socket: &std::path::Path, count: usize) -> Result<Vec<f64>, TargetError> {
    let mut resident = Resident::attach(socket, PATIENCE)?;
    let mut hops_us = Vec::with_capacity(count);
    for hop in 0..WARM_UP + count {
        let begun = Instant::now();
        resident.counters();
        let took = begun.elapsed();
        resident.fault()?;
        if hop >= WARM_UP {
            hops_us.push(took.as_secs_f64() * 1e6);
        }
    }
    Ok(hops_us)
}
