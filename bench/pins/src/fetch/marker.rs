//! What vouches for files that were hashed once: their sizes, times and inodes (track-contract.md 5, step 5).

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{FetchError, Item};
use crate::digest::Digest;

/// A marker's name: of the pins, so that one of other pins is not looked at. `.verified-` and 16 digits of the SHA-256 over
/// the pins as compact JSON and a newline.
pub(super) fn name(items: &[Item]) -> String {
    let pins = items.iter().map(|Item { pin, .. }| {
        let path = serde_json::Value::String(pin.path.clone());
        format!(r#"{{"path":{path},"bytes":{},"sha256":"{}"}}"#, pin.bytes.unwrap_or_default(), pin.sha256)
    });
    let text = format!("[{}]\n", pins.collect::<Vec<_>>().join(","));
    let digest = Digest(Sha256::digest(text.as_bytes()).into()).to_string();
    format!(".verified-{}", &digest[..16])
}

/// A line a file, in their order: path, size, time of change in nanoseconds, inode.
fn content(items: &[Item], folder: &Path) -> Result<String, FetchError> {
    let mut text = String::new();
    for Item { pin, .. } in items {
        let full = folder.join(&pin.path);
        let found = fs::metadata(&full).map_err(|source| FetchError::Disk { path: full, source })?;
        let (size, seconds, nanos, inode) = (found.len(), found.mtime(), found.mtime_nsec(), found.ino());
        let _ = writeln!(text, "{} {size} {seconds}.{nanos:09} {inode}", pin.path);
    }
    Ok(text)
}

/// Whether a marker is there and says what is there now.
pub(super) fn holds(marker: &Path, items: &[Item], folder: &Path) -> bool {
    let now = content(items, folder).ok();
    now.is_some() && fs::read_to_string(marker).ok() == now
}

pub(super) fn write(marker: &Path, items: &[Item], folder: &Path) -> Result<(), FetchError> {
    let text = content(items, folder)?;
    let part: PathBuf = marker.with_added_extension("part");
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, marker));
    written.map_err(|source| FetchError::Disk { path: marker.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use crate::{Item, Manifest};

    #[test]
    fn the_real_tracks_marker_has_the_contracts_name() {
        let fixture = include_bytes!("../../../../fixtures/qwen3_8_125b_a6b_track.json");
        let manifest = Manifest::parse("fixture", fixture).unwrap();
        let items: Vec<Item> = manifest.pins().iter().cloned().map(Item::same_path).collect();
        assert_eq!(super::name(&items), ".verified-7084650cd9f115e5");
        assert_ne!(super::name(&items[1..]), super::name(&items));
    }
}
