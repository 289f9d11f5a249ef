//! The program; [`cuda_engine::main`] is all of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    cuda_engine::main()
}
