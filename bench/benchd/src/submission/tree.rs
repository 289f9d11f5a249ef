//! The editable paths of a working copy, and what they were at a commit.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bench_core::manifest::Manifest;
use bench_core::surface::{Entry, EntryKind};

use crate::checkout::Checkout;
use crate::failure::Failure;

/// Everything on the disk below the editable paths, in the order of its paths; nothing is followed. Ignored files too: a stale
/// build tree is refused, not left out.
pub(super) fn entries(root: &Path, manifest: &Manifest) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let mut open: Vec<String> = manifest.editable.iter().map(|path| path.as_str().to_owned()).collect();
    while let Some(path) = open.pop() {
        let full = root.join(&path);
        let failed = |source| Failure::Read { path: full.clone(), source };
        let found = match fs::symlink_metadata(&full) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        let kind = match found.file_type() {
            kind if kind.is_symlink() => EntryKind::Symlink,
            kind if kind.is_dir() => EntryKind::Folder,
            kind if kind.is_file() && found.nlink() > 1 => EntryKind::HardLink,
            kind if kind.is_file() => EntryKind::File,
            _ => EntryKind::Other,
        };
        if kind == EntryKind::Folder {
            for entry in fs::read_dir(&full).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let Some(name) = name.to_str() else {
                    return Err(Failure::NotAFile { path: full.join(name), kind: "named in bytes that are no text" });
                };
                open.push(format!("{path}/{name}"));
            }
        }
        entries.push(Entry { path, kind, bytes: found.len(), mode: found.mode() });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Paths and sizes of the files.
pub(super) fn sizes(files: &[&Entry]) -> Vec<(String, u64)> {
    files.iter().map(|file| (file.path.clone(), file.bytes)).collect()
}

/// Files below `paths` as they are committed.
pub(super) fn committed(checkout: &Checkout, commit: &str, paths: &[&str]) -> Result<Vec<Entry>, Failure> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let listed = checkout.git("ls-tree", &[&["-r", "-l", "-z", "--full-tree", commit, "--"], paths].concat())?;
    let text = String::from_utf8_lossy(&listed);
    // MODE TYPE OBJECT SIZE\tPATH; the size is padded, and `-` where there is none.
    let entry = |line: &str| -> Option<Entry> {
        let (facts, path) = line.split_once('\t')?;
        let mut facts = facts.split_whitespace();
        let mode = facts.next()?;
        let kind = match mode {
            "100644" | "100755" => EntryKind::File,
            "120000" => EntryKind::Symlink,
            _ => EntryKind::Other,
        };
        let bytes = facts.nth(2)?.parse().unwrap_or(0);
        Some(Entry { path: path.into(), kind, bytes, mode: if mode == "100755" { 0o755 } else { 0o644 } })
    };
    Ok(text.split('\0').filter_map(entry).collect())
}

/// The editable paths, as git takes them.
pub(super) fn editable(manifest: &Manifest) -> Vec<&str> {
    manifest.editable.iter().map(|path| path.as_str()).collect()
}
