//! The `cudafast` program: flags in, text and exit codes out.
//!
//! Each command is a file of its own: what was typed ([`args`]) is resolved once, then done. Exit codes: 0 done, 1 could not
//! be done (one line on stderr with its causes), 2 a command line that cannot be followed, 130 interrupted. No environment
//! variable changes what it does.

mod args;
mod bench;
mod chat;
mod detokenize;
mod eval;
mod failure;
#[cfg(feature = "cuda")]
mod gpu_check;
mod inspect;
mod interrupt;
mod load;
mod npy;
mod outfile;
mod output;
mod perplexity;
mod progress;
mod prompt;
mod report;
mod run;
mod runner;
#[cfg(feature = "cuda")]
mod selftest;
mod source;
mod synth;
mod tokenize;
mod trace;
mod verify;

use std::process::ExitCode;

use crate::args::{Command, Parsed, TraceCommand};

/// A forward pass takes and drops some megabytes of rows for every operation: this allocator keeps their pages, where the
/// system's gives them back and takes them again, a page fault each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = match args::parse() {
        Parsed::Command(command) => command,
        Parsed::Exit(code) => return code,
    };
    let done = interrupt::listen().and_then(|()| match command {
        Command::Run(args) => run::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Detokenize(args) => detokenize::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Completions(args) => args::completions(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Trace(TraceCommand::Dump(args)) => trace::dump(&args),
        Command::Trace(TraceCommand::Diff(args)) => trace::diff(&args),
        Command::Synth(args) => synth::run(&args),
        #[cfg(feature = "cuda")]
        Command::Selftest(args) => selftest::run(&args),
        #[cfg(feature = "cuda")]
        Command::GpuCheck(args) => gpu_check::run(&args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error_line(&failure.one_line());
            ExitCode::from(failure.exit_code())
        }
    }
}
