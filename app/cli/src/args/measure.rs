//! `perplexity`, `bench` and `trace`: what is measured, and over what.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use cudafast_runtime::MAX_DEPTH;

use super::model::{BackendArgs, threads};
use super::{Depth, DeviceArgs, DraftArgs, HeadArgs, ModelArgs, PromptArgs, file, whole};
use crate::failure::Failure;
use crate::runner::Runner;

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    /// A line for people
    Text,
    /// One JSON object
    Json,
}

const PERPLEXITY_HELP: &str = "\
Examples:
  cudafast perplexity story.txt
  cudafast perplexity -m DIR --ctx-tokens 4096 --stride 1024 - < story.txt
  cudafast perplexity -m DIR -o json story.txt | jq .perplexity

A window of --ctx-tokens starts every --stride tokens and scores what no window before it has scored, so every token of the
text but the first counts exactly once. The standard error treats tokens as independent. Lower is better; figures compare
only over one text, tokenizer, window and stride.";

#[derive(Debug, Args)]
#[command(after_help = PERPLEXITY_HELP)]
pub(crate) struct PerplexityArgs {
    /// The text; `-` is standard input. Special tokens in it are taken for what they are
    #[arg(value_name = "FILE")]
    pub(crate) text: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Tokens of a window. Left out: 512, or the trained context if that is less
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>(2))]
    pub(crate) ctx_tokens: Option<usize>,
    /// Tokens from the start of one window to that of the next. Left out: half a window
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>(1))]
    pub(crate) stride: Option<usize>,
    /// How the result is printed
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: TextOrJson,
}

/// Bisects numerics.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Run a prompt and keep every intermediate value.
    Dump(Box<TraceDumpArgs>),
    /// Say where two traces of one prompt part; exit code 1 if they do.
    Diff(TraceDiffArgs),
}

const TRACE_DUMP_HELP: &str = "\
Examples:
  cudafast trace dump --out int8.trace \"Once upon a time\"
  cudafast trace dump --f32 --out f32.trace \"Once upon a time\"
  cudafast trace dump --decode=7 --depth 3 --out seven.trace \"Once upon a time\"
  cudafast trace dump -m DIR --layers 40..48 --ops gdn,residual --out part.trace --ids 1,2,3

The file is one of safetensors: a tensor SEQUENCE/LAYER/OPERATION/POSITION of [rows, width] for each operation, in the order
they ran. The draft head's block is the layer behind the last. A token of a large model takes tens of megabytes: --layers and
--ops keep a part.";

#[derive(Debug, Args)]
#[command(after_help = TRACE_DUMP_HELP)]
pub(crate) struct TraceDumpArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Run the prompt as rounds of this many rows, 1 to 7, instead of as a prefill
    #[arg(long, value_name = "ROWS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = rows)]
    pub(crate) decode: Option<usize>,
    /// Drafts to chain behind the prompt, 0 to 6
    #[arg(long, default_value_t = 0, value_name = "D", allow_negative_numbers = true, value_parser = drafts)]
    pub(crate) depth: usize,
    /// Layers to keep, as FIRST..END; the draft head's is the one behind the last. Left out: all
    #[arg(long, value_name = "RANGE")]
    pub(crate) layers: Option<Layers>,
    /// Operations to keep, by the beginning of their names, separated by commas; each must be one that ran. Left out: all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) ops: Vec<String>,
    /// The file to write
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) out: PathBuf,
}

const TRACE_DIFF_HELP: &str = "\
Examples:
  cudafast trace diff one-thread.trace two-threads.trace
  cudafast trace diff --tol 1e-5 prefill.trace decode.trace

Rows are matched by layer, operation and position and walked in the order A was computed in, so the first difference is where
to look. Rows that only one trace has are counted, not compared. Without --tol every bit counts; with it a difference may be
that share of the largest value of its row in A. Ids (experts, attended tokens, table rows) must be equal.";

#[derive(Debug, Args)]
#[command(after_help = TRACE_DIFF_HELP)]
pub(crate) struct TraceDiffArgs {
    /// A trace
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Another trace of the same prompt
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Largest difference that passes, as a share of the row's largest value
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", allow_negative_numbers = true, value_parser = tolerance)]
    pub(crate) tol: f64,
}

/// Layers as they are typed.
#[derive(Debug, Clone)]
pub(crate) struct Layers(pub(crate) Range<usize>);

impl FromStr for Layers {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let range = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
        range.filter(|range| !range.is_empty()).map(Layers).ok_or_else(|| "expected FIRST..END, e.g. 0..4".into())
    }
}

fn rows(text: &str) -> Result<usize, String> {
    let refused = || format!("expected 1 to {}", MAX_DEPTH + 1);
    text.parse().ok().filter(|rows| (1..=MAX_DEPTH + 1).contains(rows)).ok_or_else(refused)
}

fn drafts(text: &str) -> Result<usize, String> {
    let refused = || format!("expected 0 to {MAX_DEPTH}");
    text.parse().ok().filter(|depth| *depth <= MAX_DEPTH).ok_or_else(refused)
}

fn tolerance(text: &str) -> Result<f64, String> {
    let refused = || "expected a number of at least 0".to_owned();
    text.parse().ok().filter(|share: &f64| share.is_finite() && *share >= 0.0).ok_or_else(refused)
}

/// How a bench is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchOutput {
    /// A Markdown table
    Md,
    /// One JSON object with every sample, machine and command
    Json,
    /// A line for each sample
    Csv,
}

const BENCH_HELP: &str = "\
Examples:
  cudafast bench
  cudafast bench -m DIR -p 128,512 -n 128 --depth 0,3,auto --threads 1,2
  cudafast bench -m DIR -p 0 -n 32 --depth 0 --verify-rows 1,3,7 --machine
  cudafast bench -m DIR -o json > docs/perf/cpu/DATE-decode.json

Rows: `pp N` a prompt of N fixed pseudo-random ordinary tokens, from an empty state; `tg N` N greedy tokens behind each
--prompt, not ended by stop tokens, without drafts, with `dD` drafts at once, or with as many as pay (`auto`); `verify K` rounds of K
rows with pseudo-random drafts, over the time of one row where that is asked for too. Each row warms up once, then all rows
run in turn --reps times, so that what else the machine does hits all of them.

t/s is the median ± the largest distance of any repetition from it. Acceptance is that of the model's own text behind the
prompts; on random weights it means nothing. Peak memory is the most that was resident during the row, the whole process and
the touched part of mapped weights included. GB/s and GMAC/s are weights read and multiplied by serial tokens, counted from
the tensors' sizes (used experts, one embedding row, hashed table rows, the head's block). --machine measures before and
after the rows how fast this machine reads 1 GiB of memory and how fast the engine's own dots run on data in the first cache,
takes the best pass of each, and prints which share of both the serial rows reach: what binds is the larger one.";

/// What the embedded model knows by heart, and what it does not: drafts of the first are nearly all accepted.
const PROMPTS: [&str; 2] =
    ["Once upon a time, there was a little fox named", "The old king called his three sons and said to them,"];

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// Worker threads to measure with, at most 1024; 0 = every core
    #[arg(long, default_value = "0", value_name = "N,..", value_delimiter = ',', allow_negative_numbers = true,
        value_parser = threads)]
    pub(crate) threads: Vec<usize>,
    /// Tokens of the prompts to measure; 0 = none
    #[arg(short = 'p', long, default_value = "512", value_name = "N,..", value_delimiter = ',',
        allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub(crate) prompt_tokens: Vec<usize>,
    /// Tokens to generate, and rounds of a verify; 0 = none
    #[arg(short = 'n', long, default_value = "128", value_name = "N,..", value_delimiter = ',',
        allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub(crate) gen_tokens: Vec<usize>,
    /// Drafts verified at once while generating: 0 to 6, or auto. Left out: 0, and 3 and auto with a draft head
    #[arg(long, value_name = "D,..", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) depth: Vec<Depth>,
    /// Rows of rounds to measure, 1 to 7. Left out: none
    #[arg(long, value_name = "K,..", value_delimiter = ',', allow_negative_numbers = true, value_parser = rows)]
    pub(crate) verify_rows: Vec<usize>,
    /// A text that is continued; more than one may be given, and each makes its own tokens. Left out: the openings of a story
    /// and of an old book
    #[arg(long, default_values = PROMPTS, value_name = "TEXT")]
    pub(crate) prompt: Vec<String>,
    /// Measurements of each row
    #[arg(short, long, default_value_t = 5, value_name = "N", allow_negative_numbers = true, value_parser = reps)]
    pub(crate) reps: usize,
    /// Also measure the machine's memory and dots, and the rows' share of both
    #[arg(long)]
    pub(crate) machine: bool,
    /// How the result is printed
    #[arg(short, long, default_value = "md", value_name = "FORMAT")]
    pub(crate) output: BenchOutput,
}

impl BenchArgs {
    /// Refuses a bench of no row, and flags of rows that are not in it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let none = |sizes: &[usize]| sizes.iter().all(|size| *size == 0);
        let nothing = none(&self.prompt_tokens) && none(&self.gen_tokens) && self.verify_rows.is_empty();
        if nothing && !self.machine {
            return Err(Failure::NothingToMeasure);
        }
        if none(&self.gen_tokens) && !self.depth.is_empty() {
            return Err(Failure::Idle { flag: "--depth", with: "with -n 0", needs: "-n" });
        }
        if none(&self.gen_tokens) && self.verify_rows.is_empty() && self.prompt != PROMPTS {
            let (with, needs) = ("with -n 0 and no --verify-rows", "one of them");
            return Err(Failure::Idle { flag: "--prompt", with, needs });
        }
        Ok(())
    }
}

impl BenchArgs {
    /// Refuses what a card has not.
    pub(crate) fn check_device(&self, runner: &Runner) -> Result<(), Failure> {
        let flag = match runner.is_cpu() {
            true => None,
            false if self.threads != [0] => Some("--threads"),
            false => self.machine.then_some("--machine"),
        };
        flag.map_or(Ok(()), |flag| Err(Failure::Idle { flag, with: "with --device cuda", needs: "--device cpu" }))
    }
}

fn reps(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|reps| (1..=1000).contains(reps)).ok_or_else(|| "expected 1 to 1000".into())
}
