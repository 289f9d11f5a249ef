//! The engine's side of Engine Protocol v1: a worker that answers requests on standard input, over an engine it does not
//! know the making of.
//!
//! [`worker::Worker`] is the protocol: verbs, phases, refusals (engine-protocol-v1.md 6). It speaks to a
//! [`worker::Backend`], of which one is the [`mock`], which computes nothing and says so, and the
//! other [`target::OnTarget`]: a loaded model by its few operations, whichever way it is reached. [`resident`] is the process
//! that holds one loaded.
//!
//! Guaranteed: one response a request, in order, whatever the bytes; an error ends the phase and never the worker; no state
//! of a phase outlives it.

mod args;
mod environment;
mod error;
pub mod mock;
mod mode;
mod program;
pub mod resident;
pub mod target;
pub mod worker;

pub use crate::error::{Error, Malformed};
pub use crate::program::main;
pub use crate::target::one_line;
