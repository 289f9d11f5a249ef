//! `benchd` as the tests start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    benchd::run(std::env::args_os())
}
