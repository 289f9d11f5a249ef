//! Whether pinned files were touched during a run. Digests say which bytes they are; this says that they stayed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::MachineError;

/// What the file system says of some files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Stamp)>);

/// Writing, replacing and renaming each change one of these, and the last cannot be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamps {
    /// Of files that are there.
    pub fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, MachineError> {
        let stamped = paths.into_iter().map(|path| {
            let path = path.as_ref().to_owned();
            match stamp(&path) {
                Ok(stamp) => Ok((path, stamp)),
                Err(source) => Err(MachineError::NoStamp { path, source }),
            }
        });
        Ok(Self(stamped.collect::<Result<_, _>>()?))
    }

    /// Refuses files that are not as they were, though they have the same size.
    pub fn expect_unchanged(&self) -> Result<(), MachineError> {
        match self.0.iter().find(|(path, before)| stamp(path).ok() != Some(*before)) {
            Some((path, _)) => Err(MachineError::FileChanged { path: path.clone() }),
            None => Ok(()),
        }
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let found = fs::metadata(path)?;
    Ok(Stamp {
        device: found.dev(),
        inode: found.ino(),
        bytes: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_swapped_for_one_of_the_same_size_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("head"), "aaaa").unwrap();
        fs::write(path("other"), "bbbb").unwrap();
        let stamps = Stamps::of([path("head")]).unwrap();
        stamps.expect_unchanged().unwrap();
        fs::rename(path("other"), path("head")).unwrap();
        assert_eq!(stamps.expect_unchanged().unwrap_err().name(), "PINNED-FILE-CHANGED");
        let stamps = Stamps::of([path("head")]).unwrap();
        fs::remove_file(path("head")).unwrap();
        assert!(stamps.expect_unchanged().is_err());
        assert!(Stamps::of([path("head")]).is_err());
    }
}
