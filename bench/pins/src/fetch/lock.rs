//! One at a time fills a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::FetchError;

/// A directory that is there while somebody fills the folder. Never broken: what it protects may be half there.
pub(super) struct Lock(PathBuf);

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Self, FetchError> {
        match fs::create_dir(path) {
            Ok(()) => Ok(Self(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(FetchError::Locked { lock: path.to_owned() }),
            Err(source) => Err(FetchError::Disk { path: path.to_owned(), source }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // One that cannot be removed is told by the next run, with its path.
        let _ = fs::remove_dir(&self.0);
    }
}
