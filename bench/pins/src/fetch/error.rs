//! Why files could not be fetched, or are not the pinned ones. No text has an address in it: one may hold a signature.

use std::io;
use std::path::PathBuf;

use crate::digest::Digest;

/// Every way in which fetching ends without the files.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// What was asked for is no list of files.
    #[error(transparent)]
    Pins(#[from] crate::Error),
    /// A file that is not fully pinned.
    #[error("`{path}` is listed without a size; a file is fetched by its size and its SHA-256, use a JSON manifest")]
    NoSize {
        /// Which.
        path: String,
    },
    /// An address that is none.
    #[error("{what} is no address to download from; give one that begins with https://, http:// or file://")]
    Address {
        /// Which setting.
        what: &'static str,
    },
    /// A repository or revision that is none.
    #[error("{what} `{found}` is not of the form {form}")]
    Repository {
        /// Which of the two.
        what: &'static str,
        /// As given.
        found: String,
        /// What it looks like.
        form: &'static str,
    },
    /// Somebody else is filling the folder, or was ended while doing so.
    #[error(
        "another setup is filling this folder: {} exists; wait for it, or remove that directory if none is running", lock.display()
    )]
    Locked {
        /// The lock.
        lock: PathBuf,
    },
    /// The folder's or a file's disk.
    #[error("{}: cannot be read or written; check the path, its permissions and the free space", path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else has a file's name.
    #[error("{}: is no file; remove it", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// A staged folder is somebody's to fill.
    #[error("target snapshot directory does not exist: {}; stage it, or leave the setting out to download", folder.display())]
    NoStagedFolder {
        /// Which.
        folder: PathBuf,
    },
    /// A file that is not there.
    #[error("pinned checkpoint file is missing: {path}; fetch it")]
    Missing {
        /// Which.
        path: String,
    },
    /// A file of another size.
    #[error("byte-count mismatch for {path}: staged {staged}, pinned {pinned}; fetch it again")]
    StagedSize {
        /// Which.
        path: String,
        /// Its size.
        staged: u64,
        /// The listed one.
        pinned: u64,
    },
    /// A file with other contents.
    #[error("sha256 mismatch for {path}: staged {staged}, pinned {pinned}; remove it and fetch it again")]
    StagedHash {
        /// Which.
        path: String,
        /// Its hash.
        staged: Digest,
        /// The listed one.
        pinned: Digest,
    },
    /// What came has, or would have, another size.
    #[error("downloaded {path} is {found} bytes, pinned {pinned}; discarded: the source has another file")]
    DownloadedSize {
        /// Which.
        path: String,
        /// As announced, or as many as came before it was given up.
        found: u64,
        /// The listed size.
        pinned: u64,
    },
    /// What came has other contents.
    #[error("downloaded {path} has sha256 {found}, pinned {pinned}; discarded: the source has another file")]
    DownloadedHash {
        /// Which.
        path: String,
        /// Its hash.
        found: Digest,
        /// The listed one.
        pinned: Digest,
    },
    /// The source says no.
    #[error("{path}: the source refuses access (HTTP {status}); set HF_TOKEN to a token that may read it")]
    Access {
        /// Which file.
        path: String,
        /// 401 or 403.
        status: u16,
    },
    /// The source has no such file, or cannot be asked for it.
    #[error("{path}: the source does not give it: {why}")]
    Source {
        /// Which file.
        path: String,
        /// What it says.
        why: String,
    },
    /// The connection failed too often. What has come is kept.
    #[error("{path}: the download broke off after {have} of {bytes} bytes: {why}; run it again, it goes on from there")]
    Transport {
        /// Which file.
        path: String,
        /// Bytes that are there.
        have: u64,
        /// All of them.
        bytes: u64,
        /// What failed last.
        why: String,
    },
    /// The caller ended it.
    #[error("interrupted; run it again, it goes on from there")]
    Stopped,
}
