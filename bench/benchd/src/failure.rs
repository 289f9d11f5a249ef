//! Why a command could not be done, on one line.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use bench_core::contract::ContractError;
use bench_core::declaration::DeclarationError;
use bench_core::digests::DigestError;
use bench_core::golden::GoldenError;
use bench_core::manifest::ManifestError;
use bench_core::surface::SurfaceError;
use bench_core::timed::OracleError;
use bench_runner::SessionError;

/// Every way a command can fail. The chain of causes is printed, so no text repeats its source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{what}")]
    Usage { what: String },
    #[error("PAIRED-FLOW-RETIRED-FOR-TRACK: `{command}` belongs to other tracks; use `benchd iterate`")]
    Retired { command: &'static str, exit_code: u8 },
    #[error("{}: cannot be read; check the path and its permissions", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: cannot be written; check the path, its permissions and the free space", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("standard output cannot be written")]
    Stdout { source: io::Error },
    #[error("the result cannot be written as JSON")]
    Json { source: serde_json::Error },
    #[error("{}", path.display())]
    Contract { path: PathBuf, source: ContractError },
    #[error(transparent)]
    Track(ContractError),
    #[error("{}", path.display())]
    Golden { path: PathBuf, source: GoldenError },
    #[error("{}", path.display())]
    Manifest { path: PathBuf, source: ManifestError },
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    #[error(transparent)]
    Digest(#[from] DigestError),
    #[error(transparent)]
    Surface(#[from] SurfaceError),
    #[error("{}: {what}; make it with `benchd pack`", path.display())]
    Archive { path: PathBuf, what: String },
    #[error("{name}: {text}")]
    Review { name: &'static str, text: String },
    #[error("--track is missing, and no --contract names one; give either, or set MLXFAST_QWEN_MTP_TRACK_ID")]
    NoTrack,
    #[error(
        "MODEL-IDENTITY-UNDECLARED-FOR-TRACK: no fixture in fixtures/ is of track `{track}`; pass it with --contract"
    )]
    UndeclaredTrack { track: String },
    #[error("--max-bytes {found:?} is no positive number of bytes, and not `none`; give one")]
    Cap { found: String },
    #[error("{}: {what}", path.display())]
    Weights { path: PathBuf, what: String },
    #[error("{}: cannot be read; check the path and its permissions", path.display())]
    WeightsUnreadable { path: PathBuf, source: io::Error },
    #[error("{}: {count} defects, each in a FAIL line above", path.display())]
    Lint { path: PathBuf, count: usize },
    #[error("git {what} in {}: {stderr}; the trusted files are those git knows, run this in a checkout", root.display())]
    Git { what: &'static str, root: PathBuf, stderr: String },
    #[error("{0}")]
    Session(SessionText, #[source] SessionError),
    #[error("signals cannot be listened to")]
    Signals { source: io::Error },
    #[error("{flag}: {what}")]
    Flag { flag: &'static str, what: String },
    #[error("{}", path.display())]
    Prompt { path: PathBuf, source: GoldenError },
    #[error(
        "engine-pin-mismatch: {changed} differs from what is committed; goldens are recorded on a clean engine, commit it or use --compare"
    )]
    EnginePin { changed: String },
    #[error("{}: is not what was recorded just now, first at byte {at}; if the change is meant, record it without --compare", path.display())]
    Recorded { path: PathBuf, at: usize },
    #[error("{}: the negative control passed its own pin, so the pin proves nothing", path.display())]
    NegativeControl { path: PathBuf },
    #[error("{count} of {all} goldens decode differently with drafts; see the MISMATCH lines above")]
    Inexact { count: usize, all: usize },
    #[error(
        "official scoring is not part of this build: it has no control leg; use --local-iterate or --local-submit, or `iterate --mode` with one of these"
    )]
    NoOfficial,
    #[error("{name}: {}; its log ends: {log}", what)]
    Resident { name: &'static str, what: String, log: String },
    #[error("the run did not pass: {error}")]
    NotPassed { error: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Oracle(#[from] OracleError),
    #[error("{verdict}")]
    Correctness { verdict: String },
    #[error("cargo {what}: {how}; what it printed stands above")]
    Cargo { what: String, how: String },
    #[error("{}: is not there or no file; build it with tools/build.sh, or name it with --engine", path.display())]
    NoEngine { path: PathBuf },
    #[error("{}: is {kind}; the trusted tree has regular files alone, remove it", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
}

/// What a session was doing when it failed, and the name it is refused by.
#[derive(Debug)]
pub(crate) struct SessionText {
    doing: String,
    name: &'static str,
}

impl std::fmt::Display for SessionText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.doing)
    }
}

impl Failure {
    /// A session that failed while `doing` something.
    pub(crate) fn session(doing: impl Into<String>) -> impl FnOnce(SessionError) -> Self {
        |error| Self::Session(SessionText { doing: doing.into(), name: error.name() }, error)
    }

    /// The exit code that says it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted | Self::Session(_, SessionError::Interrupted) => 130,
            Self::Usage { .. } | Self::NoTrack | Self::Cap { .. } | Self::Flag { .. } => 2,
            Self::WeightsUnreadable { .. } => 3,
            Self::Retired { exit_code, .. } => *exit_code,
            _ => 1,
        }
    }

    /// What is printed: the text and its causes. A refusal has the word in it that scripts look for.
    pub(crate) fn line(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        let text = text.replace('\n', " ");
        match self.exit_code() {
            2 | 130 => format!("error: {text}"),
            _ if text.starts_with("REFUSING -- ") => text,
            _ => format!("REFUSING -- {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_its_causes_and_its_word() {
        let failure = Failure::Read { path: "a/b".into(), source: io::Error::other("gone\naway") };
        let want = "REFUSING -- a/b: cannot be read; check the path and its permissions: gone away";
        assert_eq!((failure.line().as_str(), failure.exit_code()), (want, 1));
        assert!(Failure::NoTrack.line().starts_with("error: --track is missing"));
        assert_eq!(Failure::Retired { command: "measure-job", exit_code: 5 }.exit_code(), 5);
    }
}
