//! Why a manifest is refused, or a folder cannot be one.

use std::io;
use std::path::PathBuf;

/// Every way in which this room says no. `manifest` is the name it was given by.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest's bytes could not be had.
    #[error("{manifest}: cannot be read; check the path and its permissions")]
    ReadManifest {
        /// Which.
        manifest: String,
        /// Why.
        source: io::Error,
    },
    /// Reading it would wait for whoever writes to it.
    #[error("{manifest}: is a pipe; give a file, or `-` for standard input")]
    ManifestIsPipe {
        /// Which.
        manifest: String,
    },
    /// More bytes than a manifest has.
    #[error("{manifest}: is longer than {limit} bytes and so no manifest")]
    TooLong {
        /// Which.
        manifest: String,
        /// [`MAX_MANIFEST_BYTES`](crate::MAX_MANIFEST_BYTES).
        limit: u64,
    },
    /// A byte that is no part of UTF-8.
    #[error("{manifest}: is not UTF-8 at byte {at}; a manifest is text, or JSON")]
    NotUtf8 {
        /// Which.
        manifest: String,
        /// Offset of the byte.
        at: usize,
    },
    /// A line that is none of `sha256sum`'s.
    #[error("{manifest}:{line}: is no line of `sha256sum`: {why}")]
    Line {
        /// Which manifest.
        manifest: String,
        /// Counted from 1.
        line: usize,
        /// What is missing.
        why: &'static str,
    },
    /// JSON of another shape.
    #[error("{manifest}: is no JSON manifest, {{\"files\":[{{\"path\",\"size_bytes\",\"sha256\"}}]}}")]
    Json {
        /// Which.
        manifest: String,
        /// Where, and what was expected.
        source: serde_json::Error,
    },
    /// JSON with two lists, or none.
    #[error("{manifest}: has {found}; a manifest has one list, `files` or `target.files`")]
    Lists {
        /// Which.
        manifest: String,
        /// What it has.
        found: &'static str,
    },
    /// A list without entries.
    #[error("{manifest}: lists no file; nothing would be checked")]
    Empty {
        /// Which.
        manifest: String,
    },
    /// A name that could lead anywhere.
    #[error("{manifest}: `{path}` {why}; a manifest names files by their path inside its folder")]
    Path {
        /// Which manifest.
        manifest: String,
        /// The name.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// One name with two hashes, or twice with one.
    #[error("{manifest}: lists `{path}` twice; leave one of the two")]
    Twice {
        /// Which manifest.
        manifest: String,
        /// The name.
        path: String,
    },
    /// A hash that is none.
    #[error("{manifest}: the hash of `{path}` is none")]
    Hash {
        /// Which manifest.
        manifest: String,
        /// Of which file.
        path: String,
        /// What one looks like.
        source: crate::BadDigest,
    },
    /// JSON pins a file of no bytes (mooney.md 1).
    #[error("{manifest}: `{path}` is listed with 0 bytes; pinned files have some")]
    NoBytes {
        /// Which manifest.
        manifest: String,
        /// The name.
        path: String,
    },
    /// The sizes are no sizes.
    #[error("{manifest}: the sizes add up to more than 2^64 bytes")]
    SizeOverflow {
        /// Which.
        manifest: String,
    },
    /// The folder of the files.
    #[error("{}: is no folder that can be read; name the one with the files", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that has no contents to pin.
    #[error("{}: is {kind}; only files can be pinned", path.display())]
    NotAFile {
        /// Where.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A link out of the folder.
    #[error("{}: leads to {}, outside the folder; pin the files where they are", path.display(), to.display())]
    LeadsOut {
        /// The link, or the path that goes through it.
        path: PathBuf,
        /// Where it leads.
        to: PathBuf,
    },
    /// A file of a folder to be pinned.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder with nothing to pin.
    #[error("{}: holds no file to pin; hidden ones are left out", folder.display())]
    NothingToPin {
        /// Which.
        folder: PathBuf,
    },
    /// A manifest is text.
    #[error("{}: the name is not UTF-8; rename the file", path.display())]
    NameNotUtf8 {
        /// Which.
        path: PathBuf,
    },
}
