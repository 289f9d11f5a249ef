//! The program; [`benchd::run`] is all of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    benchd::run(std::env::args_os())
}
