//! Standard output and standard error, where every write can fail.

use std::io::{self, Write};

use rustix::fs::FileType;

use crate::failure::{Failure, escape_control};

/// Writes text and flushes it, so that a reader sees tokens as they come. A closed reader is a failure, not a panic.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Writes bytes as they are, and flushes them.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|source| if terminal_is_gone(&source) { Failure::Interrupted } else { Failure::Stdout { source } })
}

/// Whether a write failed because the other end of the terminal was closed. Its hangup may come later, or to another process
/// alone. A disk can fail with the same number.
fn terminal_is_gone(error: &io::Error) -> bool {
    let device = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
        && rustix::fs::fstat(io::stdout()).is_ok_and(device)
}

/// One object on one line.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_string(value).map_err(|e| Failure::Stdout { source: e.into() })?;
    line.push('\n');
    text(&line)
}

/// A line for people on stderr. Nobody is left to tell when that fails.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "cudafast: {}", escape_control(line));
}

/// Lines that were asked for in the middle of something else.
pub(crate) fn guide(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The line that ends a failed command.
pub(crate) fn error_line(line: &str) {
    note(&format!("error: {line}"));
}
