//! A submission's archive: tar in gzip. Read twice from memory: first for what its entries are, then, when all of them may be
//! there, for what is in them.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bench_core::manifest::Manifest;
use bench_core::surface::{Entry, EntryKind, MAX_ARCHIVE_BYTES, expect_archive_size, expect_whole, review};
use bench_core::{ContentPin, sha256};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tar::{Archive, Builder, EntryType, Header};

use super::tree::sizes;
use crate::failure::Failure;

/// Most entries of an archive; each takes a header's 512 bytes, packed to almost nothing.
const MAX_ENTRIES: usize = 65_536;
/// What names, headers and padding of so many may take beside the files.
const MAX_BETWEEN: u64 = 128 << 20;

/// An archive that passed its review.
pub(super) struct Submission {
    path: PathBuf,
    packed: Vec<u8>,
    /// Its files, in the archive's order.
    pub(super) files: Vec<Entry>,
    limit: u64,
}

impl Submission {
    /// Reads and reviews an archive. `base` are the files it replaces, with their sizes.
    pub(super) fn open(path: &Path, manifest: &Manifest, base: &[(String, u64)]) -> Result<Self, Failure> {
        let failed = |source| Failure::Read { path: path.to_owned(), source };
        let mut packed = Vec::new();
        fs::File::open(path)
            .and_then(|file| file.take(MAX_ARCHIVE_BYTES + 1).read_to_end(&mut packed))
            .map_err(failed)?;
        expect_archive_size(packed.len() as u64)?;
        let budget = &manifest.budget;
        let limit = budget.total.saturating_add(budget.exempt_total).saturating_add(MAX_BETWEEN);
        let submission = Self { path: path.to_owned(), packed, files: Vec::new(), limit };
        let mut entries = Vec::new();
        submission.each(|entry, _| {
            entries.push(entry);
            Ok(())
        })?;
        let files = review(manifest, &entries)?;
        expect_whole(manifest, &files)?;
        budget.judge(&sizes(&files), base, 0)?;
        let files = files.into_iter().cloned().collect();
        Ok(Self { files, ..submission })
    }

    /// The archive itself.
    pub(super) fn pin(&self) -> ContentPin {
        ContentPin { bytes: self.packed.len() as u64, sha256: sha256(&self.packed) }
    }

    /// Writes every file below a folder that is empty.
    pub(super) fn unpack(&self, into: &Path) -> Result<(), Failure> {
        self.each(|entry, content| {
            if entry.kind != EntryKind::File {
                return Ok(());
            }
            let path = into.join(&entry.path);
            let failed = |source| Failure::Write { path: path.clone(), source };
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            let mut file = fs::File::create_new(&path).map_err(failed)?;
            io::copy(content, &mut file).map_err(failed)?;
            let mode = if entry.mode & 0o100 == 0 { 0o644 } else { 0o755 };
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&path, mode).map_err(failed)
        })
    }

    fn each(&self, mut look: impl FnMut(Entry, &mut dyn Read) -> Result<(), Failure>) -> Result<(), Failure> {
        let broken = |what: String| Failure::Archive { path: self.path.clone(), what };
        let not_one = |error: io::Error| broken(format!("is no whole tar in gzip ({error})"));
        let mut unpacked = Archive::new(GzDecoder::new(self.packed.as_slice()).take(self.limit));
        for (entry, count) in unpacked.entries().map_err(not_one)?.zip(1..) {
            let mut entry = entry.map_err(not_one)?;
            if count > MAX_ENTRIES {
                return Err(broken(format!("has more than {MAX_ENTRIES} entries")));
            }
            let name = entry.path_bytes().into_owned();
            let Ok(path) = String::from_utf8(name) else {
                return Err(broken(format!("entry {count} is named in bytes that are no text")));
            };
            let kind = match entry.header().entry_type() {
                EntryType::Regular => EntryKind::File,
                EntryType::Directory => EntryKind::Folder,
                EntryType::Symlink => EntryKind::Symlink,
                EntryType::Link => EntryKind::HardLink,
                _ => EntryKind::Other,
            };
            let mode = entry.header().mode().map_err(not_one)?;
            look(Entry { path, kind, bytes: entry.size(), mode }, &mut entry)?;
        }
        // The checksum stands at the end.
        io::copy(&mut unpacked.into_inner(), &mut io::sink()).map(drop).map_err(not_one)
    }
}

/// The archive of a tree's files: the same bytes for the same contents, whenever and by whomever it is made.
pub(super) fn pack(root: &Path, files: &[&Entry]) -> Result<Vec<u8>, Failure> {
    let failed = |source| Failure::Write { path: "the archive".into(), source };
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for file in files {
        let path = root.join(&file.path);
        let content = fs::read(&path).map_err(|source| Failure::Read { path, source })?;
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(if file.mode & 0o100 == 0 { 0o644 } else { 0o755 });
        archive.append_data(&mut header, &file.path, content.as_slice()).map_err(failed)?;
    }
    let mut gzip = archive.into_inner().map_err(failed)?;
    gzip.flush().map_err(failed)?;
    gzip.finish().map_err(failed)
}
