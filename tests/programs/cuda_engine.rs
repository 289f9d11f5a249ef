//! `cuda-engine` with its CPU engine, as the tests start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    cuda_engine::main()
}
