//! Everything this crate refuses.

use std::{io, path::PathBuf};

/// Why a file or set was refused, or could not be written. Each text says who, found, wanted, and what to do. In every
/// variant `path` is the file at fault (or the label it was given, if it came from memory).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the texts print
pub enum Error {
    /// The file cannot be read at all; the chain holds the system's reason.
    #[error("{path}: cannot be opened; check the path and its permissions")]
    Open { path: PathBuf, source: io::Error },

    /// A pipe, a device or the like.
    #[error("{path}: is neither a regular file nor a directory; give a .gguf file or a directory that holds one model")]
    NotAFile { path: PathBuf },

    /// A directory without models in it (draft heads, `mtp-*.gguf`, are not models).
    #[error("{path}: holds no model ({drafts} draft heads); expected .gguf files not named mtp-*, download one")]
    NoModel { path: PathBuf, drafts: usize },

    /// A directory with more than one model in it.
    #[error("{path}: holds {} models, expected one; name one of these files instead: {}", models.len(), listed(models))]
    SeveralModels { path: PathBuf, models: Vec<String> },

    /// The first four bytes are wrong.
    #[error("{path}: is not a GGUF file (starts with `{}`, expected `GGUF`); give a .gguf file", found.escape_ascii())]
    NotGguf { path: PathBuf, found: Vec<u8> },

    /// Another version of the container; a byte-swapped 3 is a big-endian file.
    #[error(
        "{path}: GGUF version {found}, expected 3 (little endian); convert the model again with a current converter"
    )]
    UnsupportedVersion { path: PathBuf, found: u32 },

    /// The file ends inside its header.
    #[error("{path}: truncated header: {what} ends at byte {end}, the file has {len}; download it again")]
    TruncatedHeader { path: PathBuf, what: String, end: u64, len: u64 },

    /// A count that the rest of the file cannot hold.
    #[error("{path}: corrupt header: {what} is {found}, the bytes left hold at most {most}; fetch it again")]
    CountTooLarge { path: PathBuf, what: String, found: u64, most: u64 },

    /// More of something than [`crate::limits`] lets a set have.
    #[error("{path}: {what} is {found}, expected at most {most}; use a model that keeps to it")]
    TooMany { path: PathBuf, what: String, found: u64, most: u64 },

    /// More header than [`crate::limits`] lets a set have.
    #[error("{path}: headers pass {most} bytes at {what}, the most for a set; use a model with less metadata")]
    HeaderTooLarge { path: PathBuf, what: String, most: u64 },

    /// The same key twice in one file.
    #[error(
        "{path}: duplicate key `{}`, expected once; the file is corrupt, fetch it again or convert it again",
        shown(key)
    )]
    DuplicateKey { path: PathBuf, key: String },

    /// The same tensor name twice in one set.
    #[error(
        "{path}: duplicate tensor `{}`, already in {first}; expected once in a set, fetch or convert it again",
        shown(tensor)
    )]
    DuplicateTensor { path: PathBuf, tensor: String, first: PathBuf },

    /// A value type number past 12.
    #[error("{path}: corrupt metadata `{}`: value type {found}, expected 0 to 12; download it again", shown(key))]
    UnknownValueType { path: PathBuf, key: String, found: u32 },

    /// An array of arrays.
    #[error(
        "{path}: corrupt metadata `{}`: an array of arrays, expected plain elements; convert the model again",
        shown(key)
    )]
    NestedArray { path: PathBuf, key: String },

    /// A bool that is neither 0 nor 1.
    #[error("{path}: corrupt metadata `{}`: bool {found}, expected 0 or 1; download it again", shown(key))]
    BadBool { path: PathBuf, key: String, found: u8 },

    /// A key, a name or a string value that is not UTF-8.
    #[error("{path}: corrupt metadata: {what} is not UTF-8 (`{found}`); fetch the file again or convert it again")]
    NotUtf8 { path: PathBuf, what: String, found: String },

    /// `general.alignment` is not usable.
    #[error(
        "{path}: bad alignment: `general.alignment` is {found}, expected a power of two of at least 8; convert it again"
    )]
    BadAlignment { path: PathBuf, found: String },

    /// A shape no tensor can have.
    #[error("{path}: tensor `{}`: bad shape {ne:?}: {reason}; fetch the file again or convert it again", shown(tensor))]
    BadShape { path: PathBuf, tensor: String, ne: Vec<u64>, reason: String },

    /// A type number this build does not know.
    #[error(
        "{path}: tensor `{}`: unsupported type {found}, unknown to this build; pick another quantisation",
        shown(tensor)
    )]
    UnsupportedType { path: PathBuf, tensor: String, found: u32 },

    /// An offset off the file's grid.
    #[error(
        "{path}: tensor `{}`: offset {offset} is not a multiple of the alignment {alignment}; convert it again",
        shown(tensor)
    )]
    MisalignedTensor { path: PathBuf, tensor: String, offset: u64, alignment: u64 },

    /// A tensor that the file cannot hold, in a layout that truncation alone does not explain.
    #[error(
        "{path}: tensor `{}` outside the file: offset {offset} + {bytes} bytes, the data part has {len}; fetch it again",
        shown(tensor)
    )]
    TensorOutsideFile { path: PathBuf, tensor: String, offset: u64, bytes: u64, len: u64 },

    /// The layout is sound but the file stops early: an unfinished download.
    #[error(
        "{path}: truncated: has {len} bytes, expected {expected} (tensor `{}` is cut); resume the download",
        shown(tensor)
    )]
    Truncated { path: PathBuf, tensor: String, len: u64, expected: u64 },

    /// Two tensors share bytes.
    #[error(
        "{path}: tensor `{}` overlapping `{}` at offset {offset}; expected disjoint tensors, fetch it again",
        shown(tensor),
        shown(other)
    )]
    OverlappingTensors { path: PathBuf, tensor: String, other: String, offset: u64 },

    /// A shard of a set is not there.
    #[error("{path}: missing shard ({missing} of {count} are missing); download it and put it beside the others")]
    MissingShard { path: PathBuf, missing: u64, count: u64 },

    /// Part of a set under a name that does not say where the other parts are.
    #[error("{path}: is one of {count} shards but is not named <base>-{expected}.gguf; give it back its own name")]
    ShardName { path: PathBuf, count: u64, expected: String },

    /// The name and the header, or two headers, tell different stories.
    #[error(
        "{path}: belongs to another set or was renamed: `{}` is {found}, expected {expected}; fetch the set again",
        shown(key)
    )]
    ForeignShard { path: PathBuf, key: String, found: String, expected: String },

    /// The tables of the shards do not add up.
    #[error("{path}: the set has {found} of {expected} tensors (`split.tensors.count`); download the set again")]
    TensorCount { path: PathBuf, found: u64, expected: u64 },

    /// One shard of a set given as bytes in memory.
    #[error("{path}: is one of {count} shards in memory, expected a complete file; open the set from its directory")]
    SetInMemory { path: PathBuf, count: u64 },

    /// A key that the caller needs.
    #[error(
        "{path}: missing key `{}`, expected {expected}; use a file that has it, or convert the model again",
        shown(key)
    )]
    MissingKey { path: PathBuf, key: String, expected: &'static str },

    /// A key of another kind, or out of the kind's range.
    #[error(
        "{path}: key `{}` is {found}, expected {expected}; use a file that says so, or convert the model again",
        shown(key)
    )]
    WrongKind { path: PathBuf, key: String, found: String, expected: &'static str },

    /// Writing failed; the chain holds the system's reason.
    #[error("{path}: cannot be written, failed at {at}; check the free space and permissions")]
    Write { path: PathBuf, at: String, source: io::Error },

    /// The bytes given for a tensor are not what its shape and type take.
    #[error(
        "{path}: tensor `{}` was given {found} bytes, its shape and type take {expected}; pass exactly those",
        shown(tensor)
    )]
    WrongLength { path: PathBuf, tensor: String, found: u64, expected: u64 },
}

/// A name out of a file, fit for one line of a message: files name keys and tensors as they like, at any length, with any
/// characters.
pub fn shown(name: &str) -> String {
    const SHOWN: usize = 100;
    let mut text = String::new();
    for c in name.chars().take(SHOWN) {
        if matches!(c, '\'' | '"' | '\\') { text.push(c) } else { text.extend(c.escape_debug()) }
    }
    if name.chars().nth(SHOWN).is_some() {
        text += "..";
    }
    text
}

/// Bytes out of a file, fit for one line.
pub(crate) fn shown_bytes(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(40)].escape_ascii().to_string()
}

/// The first few names: a directory may hold hundreds.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}
