//! The JSON forms: a hub's `manifest.json`, `{"files":[{"path","size_bytes","sha256"}]}` (mooney.md 1), and the pins of a
//! track's fixture, `{"target":{"files":[{"path","bytes","sha256"}]}}` (track-contract.md 3). Other keys are not ours.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::manifest::Pin;

#[derive(Deserialize)]
struct Document {
    files: Option<Vec<Entry>>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    files: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(alias = "bytes")]
    size_bytes: u64,
    sha256: String,
}

pub(crate) fn parse(manifest: &str, text: &str) -> Result<Vec<Pin>, Error> {
    let manifest = || manifest.to_owned();
    let document: Document =
        serde_json::from_str(text).map_err(|source| Error::Json { manifest: manifest(), source })?;
    let entries = match (document.files, document.target.and_then(|target| target.files)) {
        (Some(entries), None) | (None, Some(entries)) => entries,
        (None, None) => return Err(Error::Lists { manifest: manifest(), found: "no list of files" }),
        (Some(_), Some(_)) => return Err(Error::Lists { manifest: manifest(), found: "two lists of files" }),
    };
    let pin = |Entry { path, size_bytes, sha256 }| {
        if size_bytes == 0 {
            return Err(Error::NoBytes { manifest: manifest(), path });
        }
        match sha256.parse() {
            Ok(sha256) => Ok(Pin { path, bytes: Some(size_bytes), sha256 }),
            Err(source) => Err(Error::Hash { manifest: manifest(), path, source }),
        }
    };
    entries.into_iter().map(pin).collect()
}

#[derive(Serialize)]
struct Written<'a> {
    files: Vec<WrittenEntry<'a>>,
}

#[derive(Serialize)]
struct WrittenEntry<'a> {
    path: &'a str,
    size_bytes: u64,
    sha256: String,
}

pub(crate) fn render(manifest: &str, pins: &[Pin]) -> Result<String, Error> {
    let mut files = Vec::with_capacity(pins.len());
    for Pin { path, bytes, sha256 } in pins {
        let Some(size_bytes @ 1..) = *bytes else {
            return Err(Error::NoBytes { manifest: manifest.to_owned(), path: path.clone() });
        };
        files.push(WrittenEntry { path, size_bytes, sha256: sha256.to_string() });
    }
    let mut text = serde_json::to_string_pretty(&Written { files })
        .map_err(|source| Error::Json { manifest: manifest.to_owned(), source })?;
    text.push('\n');
    Ok(text)
}
