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
mod engine;
mod environment;
mod failure;
mod leg;
mod output;
mod resident;
mod signals;
mod submission;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::Failure;

/// Does what a command line, the program's name first, asks for.
pub fn run(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let line: Vec<OsString> = line.into_iter().collect();
    // Behind a script of the contract's face a command line that cannot be followed is a failure (track-contract.md 7.2).
    let behind_script = line.get(1).is_some_and(|command| command == "benchmark" || command == "local-baseline");
    let exit_code = |code: u8| ExitCode::from(if behind_script && code == 2 { 1 } else { code });
    let Cli { command } = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        Err(usage) => {
            // Help goes to standard output, a fault to standard error; that nobody reads it changes no exit code.
            let _ = usage.print();
            return exit_code(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(&failure.line());
            exit_code(failure.exit_code())
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
        Command::Iterate(args) => command::iterate::run(&args),
        Command::Benchmark(args) => command::benchmark::run(&args),
        Command::LocalBaseline(args) => command::benchmark::local_baseline(&args),
        Command::Correctness(args) => command::correctness::run(&args),
        Command::RecordGolden(args) => command::record::run(&args),
        Command::Exactness(args) => command::exactness::run(&args),
        Command::Capture(args) => command::exactness::capture(&args),
        Command::Build(args) => command::build::build(&args),
        Command::StageEngine(args) => command::build::stage(&args),
        Command::Pack(args) => submission::pack::run(&args),
        Command::CheckSubmission(args) => submission::review::run(&args),
        Command::Overlay(args) => submission::overlay::run(&args),
        Command::Official => {
            Err(Failure::Usage { what: "official is a mode: use `benchd iterate --mode official`".into() })
        }
        Command::MeasureJob(_) => Err(Failure::Retired { command: "measure-job", exit_code: 5 }),
        Command::OverlayTiming(_) => Err(Failure::Retired { command: "overlay-timing", exit_code: 6 }),
        Command::PrefillDecompose(_) => Err(Failure::Retired { command: "prefill-decompose", exit_code: 8 }),
    }
}
