//! Why a command could not be done, on one line.

use std::error::Error;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use cudafast_runtime::{BackendError, TokenId};

/// Every way a command can fail. The chain of causes is printed, so no text repeats its source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    File(#[from] cudafast_gguf::Error),
    #[error(transparent)]
    Model(#[from] cudafast_model::Error),
    #[error(transparent)]
    Session(#[from] cudafast_runtime::Error),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("--ids: an id stands for no text; see `cudafast tokenize` for a text's ids")]
    Ids { source: cudafast_text::Error },
    #[error("IDS: `{part}` is no token id; give numbers separated by commas or blanks")]
    NoIdArgument { part: String },
    #[error("--logit-bias: token {id} is given twice; give each token once")]
    BiasTwice { id: TokenId },
    #[error("-p 0, -n 0 and no --verify-rows leave nothing to measure; give at least one of them, or --machine")]
    NothingToMeasure,
    #[error("{flag}: does nothing {with}; leave it out, or give {needs}")]
    Idle { flag: &'static str, with: &'static str, needs: &'static str },
    #[error("{name}: has no tokens; give at least one")]
    NoTokens { name: String },
    #[error("{name}: `{part}` is no token id; give numbers separated by commas, blanks or newlines")]
    NoId { name: String, part: String },
    #[error("{name}: an id stands for no text; see `cudafast tokenize` for a text's ids")]
    ForeignId { name: String, source: cudafast_text::Error },
    #[error("the text cannot be tokenised")]
    Encode { source: cudafast_text::Error },
    #[cfg(not(feature = "cuda"))]
    #[error("--device {device}: this build has no CUDA backend; use --device cpu, or a build with the feature `cuda`")]
    NoCuda { device: String },
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] cudafast_cuda::CudaError),
    #[cfg(feature = "cuda")]
    #[error("{failed} of {checks} checks of the GPU failed; the lines above name them")]
    Selftest { failed: usize, checks: usize },
    #[cfg(feature = "cuda")]
    #[error("{failed} steps or rows failed; the table above names them, the log in --out says why")]
    GpuCheck { failed: usize },
    #[cfg(feature = "cuda")]
    #[error("--compare {}: has no rows of a bench; give the JSON of `bench` or of a `gpu-check` that ran it", path.display())]
    NoRows { path: PathBuf },
    #[error("--device cuda: intermediate values are traced on the CPU alone; use --device cpu")]
    TraceDevice,
    #[error("--depth: {note}")]
    SeveralHeads { note: String },
    #[error("{path}: cannot be read; check the path and its permissions")]
    Read { path: String, source: io::Error },
    #[error("{path}: is not UTF-8 at byte {at}; give text as UTF-8")]
    NotUtf8 { path: String, at: usize },
    #[error("{path}: is longer than {limit} bytes; give a shorter text")]
    TextTooLong { path: String, limit: u64 },
    #[error("{flag} {}: cannot be written; check the path, its permissions and the free space", path.display())]
    Out { flag: &'static str, path: PathBuf, source: io::Error },
    #[error("{flag} {}: is a directory; give the name of a file", path.display())]
    OutIsDirectory { flag: &'static str, path: PathBuf },
    #[error(
        "{flag} {}: is not {kind}, which alone would be replaced; give another name, or remove the file",
        path.display()
    )]
    OutIsForeign { flag: &'static str, path: PathBuf, kind: &'static str },
    #[error("{flag} {}: is a link that leads nowhere; remove it, or give another name", path.display())]
    OutLeadsNowhere { flag: &'static str, path: PathBuf },
    #[error(transparent)]
    Pins(#[from] bench_pins::Error),
    #[error("{manifest}: not all of the {files} listed files are as listed: {faults}; fetch these again")]
    NotAsListed { manifest: String, files: usize, faults: String },
    #[error("{test}: takes {tokens} tokens of context, the model was trained for {trained}; measure fewer")]
    TestTooLong { test: String, tokens: usize, trained: usize },
    #[error("--machine: a thread cannot be started; measure with fewer")]
    Probe { source: io::Error },
    #[error("{}: is no whole trace: {why}; write it with `cudafast trace dump`", path.display())]
    NoTrace { path: PathBuf, why: String },
    #[error("--layers {}..{}: none of them ran; there are {layers}, from 0, and the draft head's behind them", kept.start, kept.end)]
    NoSuchLayer { kept: Range<usize>, layers: usize },
    #[error("--ops {op}: no operation of the kept layers begins like this; leave it out and see what there is")]
    NoSuchOp { op: String },
    #[error("{} and {} cannot be compared: {why}", a.display(), b.display())]
    OtherTrace { a: PathBuf, b: PathBuf, why: String },
    #[error("the traces differ, first at {first}")]
    TracesDiffer { first: String },
    #[error("{path}: has {found} tokens; a perplexity needs at least 2")]
    TextTooShort { path: String, found: usize },
    #[error("--stride {stride} with --ctx-tokens {ctx_tokens}: expected a stride from 1 to one less than the window")]
    Stride { stride: usize, ctx_tokens: usize },
    #[error("--out {}: is no directory; give the name of a folder", path.display())]
    OutIsNoDirectory { path: PathBuf },
    #[error("--out {}: holds `{name}` already; give another folder, or --force to replace files of the same names", path.display())]
    OutHoldsModel { path: PathBuf, name: String },
    #[error(
        "--out {}: needs {needed} bytes, the disk has room for {available}; ask for less with --layers and --ngram-rows, or give a folder on another disk",
        path.display()
    )]
    NoRoom { path: PathBuf, needed: u64, available: u64 },
    #[error(
        "--synth: needs {needed} bytes of memory, {available} are free; ask for less, e.g. layers=4,ngram-rows=1000000"
    )]
    SynthRoom { needed: u64, available: u64 },
    #[error("lines refused: {refused}, each for the reason told above")]
    LinesRefused { refused: usize },
    #[error("cannot write to standard output")]
    Stdout { source: io::Error },
    #[error("cannot read from standard input")]
    Stdin { source: io::Error },
    #[error("cannot listen for signals")]
    Signals { source: io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// A command line that cannot be followed.
pub(crate) const USAGE: u8 = 2;

/// What shells report for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Interrupted => INTERRUPTED,
            // What only several flags together, or their values, show to be no command.
            Failure::NoIdArgument { .. }
            | Failure::BiasTwice { .. }
            | Failure::NothingToMeasure
            | Failure::Idle { .. }
            | Failure::Stride { .. }
            | Failure::Model(cudafast_model::Error::Synth { .. }) => USAGE,
            _ => 1,
        }
    }

    /// The failure and its causes, separated by colons. Control characters are escaped: file names may hold newlines.
    pub(crate) fn one_line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            line = format!("{line}: {error}");
            cause = error.source();
        }
        escape_control(&line)
    }
}

/// The text with control characters written as escapes, so that it stays on its line.
pub(crate) fn escape_control(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_default())
        } else {
            line.push(c)
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_causes() {
        let source = io::Error::other("disk\nfull");
        let failure = Failure::Out { flag: "--out", path: "a\nb.npy".into(), source };
        let line = failure.one_line();
        assert!(line.starts_with("--out a\\nb.npy: cannot be written"));
        assert!(line.ends_with(": disk\\nfull"));
        assert!(!line.contains('\n'));
    }
}
