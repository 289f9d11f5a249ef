//! The worker: request lines in, response lines out (engine-protocol-v1.md 2, 3 and 6).
//!
//! Start at [`Worker::new`], then [`Worker::serve`]. A request is read, its fields are checked, then the phase, then the
//! engine is asked; the first thing wrong is what the refusal says.

mod backend;
mod fields;
mod phase;
mod serve;
mod verbs;

pub use crate::worker::{
    backend::{Backend, Depth, FreeRun, Identity, TokenId},
    phase::PhaseKind,
    serve::{Worker, make_nonce},
};
