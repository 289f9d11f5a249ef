//! The container as its users meet it. One program: each would compile and link the same crates again.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod layouts;
mod real_files;
mod refusals;
mod regression;
mod roundtrip;
mod sets;
mod writer;
