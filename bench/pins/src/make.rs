//! A manifest of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::hash::{OnRead, sha256_each};
use crate::manifest::{Manifest, Pin};
use crate::place::{self, Place, Root};

/// The files of a folder and its subfolders, by path. Hidden ones are left out: they belong to the tools that made them.
#[derive(Debug)]
pub struct Folder {
    named: PathBuf,
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    path: String,
    real: PathBuf,
    bytes: u64,
}

impl Folder {
    /// Walks the folder. `but`, if it lies inside, is left out: a manifest does not list itself. Refuses what could not be
    /// verified later: pipes and the like, links to folders, and links that lead out.
    pub fn walk(folder: &Path, but: Option<&Path>) -> Result<Self, Error> {
        let root = Root::new(folder)?;
        let but = but.and_then(|path| path.canonicalize().ok());
        let mut files = Vec::new();
        let mut open = vec![String::new()];
        while let Some(inside) = open.pop() {
            let at = root.shown(&inside);
            let unreadable = |source| Error::Read { path: at.clone(), source };
            for entry in fs::read_dir(root.real().join(&inside)).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let name = entry.file_name();
                let name = name.to_str().ok_or_else(|| Error::NameNotUtf8 { path: at.join(&name) })?;
                if name.starts_with('.') {
                    continue;
                }
                let path = if inside.is_empty() { name.to_owned() } else { format!("{inside}/{name}") };
                if entry.file_type().map_err(unreadable)?.is_dir() {
                    open.push(path);
                    continue;
                }
                match root.find(&path)? {
                    Place::File { real, .. } if Some(&real) == but.as_ref() => {}
                    Place::File { real, bytes } => files.push(File { path, real, bytes }),
                    Place::Missing => return Err(missing(root.shown(&path))),
                    Place::Unreadable(source) => return Err(Error::Read { path: root.shown(&path), source }),
                }
            }
        }
        if files.is_empty() {
            return Err(Error::NothingToPin { folder: folder.to_owned() });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { named: folder.to_owned(), files })
    }

    /// Bytes that [`pin`](Self::pin) will read.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Reads the files, up to `jobs` at a time, and pins each as it was read. `None`: `on_read` ended it.
    pub fn pin(self, jobs: usize, on_read: &OnRead<'_>) -> Result<Option<Manifest>, Error> {
        let files: Vec<_> = self.files.iter().map(|file| (file.real.as_path(), file.bytes)).collect();
        let Some(results) = sha256_each(&files, jobs, on_read) else { return Ok(None) };
        let mut pins = Vec::new();
        for (file, result) in self.files.iter().zip(results) {
            let failed = |source| Error::Read { path: self.named.join(&file.path), source };
            let hashed = result.map_err(failed)?;
            pins.push(Pin { path: file.path.clone(), bytes: Some(hashed.bytes), sha256: hashed.sha256 });
        }
        Manifest::new(&self.named.display().to_string(), pins).map(Some)
    }
}

/// Listed and not there: a link to nothing, or a file that was just removed.
fn missing(path: PathBuf) -> Error {
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => Error::NotAFile { path, kind: "a link that leads nowhere" },
        Ok(found) => Error::NotAFile { path, kind: place::kind(&found).unwrap_or("gone in the meantime") },
        Err(source) => Error::Read { path, source },
    }
}
