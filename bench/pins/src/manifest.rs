//! What is pinned: names, sizes where they are known, hashes.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::digest::Digest;
use crate::error::Error;
use crate::place::is_pipe;
use crate::{json, text};

/// A manifest of more bytes is none: half a million files would fit.
pub const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// One file that is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Relative to the folder, components separated by `/`, none of them `.` or `..`.
    pub path: String,
    /// Size; a manifest of `sha256sum` has none.
    pub bytes: Option<u64>,
    /// SHA-256 of the contents.
    pub sha256: Digest,
}

/// At least one pin, no path twice, no path that leads out of the folder by its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pins: Vec<Pin>,
}

impl Manifest {
    /// Reads a manifest from a file, `-` being standard input. Not more of it than a manifest has.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let manifest = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        if path != Path::new("-") && std::fs::metadata(path).is_ok_and(|found| is_pipe(found.file_type())) {
            return Err(Error::ManifestIsPipe { manifest });
        }
        let bytes =
            if path == Path::new("-") { bounded(io::stdin().lock()) } else { File::open(path).and_then(bounded) };
        let bytes = bytes.map_err(|source| Error::ReadManifest { manifest: manifest.clone(), source })?;
        Self::parse(&manifest, &bytes)
    }

    /// Parses either form: JSON where the first character says so, else the lines of `sha256sum`. `manifest` is the name
    /// for errors.
    pub fn parse(manifest: &str, bytes: &[u8]) -> Result<Self, Error> {
        let manifest = manifest.to_owned();
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(Error::TooLong { manifest, limit: MAX_MANIFEST_BYTES });
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Err(Error::NotUtf8 { manifest, at: error.valid_up_to() }),
        };
        let pins = match text.trim_start().starts_with(['{', '[']) {
            true => json::parse(&manifest, text)?,
            false => text::parse(&manifest, text)?,
        };
        Self::new(&manifest, pins)
    }

    /// Refuses what cannot be a manifest: nothing, a path twice, a path that leads out, sizes that overflow.
    pub fn new(manifest: &str, pins: Vec<Pin>) -> Result<Self, Error> {
        let manifest = || manifest.to_owned();
        if pins.is_empty() {
            return Err(Error::Empty { manifest: manifest() });
        }
        let mut seen = HashSet::new();
        let mut sum = 0u64;
        for Pin { path, bytes, .. } in &pins {
            if let Some(why) = path_fault(path) {
                return Err(Error::Path { manifest: manifest(), path: path.clone(), why });
            }
            if !seen.insert(path) {
                return Err(Error::Twice { manifest: manifest(), path: path.clone() });
            }
            let more = sum.checked_add(bytes.unwrap_or(0));
            sum = more.ok_or_else(|| Error::SizeOverflow { manifest: manifest() })?;
        }
        Ok(Self { pins })
    }

    /// The pins, in the order they are listed.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// As `sha256sum` writes it, so that it can check it too. Sizes are lost.
    pub fn to_text(&self) -> String {
        text::render(&self.pins)
    }

    /// As JSON: `{"files":[{"path","size_bytes","sha256"}]}`. Refuses a pin without a size, or with none to speak of: the
    /// form has no such thing.
    pub fn to_json(&self, manifest: &str) -> Result<String, Error> {
        json::render(manifest, &self.pins)
    }
}

/// One byte more than there may be tells that there are too many.
fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why the words of a path could lead out of the folder or nowhere.
fn path_fault(path: &str) -> Option<&'static str> {
    let components = || path.split('/');
    Some(match () {
        () if path.is_empty() => "is no name",
        () if path.starts_with('/') => "is absolute",
        () if path.contains('\0') => "has a NUL",
        () if components().any(|part| part == "..") => "has a `..`",
        () if components().any(|part| part.is_empty() || part == ".") => "has an empty part or a `.`",
        () => return None,
    })
}
