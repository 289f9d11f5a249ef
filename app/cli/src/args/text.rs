//! `tokenize`: text and the ids of its tokens.

use clap::Args;

use super::ModelArgs;

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
