//! What was typed: a file of this folder for each family of commands.

mod generate;
#[cfg(feature = "cuda")]
mod gpu_check;
mod measure;
mod model;
mod numbers;
#[cfg(feature = "cuda")]
mod selftest;
mod synth;
mod text;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

pub(crate) use self::generate::{ChatArgs, Depth, GenerateArgs, PromptArgs, RunArgs, SamplingArgs};
#[cfg(feature = "cuda")]
pub(crate) use self::gpu_check::{GpuCheckArgs, Lengths, Part};
pub(crate) use self::measure::{
    BenchArgs, BenchOutput, PerplexityArgs, TextOrJson, TraceCommand, TraceDiffArgs, TraceDumpArgs,
};
pub(crate) use self::model::{DeviceArgs, DraftArgs, HeadArgs, ModelArgs};
pub(crate) use self::numbers::{EvalArgs, InspectArgs};
#[cfg(feature = "cuda")]
pub(crate) use self::selftest::SelftestArgs;
pub(crate) use self::synth::SynthArgs;
use self::synth::Synthetic;
pub(crate) use self::text::{DetokenizeArgs, TokenizeArgs};
pub(crate) use self::verify::VerifyArgs;
use crate::bench::host::Build;
use crate::failure::USAGE;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  cudafast run \"Once upon a time\"                 the embedded model writes a story
  cudafast chat -m DIR                            talk with the model in DIR
  cudafast run -m MODEL.gguf -n 100 --depth 3 --temp 0.7 --seed 1 \"The old king\"
  cudafast inspect -m DIR                         what is in the files, and the memory they take
  cudafast COMMAND --help                         every flag of a command

Exit codes: 0 done, 1 could not be done (one line on stderr says why), 2 a command line that cannot be followed (likewise),
130 interrupted: Ctrl-C, SIGTERM or a terminal that goes away ends an answer at the next token and prints its summary, a
second signal ends it at once. In chat the first Ctrl-C ends the answer only.";

/// What `--version` prints; `-V` prints the number alone.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let build = Build::this();
    let mut text = build.version.to_owned();
    if !build.commit.is_empty() {
        text += &format!(" ({}{})", build.commit, if build.dirty { ", changed" } else { "" });
    }
    text + "\nCPU: " + &cudafast_cpu::Isa::current().to_string() + "\nCUDA: " + CUDA
});

#[cfg(feature = "cuda")]
const CUDA: &str = cudafast_cuda::ARCHITECTURES;
#[cfg(not(feature = "cuda"))]
const CUDA: &str = "not in this build";

/// Runs models of the qwen4exp family, with speculative decoding that changes speed and nothing else.
#[derive(Debug, Parser)]
#[command(name = "cudafast", version, long_version = LONG_VERSION.as_str(), arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a prompt.
    Run(Box<RunArgs>),
    /// Talk with the model, line by line.
    Chat(Box<ChatArgs>),
    /// Show what a model's files hold, by family, and the memory a run takes.
    Inspect(InspectArgs),
    /// Show the tokens of a text.
    Tokenize(TokenizeArgs),
    /// Write the text of token ids.
    Detokenize(DetokenizeArgs),
    /// Write the logits of every position of a prompt to a file.
    Eval(Box<EvalArgs>),
    /// Check files against a manifest of their hashes, or write one.
    Verify(VerifyArgs),
    /// Score how well the model foretells a text.
    Perplexity(Box<PerplexityArgs>),
    /// Measure how fast the model runs here.
    Bench(Box<BenchArgs>),
    /// Keep or compare every intermediate value of a run, to find where numbers part.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Write a model of random weights: any size, the published names and number formats.
    Synth(Box<SynthArgs>),
    /// Check the GPU's kernels against plain code.
    #[cfg(feature = "cuda")]
    Selftest(SelftestArgs),
    /// Run every check of a GPU, and the bench, each in a process of its own.
    #[cfg(feature = "cuda")]
    GpuCheck(GpuCheckArgs),
    /// Print a shell's completion script.
    Completions(CompletionsArgs),
}

const COMPLETIONS_HELP: &str = "\
Examples:
  cudafast completions bash > ~/.local/share/bash-completion/completions/cudafast
  cudafast completions zsh > ~/.zfunc/_cudafast            with ~/.zfunc in fpath
  cudafast completions fish > ~/.config/fish/completions/cudafast.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// A shell's completion script for every command and flag.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), crate::failure::Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cudafast", &mut script);
    output::bytes(&script)
}

/// Whether a command line can be followed.
#[cfg(all(test, feature = "cuda"))]
pub(crate) fn follows(line: impl IntoIterator<Item = std::ffi::OsString>) -> bool {
    Cli::try_parse_from(line).is_ok()
}

/// A whole number of at least `least`.
fn whole<T: TryFrom<u64>>(least: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| *number >= least);
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| format!("expected {least} to {}", u64::MAX))
    }
}

/// The name of a file to write. What is written appears whole, which standard output cannot.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_str() {
        Some("-") => Err("cannot be standard output; give another name, or ./- for this one"),
        _ => Ok(path),
    })
}

/// What the command line came to.
pub(crate) enum Parsed {
    Command(Command),
    /// Help was printed, or what is wrong with the line.
    Exit(ExitCode),
}

/// Reads the process's own command line.
pub(crate) fn parse() -> Parsed {
    let line: Vec<OsString> = std::env::args_os().collect();
    let error = match Cli::try_parse_from(&line) {
        Ok(cli) => return Parsed::Command(cli.command),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::InvalidUtf8 => {
            let foreign = line.iter().enumerate().skip(1).find(|(_, arg)| arg.to_str().is_none());
            let (index, shown) = foreign.map_or((0, String::new()), |(i, arg)| (i, arg.to_string_lossy().into_owned()));
            output::error_line(&format!("argument {index} (`{shown}`) is not UTF-8; give text as UTF-8"));
            Parsed::Exit(ExitCode::from(USAGE))
        }
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match output::text(&error.render().to_string()) {
            Ok(()) => Parsed::Exit(ExitCode::SUCCESS),
            Err(failure) => {
                output::error_line(&failure.one_line());
                Parsed::Exit(ExitCode::FAILURE)
            }
        },
        _ => {
            output::error_line(&folded(&error));
            Parsed::Exit(ExitCode::from(USAGE))
        }
    }
}

/// The error without its usage text, on one line.
fn folded(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command is given; `cudafast --help` lists them".into();
    }
    let rendered = error.render().to_string();
    let rendered = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let told = rendered.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let told = told.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let mut line = told.fold(String::new(), |mut line, next| {
        line += if line.is_empty() || line.ends_with(':') { "" } else { ";" };
        line += if line.is_empty() { "" } else { " " };
        line + next
    });
    line += "; --help tells what is possible";
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
