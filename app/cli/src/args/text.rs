//! `tokenize` and `detokenize`: text and the ids of its tokens.

use std::path::PathBuf;

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

const DETOKENIZE_HELP: &str = "\
Examples:
  cudafast detokenize 389 2241,260
  cudafast tokenize --json \"Once upon a time\" | cudafast detokenize
  cudafast detokenize -m vocab.gguf --file ids.txt > letter.txt

The reverse of tokenize: writes the bytes that the ids stand for, and nothing else, not even a newline at the end. Ids are
separated by commas, blanks or newlines; one JSON array, as tokenize --json prints it, will do too.";

#[derive(Debug, Args)]
#[command(after_help = DETOKENIZE_HELP)]
pub(crate) struct DetokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The ids; `-` or nothing reads them from standard input
    #[arg(value_name = "IDS", allow_negative_numbers = true)]
    pub(crate) ids: Vec<String>,
    /// Read the ids from a file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    pub(crate) file: Option<PathBuf>,
}
