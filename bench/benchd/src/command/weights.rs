//! `validate-weights` and `weights-digest` (benchd.md 13).

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bench_core::ContentPin;
use bench_core::contract::Target;
use bench_core::digests::{FolderDigest, FolderIdentity};
use serde::Serialize;

use crate::args::{DigestArgs, WeightsArgs};
use crate::documents;
use crate::failure::Failure;
use crate::output;

/// Most bytes where neither a flag nor a contract says (benchd.md 3).
const DEFAULT_CAP: u64 = 25 << 30;

/// What a folder that passed holds.
#[derive(Serialize)]
struct Valid {
    valid: bool,
    files: usize,
    bytes: u64,
    pinned_files: usize,
}

/// A regular file below a folder.
struct File {
    /// Relative, `/` between segments.
    path: String,
    bytes: u64,
}

pub(crate) fn validate(args: &WeightsArgs) -> Result<(), Failure> {
    let target = match &args.contract {
        Some(path) => documents::contract(path)?.target,
        None => None,
    };
    let cap = cap(args.max_bytes.as_deref(), target.as_ref())?;
    let files = walk(&args.weights, cap)?;
    let pinned = target.map(|target| target.files).unwrap_or_default();
    for file in &pinned {
        let refused = |what: String| Failure::Weights { path: args.weights.join(&file.path), what };
        let found = files.iter().find(|found| found.path == file.path);
        let found = found.ok_or_else(|| refused("pinned checkpoint file is missing; fetch it".into()))?;
        if found.bytes != file.pin.bytes {
            let (staged, pinned) = (found.bytes, file.pin.bytes);
            return Err(refused(format!("byte-count mismatch: staged {staged}, pinned {pinned}; fetch it again")));
        }
        let staged = hashed(&args.weights.join(&file.path))?.sha256;
        if staged != file.pin.sha256 {
            let pinned = file.pin.sha256;
            return Err(refused(format!("sha256 mismatch: staged {staged}, pinned {pinned}; fetch it again")));
        }
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    output::json(&Valid { valid: true, files: files.len(), bytes, pinned_files: pinned.len() })
}

pub(crate) fn digest(args: &DigestArgs) -> Result<(), Failure> {
    output::line(&identity(&args.weights)?.to_string())
}

/// The identity of a folder of weights, or of one file alone.
pub(crate) fn identity(weights: &Path) -> Result<FolderIdentity, Failure> {
    let mut digest = FolderDigest::default();
    if weights.is_file() {
        let name = weights.file_name().unwrap_or_default().to_string_lossy();
        let pin = hashed(weights)?;
        digest.add(&name, pin.bytes, pin.sha256)?;
        return Ok(digest.finish());
    }
    for file in walk(weights, None)? {
        let pin = hashed(&weights.join(&file.path))?;
        digest.add(&file.path, pin.bytes, pin.sha256)?;
    }
    Ok(digest.finish())
}

/// `None`: any number of bytes.
fn cap(given: Option<&str>, target: Option<&Target>) -> Result<Option<u64>, Failure> {
    let pinned =
        || target.map(|target| target.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.pin.bytes)));
    match given.map(str::trim) {
        None | Some("") => Ok(Some(pinned().unwrap_or(DEFAULT_CAP))),
        Some("0" | "none" | "unlimited") => Ok(None),
        Some(text) => {
            let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
            number.map(Some).ok_or_else(|| Failure::Cap { found: text.to_owned() })
        }
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::WeightsUnreadable { path: path.to_owned(), source }
}

/// Every file below a folder. Refuses a link and whatever else is no regular file, and more bytes than the cap while still
/// counting.
fn walk(weights: &Path, cap: Option<u64>) -> Result<Vec<File>, Failure> {
    let refused = |path: PathBuf, what: &str| Failure::Weights { path, what: what.to_owned() };
    if !fs::symlink_metadata(weights).map_err(unreadable(weights))?.is_dir() {
        return Err(refused(weights.to_owned(), "is no real folder; a link to one does not do"));
    }
    let (mut files, mut sum) = (Vec::new(), 0_u64);
    let mut open = vec![String::new()];
    while let Some(inside) = open.pop() {
        let at = weights.join(&inside);
        for entry in fs::read_dir(&at).map_err(unreadable(&at))? {
            let entry = entry.map_err(unreadable(&at))?;
            let full = entry.path();
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| refused(full.clone(), "has a name that is no text"))?;
            let path = if inside.is_empty() { name.to_owned() } else { format!("{inside}/{name}") };
            let found = fs::symlink_metadata(&full).map_err(unreadable(&full))?;
            if found.is_dir() {
                open.push(path);
            } else if found.is_file() {
                sum = sum.saturating_add(found.len());
                if let Some(cap) = cap.filter(|cap| sum > *cap) {
                    let what = format!("the folder holds more than {cap} bytes; see --max-bytes");
                    return Err(Failure::Weights { path: weights.to_owned(), what });
                }
                files.push(File { path, bytes: found.len() });
            } else {
                return Err(refused(full, "is a link or no regular file; put the file itself there"));
            }
        }
    }
    if files.is_empty() {
        return Err(refused(weights.to_owned(), "holds no file"));
    }
    Ok(files)
}

fn hashed(path: &Path) -> Result<ContentPin, Failure> {
    // Nothing ends the reading early, so there is always an answer.
    let hashed = bench_pins::sha256(path, &|_| ControlFlow::Continue(()))
        .and_then(|found| found.ok_or_else(|| io::Error::other("ended before its end")));
    let hashed = hashed.map_err(unreadable(path))?;
    Ok(ContentPin { bytes: hashed.bytes, sha256: hashed.sha256 })
}
