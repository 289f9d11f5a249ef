//! What is accepted, what is refused and with which words, and the numbers of the real model.

// a fixture that cannot be built is a failed test
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fixture;
mod head;
mod keys;
mod ngram;
mod plan;
mod published;
mod real_files;
mod synth;
mod tensors;
