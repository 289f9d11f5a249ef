//! `cuda-engine`: the worker that a benchmarker spawns.
//!
//! Exit codes: 0 the requests have ended, 1 something failed (one line on stderr with its causes), 2 a command line that
//! cannot be followed.

mod args;
mod environment;
mod mode;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cuda_engine::mock::Mock;
use cuda_engine::worker::{Backend, Worker, make_nonce};

use crate::args::{Cli, Command, WorkerArgs};
use crate::environment::SOCKET_VARIABLE;
use crate::mode::Mode;

/// Why a worker ended that should not have, or did not start.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Mode(#[from] mode::Error),
    #[error(transparent)]
    Worker(#[from] cuda_engine::Error),
    #[error("{SOCKET_VARIABLE} names {}, and this build attaches to no resident", socket.display())]
    NoResident { socket: PathBuf },
    #[error("--weights {}: this build has no engine", weights.display())]
    NoEngine { weights: PathBuf },
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let done = match command {
        Command::RuntimeWorker { args } => runtime_worker(WorkerArgs::scan(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("error: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn runtime_worker(args: WorkerArgs) -> Result<(), Failure> {
    let nonce = args.nonce.clone();
    match Mode::of(args, environment::resident_socket())? {
        Mode::Resident { socket } => Err(Failure::NoResident { socket }),
        Mode::Engine { weights } => Err(Failure::NoEngine { weights }),
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
