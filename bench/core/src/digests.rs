//! Digests of folders, from their files' paths and contents (benchd.md 13).

use std::collections::BTreeMap;
use std::fmt;

use bench_pins::Digest;
use sha2::{Digest as _, Sha256};

/// Files a folder's digest leaves out.
const NOT_DIGESTED: [&str; 2] = [".benchmark-source.sha256", ".gitkeep"];

/// Files that cannot be digested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// One name, two contents.
    #[error("`{path}` was given to the digest twice")]
    Twice {
        /// Which.
        path: String,
    },
    /// The harness's files come in the order of their names.
    #[error("`{path}` was given to the digest behind `{after}`; give files in ascending order of their names")]
    OutOfOrder {
        /// Which.
        path: String,
        /// What came before it.
        after: String,
    },
    /// More than 2^64 bytes.
    #[error("the files' sizes add up to more than 2^64 bytes")]
    Overflow,
}

/// The digest of a folder of weights: over `path 0x00 sha256(file) 0x00` in the order of the paths.
#[derive(Debug, Clone, Default)]
pub struct FolderDigest {
    files: BTreeMap<String, Digest>,
    bytes: u64,
}

/// A folder's identity; printed as `<sha256>:<bytes>:<files>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderIdentity {
    /// Of paths and contents.
    pub sha256: Digest,
    /// In all files.
    pub bytes: u64,
    /// How many files.
    pub files: u64,
}

impl FolderDigest {
    /// Counts a file in, in any order. `path` is relative to the folder, with `/` between segments.
    pub fn add(&mut self, path: &str, bytes: u64, sha256: Digest) -> Result<(), DigestError> {
        if NOT_DIGESTED.contains(&path) {
            return Ok(());
        }
        if self.files.insert(path.to_owned(), sha256).is_some() {
            return Err(DigestError::Twice { path: path.to_owned() });
        }
        self.bytes = self.bytes.checked_add(bytes).ok_or(DigestError::Overflow)?;
        Ok(())
    }

    /// Of all files so far.
    pub fn finish(&self) -> FolderIdentity {
        let mut state = Sha256::new();
        for (path, sha256) in &self.files {
            state.update(path.as_bytes());
            state.update([0]);
            state.update(sha256.0);
            state.update([0]);
        }
        FolderIdentity { sha256: Digest(state.finalize().into()), bytes: self.bytes, files: self.files.len() as u64 }
    }
}

impl fmt::Display for FolderIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.sha256, self.bytes, self.files)
    }
}

/// The identity of the trusted tree (track-contract.md 12.1): over `len(path) path len(content) content` of every trusted
/// file, paths relative to the repository and ascending, lengths as 8 bytes, least first. Length first, so that no byte can
/// move from a name to a content or from one file to the next.
#[derive(Debug, Clone, Default)]
pub struct HarnessHash {
    state: Sha256,
    last: Option<String>,
}

impl HarnessHash {
    /// Counts a file in. Files come in ascending order of the bytes of their paths, so that one at a time is in memory.
    pub fn add(&mut self, path: &str, content: &[u8]) -> Result<(), DigestError> {
        match self.last.take() {
            Some(last) if last == path => return Err(DigestError::Twice { path: last }),
            Some(after) if after.as_str() > path => {
                return Err(DigestError::OutOfOrder { path: path.to_owned(), after });
            }
            _ => self.last = Some(path.to_owned()),
        }
        for part in [path.as_bytes(), content] {
            self.state.update((part.len() as u64).to_le_bytes());
            self.state.update(part);
        }
        Ok(())
    }

    /// Of all files so far.
    pub fn finish(self) -> Digest {
        Digest(self.state.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sha256;

    #[test]
    fn a_folders_digest_is_the_documented_bytes() {
        let mut folder = FolderDigest::default();
        for (path, content) in [("b/x", &b"two"[..]), ("a", b"one"), (".gitkeep", b"no"), ("b/.gitkeep", b"yes")] {
            folder.add(path, content.len() as u64, sha256(content)).unwrap();
        }
        let mut bytes = Vec::new();
        for (path, content) in [("a", &b"one"[..]), ("b/.gitkeep", b"yes"), ("b/x", b"two")] {
            bytes.extend_from_slice(path.as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&sha256(content).0);
            bytes.push(0);
        }
        assert_eq!(folder.finish().to_string(), format!("{}:9:3", sha256(&bytes)));
        assert_eq!(folder.add("a", 1, sha256(b"")), Err(DigestError::Twice { path: "a".into() }));
        assert_eq!(folder.add("c", u64::MAX, sha256(b"")), Err(DigestError::Overflow));
    }

    fn harness(files: &[(&str, &[u8])]) -> Result<Digest, DigestError> {
        let mut hash = HarnessHash::default();
        files.iter().try_for_each(|(path, content)| hash.add(path, content)).map(|()| hash.finish())
    }

    #[test]
    fn the_harness_hash_is_the_documented_bytes_and_refuses_another_order() {
        let bytes = b"\x01\0\0\0\0\0\0\0a\x02\0\0\0\0\0\0\0xy\x03\0\0\0\0\0\0\0b/c\0\0\0\0\0\0\0\0";
        assert_eq!(harness(&[("a", b"xy"), ("b/c", b"")]).unwrap(), sha256(bytes));
        assert!(matches!(harness(&[("b", b""), ("a", b"")]), Err(DigestError::OutOfOrder { .. })));
        assert!(matches!(harness(&[("a", b""), ("a", b"")]), Err(DigestError::Twice { .. })));
    }

    proptest! {
        #[test]
        fn two_harnesses_with_one_hash_are_one(
            left in prop::collection::btree_map("[ab]{1,3}", prop::collection::vec(97_u8..99, 0..4), 0..4),
            right in prop::collection::btree_map("[ab]{1,3}", prop::collection::vec(97_u8..99, 0..4), 0..4),
        ) {
            let hash = |files: &BTreeMap<String, Vec<u8>>| {
                harness(&files.iter().map(|(path, content)| (path.as_str(), &content[..])).collect::<Vec<_>>()).unwrap()
            };
            prop_assert_eq!(hash(&left) == hash(&right), left == right);
        }
    }
}
