//! `selftest`.

const AFTER_HELP: &str = "\
Examples:
  cudafast selftest                       every kernel, a line a check
  cudafast selftest --only matvec --time  products alone, with the time of each shape of the model
  cudafast selftest --only model -m DIR   a whole model against the CPU: logits, rows, drafting, rewinds, snapshots
  cudafast selftest --only model --synth layers=4,ngram-rows=1000000
  cudafast selftest --only lengths --lengths 1-600   prompts of these lengths, one by one
  cudafast selftest --fault               last, kill a kernel on purpose and check what callers see";

use super::{HeadArgs, Lengths, ModelArgs};

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SelftestArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    /// Number of the CUDA device
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cuda_device: u32,
    /// Seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Only operations whose name begins with this
    #[arg(long, value_name = "OP", default_value = "")]
    pub(crate) only: String,
    /// Also time operations on the model's shapes, in captured chains of fresh weights
    #[arg(long)]
    pub(crate) time: bool,
    /// Also check that a fault names its kernel and ends every call after it
    #[arg(long)]
    pub(crate) fault: bool,
    /// Prompt lengths that `--only lengths` runs one by one
    #[arg(long, value_name = "LENGTHS", default_value = "1-600")]
    pub(crate) lengths: Lengths,
    /// Launch operations with plain edges, to tell a wrong edge from a wrong kernel
    #[arg(long)]
    pub(crate) plain_edges: bool,
    /// One JSON object instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}
