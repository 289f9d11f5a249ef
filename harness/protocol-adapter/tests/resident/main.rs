//! The resident process as it is run, its clients and its workers (engine-protocol-v1.md 10, track-contract.md 7.10).
//!
//! Most of it over the engine of one number: what is tested is the process, its socket and who speaks through it. With the
//! feature `engine` also over the embedded model: few tokens, since a run of the model is what takes the time.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod attached;
mod booted;
#[cfg(feature = "engine")]
mod chain;
mod client;
#[cfg(feature = "engine")]
mod in_process;
mod lifecycle;
mod wire;
mod workers;

/// "Once upon a time, there was a little fox named": a story the model was trained to tell, so that drafts are accepted,
/// and some are not.
#[cfg(feature = "engine")]
pub(crate) const SEED: [i32; 11] = [1005, 692, 258, 460, 11, 410, 297, 258, 502, 1641, 561];
