//! `benchd`: the commands of the benchmarker (benchd.md 2). Rules are `bench-core`'s; here are flags, files and exit codes.
//!
//! Start at [`run`]. A command writes its result to standard output, as JSON where it is more than a line, and what a person
//! wants to know to standard error. Exit codes: 0 done and passed, 1 refused or failed (one line with `REFUSING` in it, and
//! the refusal's name where it has one), 2 a command line that cannot be followed; a few commands have codes of their own.
//!
//! The environment is read in one place: [`args`] names the variable of each flag that has one, and the flag wins.

mod args;
mod checkout;
mod command;
mod documents;
mod failure;
mod output;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::Failure;

/// Does what a command line, the program's name first, asks for.
pub fn run(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Cli { command } = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        Err(usage) => {
            // Help goes to standard output, a fault to standard error; that nobody reads it changes no exit code.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(&failure.line());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::ValidateGolden(args) => command::golden::validate(&args),
        Command::ValidateWeights(args) => command::weights::validate(&args),
        Command::WeightsDigest(args) => command::weights::digest(&args),
        Command::HarnessHash(args) => command::tree::harness_hash(&args),
        Command::LintManifest(args) => command::tree::lint(&args),
        Command::SpecDeclaration(args) => command::declaration::run(&args),
        Command::Build(args) => command::build::build(&args),
        Command::StageEngine(args) => command::build::stage(&args),
        Command::Official => {
            Err(Failure::Usage { what: "official is a mode: use `benchd iterate --mode official`".into() })
        }
        Command::MeasureJob(_) => Err(Failure::Retired { command: "measure-job", exit_code: 5 }),
        Command::OverlayTiming(_) => Err(Failure::Retired { command: "overlay-timing", exit_code: 6 }),
        Command::PrefillDecompose(_) => Err(Failure::Retired { command: "prefill-decompose", exit_code: 8 }),
    }
}
