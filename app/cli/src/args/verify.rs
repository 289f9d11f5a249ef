//! `verify`: files and what is said about them.

use std::path::PathBuf;

use clap::Args;

use super::file;

const VERIFY_HELP: &str = "\
Examples:
  cudafast verify DIR/SHA256SUMS
  cudafast verify manifest.json --dir DIR
  cudafast verify --write DIR/SHA256SUMS               pins what is in DIR now
  cudafast verify --write manifest.json --dir DIR      with sizes, as JSON

A manifest is what sha256sum writes, or JSON: {\"files\":[{\"path\",\"size_bytes\",\"sha256\"}]}, also as target.files of a
track's fixture. Standard output gets a line per file; the exit code is 1 if one is missing, of another size or another hash.
A manifest that lists a directory, a pipe, a device, a name twice or a way out of the folder is refused. --write leaves out
hidden files, and replaces a manifest that it could have made but no other file.";

#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub(crate) struct VerifyArgs {
    /// The manifest; `-` reads it from standard input
    #[arg(value_name = "MANIFEST", required_unless_present = "write", conflicts_with = "write")]
    pub(crate) manifest: Option<PathBuf>,
    /// Write a manifest of the folder instead: JSON if the name ends in .json, else as sha256sum does
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) write: Option<PathBuf>,
    /// The folder with the files. Left out: that of the manifest
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Files read at once, at most 64; 0 = as many as there are cores, up to 8
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: usize,
}

/// More would only seek.
const MAX_JOBS: usize = 64;

fn jobs(text: &str) -> Result<usize, String> {
    let refused = || format!("expected 0 to {MAX_JOBS} (0 = as many as there are cores, up to 8)");
    text.parse().ok().filter(|jobs| *jobs <= MAX_JOBS).ok_or_else(refused)
}
