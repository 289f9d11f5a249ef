//! Pinned files: a manifest of names, sizes and SHA-256, and whether a folder holds them.
//!
//! Start at [`Manifest::read`], then [`Survey::of`] and [`Survey::check`]; [`Folder::walk`] makes a manifest. A [`Manifest`]
//! names at least one file, none twice, none outside the folder. What a manifest may not list (a directory, a pipe, a link
//! that leads out) is an [`Error`] before a byte is hashed; what is merely not as listed is a [`State`] of its file.
//!
//! Knows no engine: it says what the engine's files are before the engine is trusted with them.

mod digest;
mod error;
mod hash;
mod json;
mod make;
mod manifest;
mod place;
mod survey;
mod text;

pub use crate::{
    digest::{BadDigest, Digest},
    error::Error,
    hash::{Hashed, OnRead, sha256},
    make::Folder,
    manifest::{MAX_MANIFEST_BYTES, Manifest, Pin},
    survey::{State, Survey},
};
