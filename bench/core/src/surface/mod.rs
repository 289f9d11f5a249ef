//! What a submission may hold: which paths, what kind of entries, how many bytes (track-contract.md 8, benchd.md 14).
//!
//! One rule for archives, trees and changes. [`review`] looks at entries, whatever they come from; [`expect_whole`] at what
//! they replace; [`ByteBudget::judge`] at sizes. Each names the first entry that does not pass.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::manifest::{ByteBudget, Manifest};
use crate::paths::{BadPath, SurfacePath};
use crate::refusal::Refusal;

/// Most bytes of an archive.
pub const MAX_ARCHIVE_BYTES: u64 = 25 << 20;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder; it says nothing.
    Folder,
    /// A symbolic link.
    Symlink,
    /// A second name of another entry.
    HardLink,
    /// A device, a pipe, a socket.
    Other,
}

/// An entry of an archive or a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As written, `/` between segments.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Of a file.
    pub bytes: u64,
    /// Its permission bits; those for setuid and setgid among them.
    pub mode: u32,
}

/// Why a submission is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SurfaceError {
    /// A path that could lead elsewhere.
    #[error("{}: {path:?} {why}", Refusal::SubmissionPathEscapes)]
    Path {
        /// As written.
        path: String,
        /// What is wrong.
        why: BadPath,
    },
    /// A path that no submission replaces.
    #[error("{}: {path} is below none of editablePaths; leave it out", Refusal::EditOutsideSurface)]
    Outside {
        /// Which.
        path: String,
    },
    /// An entry that is no regular file.
    #[error("{}: {path} is {what}; submit regular files alone", Refusal::SubmissionEntryNotAFile)]
    NotAFile {
        /// Which.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// One name for two entries, on a file system that ignores letter case too.
    #[error("{}: {path} is there twice, letter case aside; leave one", Refusal::SubmissionEntryTwice)]
    Twice {
        /// Which.
        path: String,
    },
    /// What is made and not written.
    #[error("{}: {path} is {what}; leave it out", Refusal::SubmissionHoldsArtifact)]
    Artifact {
        /// Which.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// An editable path without a file, which would be deleted.
    #[error(
        "{}: {path} has no file, and is not one of optionalEditablePaths; a submission brings the whole of it",
        Refusal::SubmissionPathMissing
    )]
    Missing {
        /// Which.
        path: String,
    },
    /// No file at all.
    #[error("{}: the editable paths hold no file", Refusal::SubmissionPathMissing)]
    Nothing,
    /// A file over its cap.
    #[error("{}: {path} has {bytes} bytes, {cap} allows {most}", Refusal::SurfaceBudgetExceeded)]
    File {
        /// Which.
        path: String,
        /// Its size.
        bytes: u64,
        /// The cap's key.
        cap: &'static str,
        /// Its value.
        most: u64,
    },
    /// All files over their cap.
    #[error("{}: the files have {bytes} bytes, {cap} allows {most}", Refusal::SurfaceBudgetExceeded)]
    Total {
        /// Together.
        bytes: u64,
        /// The cap's key.
        cap: &'static str,
        /// Its value.
        most: u64,
    },
    /// Larger than the base by too much.
    #[error(
        "{}: the files have {bytes} bytes more than the base, maxGrowthBytes allows {most}",
        Refusal::SurfaceBudgetExceeded
    )]
    Growth {
        /// More than before.
        bytes: u64,
        /// The cap.
        most: u64,
    },
    /// An archive over its cap.
    #[error(
        "{}: the archive has {bytes} bytes, a submission may have {MAX_ARCHIVE_BYTES}",
        Refusal::SurfaceBudgetExceeded
    )]
    Archive {
        /// Its size.
        bytes: u64,
    },
}

impl SurfaceError {
    /// The name that it refuses by.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Path { .. } => Refusal::SubmissionPathEscapes,
            Self::Outside { .. } => Refusal::EditOutsideSurface,
            Self::NotAFile { .. } => Refusal::SubmissionEntryNotAFile,
            Self::Twice { .. } => Refusal::SubmissionEntryTwice,
            Self::Artifact { .. } => Refusal::SubmissionHoldsArtifact,
            Self::Missing { .. } | Self::Nothing => Refusal::SubmissionPathMissing,
            Self::File { .. } | Self::Total { .. } | Self::Growth { .. } | Self::Archive { .. } => {
                Refusal::SurfaceBudgetExceeded
            }
        }
    }
}

/// setuid and setgid.
const PRIVILEGED: u32 = 0o6000;

/// Reviews the entries of a submission, each by itself, in their order. Gives its files.
pub fn review<'a>(manifest: &Manifest, entries: &'a [Entry]) -> Result<Vec<&'a Entry>, SurfaceError> {
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for entry in entries {
        let path = || entry.path.clone();
        let legal = SurfacePath::parse(&entry.path).map_err(|why| SurfaceError::Path { path: path(), why })?;
        if entry.kind != EntryKind::Folder && !manifest.editable.iter().any(|editable| editable.contains(&legal)) {
            return Err(SurfaceError::Outside { path: path() });
        }
        let not_a_file = |what| Err(SurfaceError::NotAFile { path: path(), what });
        match entry.kind {
            // A folder on the way to the surface is as good as one in it; it brings nothing.
            EntryKind::Folder => {
                artifact(&entry.path)?;
                continue;
            }
            EntryKind::Symlink => return not_a_file("a symbolic link"),
            EntryKind::HardLink => return not_a_file("a hard link"),
            EntryKind::Other => return not_a_file("a device, a pipe or a socket"),
            EntryKind::File if entry.mode & PRIVILEGED != 0 => return not_a_file("setuid or setgid"),
            EntryKind::File => {}
        }
        if !seen.insert(legal.as_str().to_uppercase().to_lowercase()) {
            return Err(SurfaceError::Twice { path: path() });
        }
        artifact(&entry.path)?;
        files.push(entry);
    }
    Ok(files)
}

/// Refuses a submission that would delete an editable path: each is replaced as a whole.
pub fn expect_whole(manifest: &Manifest, files: &[&Entry]) -> Result<(), SurfaceError> {
    for path in manifest.editable.iter().filter(|path| !manifest.optional.contains(path)) {
        if !files.iter().any(|file| path.holds(&file.path)) {
            return Err(SurfaceError::Missing { path: path.as_str().to_owned() });
        }
    }
    Ok(())
}

/// Refuses what is built, measured or recorded, by its name.
fn artifact(path: &str) -> Result<(), SurfaceError> {
    let name = path.rsplit('/').find(|segment| !segment.is_empty()).unwrap_or_default().to_lowercase();
    let is_json = |start: &str| name.starts_with(start) && name.contains(".json");
    let what = if path
        .split('/')
        .any(|segment| matches!(segment.to_lowercase().as_str(), "target" | ".build" | ".build-worker"))
    {
        "part of a build tree"
    } else if path.split('/').any(|segment| segment.eq_ignore_ascii_case(".git")) {
        "part of a repository's own files"
    } else if name.ends_with(".gguf") || name.ends_with(".safetensors") {
        "weights"
    } else if name.ends_with(".golden.json") {
        "a golden"
    } else if is_json("score.") || is_json("benchmark-integrity") {
        "a score file"
    } else {
        return Ok(());
    };
    Err(SurfaceError::Artifact { path: path.to_owned(), what })
}

impl ByteBudget {
    /// Holds the files of a surface to the caps, each file before all of them, and their growth over the base's. `beside` counts
    /// towards the total alone: the text of a change, where that is what is submitted. Exactly a cap passes.
    pub fn judge(&self, files: &[(String, u64)], base: &[(String, u64)], beside: u64) -> Result<(), SurfaceError> {
        if files.is_empty() {
            return Err(SurfaceError::Nothing);
        }
        let is_exempt = |path: &str| self.exempt.iter().any(|exempt| exempt.holds(path));
        for (path, bytes) in files {
            let (cap, most) = match is_exempt(path) {
                true => ("exemptPathMaxFileBytes", self.exempt_file),
                false => ("maxFileBytes", self.file),
            };
            if *bytes > most {
                return Err(SurfaceError::File { path: path.clone(), bytes: *bytes, cap, most });
            }
        }
        let sum = |files: &[(String, u64)], exempt: bool| {
            let of = files.iter().filter(|(path, _)| is_exempt(path) == exempt);
            of.fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
        };
        for (exempt, cap, most, beside) in
            [(false, "maxTotalBytes", self.total, beside), (true, "exemptPathMaxBytes", self.exempt_total, 0)]
        {
            let bytes = sum(files, exempt).saturating_add(beside);
            if bytes > most {
                return Err(SurfaceError::Total { bytes, cap, most });
            }
        }
        let bytes = sum(files, false).saturating_sub(sum(base, false));
        match bytes > self.growth {
            true => Err(SurfaceError::Growth { bytes, most: self.growth }),
            false => Ok(()),
        }
    }
}

/// Refuses an archive that is too large.
pub fn expect_archive_size(bytes: u64) -> Result<(), SurfaceError> {
    if bytes > MAX_ARCHIVE_BYTES { Err(SurfaceError::Archive { bytes }) } else { Ok(()) }
}
