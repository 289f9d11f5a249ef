//! Where files are to be: a folder of their own, or the hub's cache, which other programs share.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::source::{expect_repository, expect_revision};
use super::{FetchError, Item, marker};
use crate::manifest::Pin;

/// A place for pinned files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Layout);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Layout {
    /// Files under their own paths.
    Folder(PathBuf),
    /// `CACHE/models--OWNER--NAME/blobs/SHA256`, and links to them below `snapshots/REVISION`.
    HubCache { model: PathBuf, revision: String },
}

impl Place {
    /// Files under their own paths in a folder, which is made if it is not there.
    pub fn folder_at(path: impl Into<PathBuf>) -> Self {
        Self(Layout::Folder(path.into()))
    }

    /// The layout of the hub's own clients: what one of them has downloaded is found, and what is downloaded here they find.
    /// `cache` is [`Hub::cache`](super::Hub), `revision` a commit of 40 digits.
    pub fn hub_cache(cache: &Path, repository: &str, revision: &str) -> Result<Self, FetchError> {
        expect_repository(repository)?;
        expect_revision(revision)?;
        let model = cache.join(format!("models--{}", repository.replace('/', "--")));
        Ok(Self(Layout::HubCache { model, revision: revision.to_owned() }))
    }

    /// Where the files are found under their own paths.
    pub fn folder(&self) -> PathBuf {
        match &self.0 {
            Layout::Folder(folder) => folder.clone(),
            Layout::HubCache { model, revision } => model.join("snapshots").join(revision),
        }
    }

    fn state(&self) -> &Path {
        match &self.0 {
            Layout::Folder(folder) => folder,
            Layout::HubCache { model, .. } => model,
        }
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.state().join(".setup-lock")
    }

    pub(super) fn marker(&self, items: &[Item]) -> PathBuf {
        self.state().join(marker::name(items))
    }

    pub(super) fn create(&self) -> Result<(), FetchError> {
        let create = |path: &Path| fs::create_dir_all(path).map_err(disk(path));
        create(&self.folder())?;
        match &self.0 {
            Layout::Folder(_) => Ok(()),
            Layout::HubCache { model, .. } => create(&model.join("blobs")),
        }
    }

    /// Where the bytes of a file are collected, and where they go when they are all there.
    pub(super) fn parts(&self, pin: &Pin) -> (PathBuf, PathBuf) {
        match &self.0 {
            Layout::Folder(folder) => {
                let file = folder.join(&pin.path);
                (file.with_added_extension("partial"), file)
            }
            Layout::HubCache { model, .. } => {
                let blob = model.join("blobs").join(pin.sha256.to_string());
                (blob.with_added_extension("incomplete"), blob)
            }
        }
    }

    /// The size of what is there of a file under its final name.
    pub(super) fn length(&self, pin: &Pin) -> Result<Option<u64>, FetchError> {
        let (_, file) = self.parts(pin);
        let shown = self.folder().join(&pin.path);
        let length = |path: &Path| match fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Some(found.len())),
            Ok(_) => Err(FetchError::NotAFile { path: path.to_owned() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FetchError::Disk { path: path.to_owned(), source }),
        };
        if let Some(bytes) = length(&shown)? {
            return Ok(Some(bytes));
        }
        let Some(bytes) = length(&file)? else { return Ok(None) };
        // A file of the cache that another revision has already.
        self.show(pin)?;
        Ok(Some(bytes))
    }

    /// Takes away what cannot be the file.
    pub(super) fn remove(&self, pin: &Pin) -> Result<(), FetchError> {
        for path in [self.folder().join(&pin.path), self.parts(pin).1] {
            gone(&path).map_err(disk(&path))?;
        }
        Ok(())
    }

    /// Gives a whole file its name, and its link where there is one.
    pub(super) fn settle(&self, pin: &Pin) -> Result<(), FetchError> {
        let (part, file) = self.parts(pin);
        fs::rename(&part, &file).map_err(disk(&file))?;
        self.show(pin)
    }

    fn show(&self, pin: &Pin) -> Result<(), FetchError> {
        let Layout::HubCache { .. } = &self.0 else { return Ok(()) };
        let link = self.folder().join(&pin.path);
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder).map_err(disk(folder))?;
        }
        // From the link's folder up to the model's: `snapshots`, the revision, and one for each folder of the path.
        let up = "../".repeat(2 + pin.path.matches('/').count());
        gone(&link).map_err(disk(&link))?;
        symlink(format!("{up}blobs/{}", pin.sha256), &link).map_err(disk(&link))
    }
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> FetchError {
    let path = path.to_owned();
    move |source| FetchError::Disk { path, source }
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
