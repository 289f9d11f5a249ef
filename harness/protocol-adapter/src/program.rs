//! `cuda-engine`: the worker that a benchmarker spawns, and the resident process that holds the weights for it.
//!
//! Exit codes: 0 the requests have ended or the resident was told to end, 1 something failed (one line on stderr with its causes), 2 a command line that
//! cannot be followed.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use crate::mock::Mock;
use crate::resident::{PATIENCE, Resident, ResidentError};
#[cfg(feature = "engine")]
use crate::target::engine::{Choice, Device, InProcess};
use crate::target::{OnTarget, TargetError};
use crate::worker::{Backend, Worker, make_nonce};
use clap::Parser;

use crate::args::{Cli, Command, WorkerArgs};
use crate::mode::Mode;
use crate::{environment, mode};

/// Why a worker ended that should not have, or did not start.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Mode(#[from] mode::Error),
    #[error(transparent)]
    Worker(#[from] crate::Error),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Resident(#[from] ResidentError),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        if matches!(self, Self::Resident(error) if error.is_usage()) { 2 } else { 1 }
    }
}

/// Does what the command line of this process asks for.
pub fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let done = match command {
        Command::Resident(args) => args.run().map_err(Failure::from),
        Command::RuntimeWorker { args } => runtime_worker(WorkerArgs::scan(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("error: {}", crate::one_line(&failure)));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn runtime_worker(args: WorkerArgs) -> Result<(), Failure> {
    let nonce = args.nonce.clone();
    #[cfg(feature = "engine")]
    let device = args.device.clone();
    match Mode::of(args, environment::resident_socket())? {
        Mode::Resident { socket } => {
            let begun = Instant::now();
            let resident = Resident::attach(&socket, PATIENCE)?;
            say(&resident.announcement(begun.elapsed()));
            serve(OnTarget::new(resident), nonce)
        }
        #[cfg(feature = "engine")]
        Mode::Engine { weights } => {
            let device = device.as_deref().map_or(Ok(Device::Cpu), str::parse)?;
            let choice = Choice { device, ..Choice::of(weights) };
            let engine = InProcess::open(&choice, env!("CARGO_PKG_VERSION"))?;
            serve(OnTarget::new(engine), nonce)
        }
        #[cfg(not(feature = "engine"))]
        Mode::Engine { .. } => Err(mode::Error::NoEngine.into()),
        Mode::Mock => {
            say("answering with the mock, which computes nothing");
            serve(Mock::default(), nonce)
        }
    }
}

fn serve(backend: impl Backend, nonce: Option<String>) -> Result<(), Failure> {
    let nonce = nonce.map_or_else(make_nonce, Ok)?;
    Ok(Worker::new(backend, nonce).serve(io::stdin().lock(), io::stdout().lock())?)
}

/// One line on stderr, for people. That nobody reads it is no reason to end.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "cuda-engine: {line}");
}
