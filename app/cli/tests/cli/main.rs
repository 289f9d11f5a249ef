//! The program from outside: what it prints, what it refuses, what other programs rely on.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod chat;
mod commands;
mod fixture;
mod measure;
mod pty;
#[path = "../../../../engine/text/tests/it/qwen35.rs"]
mod qwen35;
mod refusals;
mod synth;
mod terminal;
mod texts;
mod verify;
