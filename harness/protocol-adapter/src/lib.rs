//! The engine's side of Engine Protocol v1: a worker that answers requests on standard input, over an engine it does not
//! know the making of.
//!
//! [`worker::Worker`] is the protocol: verbs, phases, refusals (engine-protocol-v1.md 6). It speaks to a
//! [`worker::Backend`], of which one is the [`mock`], which computes nothing and says so.
//!
//! Guaranteed: one response a request, in order, whatever the bytes; an error ends the phase and never the worker; no state
//! of a phase outlives it.

mod error;
pub mod mock;
pub mod worker;

pub use crate::error::{Error, Malformed};
