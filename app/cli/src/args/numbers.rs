//! `inspect` and `eval`: what a model is, and what it computes.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceArgs, HeadArgs, ModelArgs, PromptArgs, file, whole};

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
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>(1))]
    pub(crate) ctx_tokens: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EVAL_HELP: &str = "\
Examples:
  cudafast eval -m DIR --ids 1,2,3 --out logits.npy
  cudafast eval -m DIR --f32 --prompt-file letter.txt --out logits.npy

Row i of the file has the logits after token i. The file appears whole or not at all, and replaces
another one only if that is an NPY file too.";

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
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) out: PathBuf,
}
