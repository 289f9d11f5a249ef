//! Where a path of a manifest leads on this disk.

use std::fs::{FileType, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A folder by its true path, so that what is inside can be told from what is not.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    named: PathBuf,
    real: PathBuf,
}

/// What stands at a path.
pub(crate) enum Place {
    File { real: PathBuf, bytes: u64 },
    Missing,
    Unreadable(io::Error),
}

impl Root {
    pub(crate) fn new(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Folder { folder: folder.to_owned(), source };
        let real = folder.canonicalize().map_err(failed)?;
        match real.metadata().map_err(failed)?.is_dir() {
            true => Ok(Self { named: folder.to_owned(), real }),
            false => Err(failed(ErrorKind::NotADirectory.into())),
        }
    }

    pub(crate) fn real(&self) -> &Path {
        &self.real
    }

    /// A path inside as it is to be shown.
    pub(crate) fn shown(&self, path: &str) -> PathBuf {
        self.named.join(path)
    }

    /// What stands at `path`, links followed. A link may lead about inside the folder, not out of it.
    pub(crate) fn find(&self, path: &str) -> Result<Place, Error> {
        let real = match self.real.join(path).canonicalize() {
            Ok(real) => real,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Place::Missing);
            }
            Err(error) => return Ok(Place::Unreadable(error)),
        };
        if !real.starts_with(&self.real) {
            return Err(Error::LeadsOut { path: self.shown(path), to: real });
        }
        // Never opened before this: opening a pipe waits for its writer.
        let found = match real.metadata() {
            Ok(found) => found,
            Err(error) => return Ok(Place::Unreadable(error)),
        };
        match kind(&found) {
            Some(kind) => Err(Error::NotAFile { path: self.shown(path), kind }),
            None => Ok(Place::File { real, bytes: found.len() }),
        }
    }
}

/// What it is, if it is no file.
pub(crate) fn kind(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else {
        Some(special(kind))
    }
}

#[cfg(unix)]
pub(crate) fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
pub(crate) fn is_pipe(_: FileType) -> bool {
    false
}

#[cfg(unix)]
fn special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if is_pipe(kind) {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special(_: FileType) -> &'static str {
    "neither file nor directory"
}
