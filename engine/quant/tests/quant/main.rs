//! Formats, activations and dots against the published vectors, and their laws.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a failed unwrap is a failed test

mod activations;
mod dots;
mod formats;
mod laws;
mod rotation;
mod vectors;
