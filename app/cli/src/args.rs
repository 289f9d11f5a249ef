//! What was typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use cudafast_cpu::{CpuOptions, HeadNorm, Precision};
use cudafast_runtime::{DepthPolicy, MAX_DEPTH, Sampling, TokenId};

use crate::failure::Failure;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  cudafast run \"Once upon a time\"                 the embedded model writes a story
  cudafast chat -m DIR                            talk with the model in DIR
  cudafast run -m MODEL.gguf -n 100 --depth 3 --temp 0.7 --seed 1 \"The old king\"
  cudafast inspect -m DIR                         what is in the files, and the memory they take
  cudafast COMMAND --help                         every flag of a command

Exit codes: 0 done, 1 could not be done (one line on stderr says why), 2 a command line that cannot be followed (likewise),
130 interrupted: Ctrl-C or SIGTERM ends an answer at the next token and prints its summary, a second one ends it at once.";

/// Runs models of the qwen4exp family, with speculative decoding that changes speed and nothing else.
#[derive(Debug, Parser)]
#[command(name = "cudafast", version, arg_required_else_help = true, after_help = AFTER_HELP)]
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
    /// Write the logits of every position of a prompt to a file.
    Eval(Box<EvalArgs>),
}

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// A .gguf file, any shard of a set, or a directory that holds one model. Left out: the embedded model
    #[arg(short, long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
}

/// Which draft head.
#[derive(Debug, Args)]
pub(crate) struct HeadArgs {
    /// The draft head. Left out: the one mtp-*.gguf beside the model, if there is exactly one
    #[arg(long, value_name = "FILE", conflicts_with = "no_mtp")]
    pub(crate) mtp_model: Option<PathBuf>,
    /// Load no draft head
    #[arg(long)]
    pub(crate) no_mtp: bool,
}

/// How the device runs.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Where to run: cpu, cuda, or cuda:N for card N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: Device,
    /// Worker threads on the CPU, at most 1024; 0 = every core
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = threads)]
    pub(crate) threads: usize,
    /// Debug switch: f32 activations and caches instead of int8 activations and BF16 caches. Slower
    #[arg(long)]
    pub(crate) f32: bool,
    /// How the draft head's input norm takes its mean square. Changes acceptance, never the text
    #[arg(long, default_value = "single", value_name = "MODE")]
    pub(crate) hnorm: Hnorm,
}

impl DeviceArgs {
    /// What the device is asked for; refuses one this build does not have. To be asked first.
    pub(crate) fn cpu_options(&self) -> Result<CpuOptions, Failure> {
        if let Device::Cuda(card) = self.device {
            return Err(Failure::NoCuda { device: format!("cuda:{card}") });
        }
        Ok(CpuOptions {
            threads: self.threads,
            precision: if self.f32 { Precision::F32 } else { Precision::Int8 },
            head_norm: match self.hnorm {
                Hnorm::Single => HeadNorm::Single,
                Hnorm::PerStream => HeadNorm::PerStream,
            },
        })
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Hnorm {
    /// One mean square over all channels
    Single,
    /// One for each residual stream
    PerStream,
}

/// How tokens are chosen. What is left out is taken from the file's `general.sampling.*` keys, else is off.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 takes the most likely token. Left out: the file's value, else 0
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    pub(crate) temp: Option<f32>,
    /// Draw from the K most likely tokens; 0 = all. Left out: the file's value, else 0
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Draw from the most likely tokens that together have this probability; 1 = all. Left out: the file's value, else 1
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = top_p)]
    pub(crate) top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = min_p)]
    pub(crate) min_p: f32,
    /// Names the sequence of draws: the same seed gives the same text, with drafting or without
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
}

/// How text is generated.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Most tokens to generate, in chat for one answer
    #[arg(short = 'n', long, default_value_t = 256, value_name = "N")]
    pub(crate) max_tokens: usize,
    /// Drafts verified at once: 0 to 6, 0 = no drafting, or auto = as many as pay for themselves. Changes speed only.
    /// Without a draft head auto is 0 and a number above 0 is an error
    #[arg(long, default_value = "auto", value_name = "D")]
    pub(crate) depth: Depth,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Room for this many tokens, prompt and answer together. Left out: what run needs, 32768 for chat; at most the context
    /// the model was trained for
    #[arg(long, value_name = "N")]
    pub(crate) ctx_tokens: Option<usize>,
}

/// What to continue.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PromptArgs {
    /// The prompt; `-` reads it from standard input, as it is
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file, as it is; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Give the prompt as token ids, e.g. 1,2,3
    #[arg(long, value_name = "IDS")]
    pub(crate) ids: Option<Ids>,
}

const RUN_HELP: &str = "\
Examples:
  cudafast run \"Once upon a time\"
  cudafast run --chat \"Tell me a story about a rabbit.\"
  cudafast run -m DIR --temp 0.7 --top-k 20 --seed 1 --prompt-file letter.txt
  cudafast run -m DIR --ids 1,2,3 -n 64 --depth 2 --temp 0 --json

The text goes to standard output as it is generated, a line with speed, acceptance and memory to standard error. With --json
standard output gets one object instead: tokens (the stop token included), text, rounds (drafted, accepted), timings.";

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    #[command(flatten)]
    pub(crate) generate: GenerateArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Take the prompt as a user's message and render it with the model's chat template
    #[arg(long, conflicts_with = "ids")]
    pub(crate) chat: bool,
    /// With --chat: let the model think before it answers
    #[arg(long, requires = "chat")]
    pub(crate) think: bool,
    /// Go on past the model's stop tokens, up to --max-tokens
    #[arg(long)]
    pub(crate) ignore_stop: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const CHAT_HELP: &str = "\
Examples:
  cudafast chat
  cudafast chat -m DIR --system \"Answer in one sentence.\" --temp 0.7
  printf 'Hello.\\nWho are you?\\n' | cudafast chat

A line is a message. /reset forgets the conversation, /quit or the end of input leaves.";

#[derive(Debug, Args)]
#[command(after_help = CHAT_HELP)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    #[command(flatten)]
    pub(crate) generate: GenerateArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Let the model think before it answers
    #[arg(long)]
    pub(crate) think: bool,
}

const INSPECT_HELP: &str = "\
Examples:
  cudafast inspect
  cudafast inspect -m DIR --ctx-tokens 262144
  cudafast inspect -m DIR --json | jq .families

Reads headers only. A file that is not a whole qwen4exp model is listed too, then the exit code is 1 and the last line says
what is wrong with it.";

#[derive(Debug, Args)]
#[command(after_help = INSPECT_HELP)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    /// Context to plan memory for. Left out: 32768, or the trained context if that is less
    #[arg(long, value_name = "N")]
    pub(crate) ctx_tokens: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const TOKENIZE_HELP: &str = "\
Examples:
  cudafast tokenize \"Once upon a time\"
  cudafast tokenize -m vocab.gguf --json - < letter.txt
  cudafast tokenize --no-special \"<|im_end|>\"      special tokens as the characters they are written with

Needs no weights: a vocabulary-only file of any architecture will do. Prints a line per token, its id and its bytes as text;
with --json one array of ids.";

#[derive(Debug, Args)]
#[command(after_help = TOKENIZE_HELP)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The text; `-` or nothing reads it from standard input, as it is
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Print one array of ids
    #[arg(long)]
    pub(crate) json: bool,
    /// Take special tokens literally, as text
    #[arg(long)]
    pub(crate) no_special: bool,
}

const EVAL_HELP: &str = "\
Examples:
  cudafast eval -m DIR --ids 1,2,3 --out logits.npy
  cudafast eval -m DIR --f32 --prompt-file letter.txt --out logits.npy

Row i of the file has the logits after token i. The file appears whole or not at all.";

#[derive(Debug, Args)]
#[command(after_help = EVAL_HELP)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// A draft head to load too. Logits do not depend on it
    #[arg(long, value_name = "FILE")]
    pub(crate) mtp_model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The file to write: NPY 1.0, float32, [positions, vocabulary]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// A number that is a sampler setting by [`Sampling::new`], the only place that knows the ranges.
fn setting(text: &str, sampling: impl Fn(f32) -> Result<Sampling, cudafast_runtime::Error>) -> Result<f32, String> {
    let value = text.parse().map_err(|_| "expected a number".to_owned())?;
    sampling(value).map(|_| value).map_err(|refused| refused.to_string())
}

fn temperature(text: &str) -> Result<f32, String> {
    setting(text, |t| Sampling::new(t, 0, 1.0, 0.0, 0))
}

fn top_p(text: &str) -> Result<f32, String> {
    setting(text, |p| Sampling::new(1.0, 0, p, 0.0, 0))
}

fn min_p(text: &str) -> Result<f32, String> {
    setting(text, |p| Sampling::new(1.0, 0, 1.0, p, 0))
}

/// More threads than any machine has cores would only hang it.
const MAX_THREADS: usize = 1024;

fn threads(text: &str) -> Result<usize, String> {
    let refused = || format!("expected 0 to {MAX_THREADS} (0 = every core)");
    text.parse().ok().filter(|threads| *threads <= MAX_THREADS).ok_or_else(refused)
}

/// Token ids separated by commas.
#[derive(Debug, Clone)]
pub(crate) struct Ids(pub(crate) Vec<TokenId>);

impl FromStr for Ids {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| {
            let part = part.trim();
            part.parse()
                .map_err(|_| format!("`{part}` is no token id; expected numbers separated by commas, e.g. 1,2,3"))
        };
        text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
    }
}

/// Where to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    Cpu,
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let card = |text: &str| text.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        match text {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => card(text).map(Device::Cuda).ok_or_else(|| "expected cpu, cuda, or cuda:N".into()),
        }
    }
}

/// How many drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Auto,
    Fixed(usize),
}

impl FromStr for Depth {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Depth::Auto),
            Ok(depth) if depth <= MAX_DEPTH => Ok(Depth::Fixed(depth)),
            _ => Err(format!("expected 0 to {MAX_DEPTH}, or auto")),
        }
    }
}

impl From<Depth> for DepthPolicy {
    fn from(depth: Depth) -> Self {
        match depth {
            Depth::Auto => DepthPolicy::Adaptive { max: MAX_DEPTH },
            Depth::Fixed(depth) => DepthPolicy::Fixed(depth),
        }
    }
}

/// What the command line came to.
pub(crate) enum Parsed {
    Command(Command),
    /// Help was printed, or what is wrong with the line.
    Exit(ExitCode),
}

const USAGE: u8 = 2;

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
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn depths_devices_and_ids_are_parsed_whole_or_refused() {
        assert_eq!("auto".parse(), Ok(Depth::Auto));
        assert_eq!("6".parse(), Ok(Depth::Fixed(6)));
        for bad in ["7", "-1", "", "2x", "Auto"] {
            assert!(bad.parse::<Depth>().is_err(), "{bad}");
        }
        assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cpu:0"] {
            assert!(bad.parse::<Device>().is_err(), "{bad}");
        }
        assert_eq!("1, 2,3".parse::<Ids>().map(|ids| ids.0), Ok(vec![1, 2, 3]));
        for bad in ["", "1,,2", "1,x", "-1", "4294967296"] {
            assert!(bad.parse::<Ids>().is_err(), "{bad}");
        }
    }
}
