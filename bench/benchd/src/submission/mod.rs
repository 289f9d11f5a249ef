//! What participants send: packed, reviewed, put in place (track-contract.md 8). The rules are [`bench_core::surface`]'s; here
//! are the archive, the folders and git.
//!
//! Nothing of a submission is looked at before its manifest is: which paths it may bring, and how many bytes, is always said
//! by the tree that it is measured on.

mod archive;
pub(crate) mod overlay;
pub(crate) mod pack;
pub(crate) mod review;
mod tree;

use crate::failure::Failure;

/// A refusal of the review's own, by its name.
fn refuse(name: &'static str, text: impl Into<String>) -> Failure {
    Failure::Review { name, text: text.into() }
}
