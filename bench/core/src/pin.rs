//! What a document's bytes must be, and what a reference model is called.

use std::fmt;

use bench_pins::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Length and SHA-256 of a document's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentPin {
    /// How many bytes.
    pub bytes: u64,
    /// Of all of them.
    pub sha256: Digest,
}

impl ContentPin {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: sha256(bytes) }
    }
}

impl fmt::Display for ContentPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.sha256, self.bytes)
    }
}

/// The SHA-256 of bytes in memory.
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Which published model a golden was recorded on: `model_provenance` of a golden, `target` of a fixture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// `owner/name`.
    pub repository: String,
    /// A commit of it: 40 lower-case hexadecimal digits.
    pub revision: String,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repository, self.revision)
    }
}

/// Whether a text is `digits` lower-case hexadecimal digits.
pub(crate) fn is_lower_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
