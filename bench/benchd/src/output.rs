//! What is printed where.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// One line for people, on standard error. That nobody reads it is no reason to end.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "benchd: {line}");
}

/// One line of the result, on standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|source| Failure::Stdout { source })
}

/// The result as JSON, on standard output.
pub(crate) fn json(result: &impl Serialize) -> Result<(), Failure> {
    line(&serde_json::to_string_pretty(result).map_err(|source| Failure::Json { source })?)
}
