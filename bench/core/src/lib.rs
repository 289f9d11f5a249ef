//! The benchmark's rules as functions: bytes and values in, verdicts out. No file, no clock, no process.
//!
//! | document | read by |
//! |---|---|
//! | golden, tape (benchd.md 4) | [`golden::Golden::load`], [`tape::Tape::load`] |
//! | track fixture (benchd.md 5, track-contract.md 3) | [`contract::Contract::parse`] |
//! | `benchmark.json` (track-contract.md 2) | [`manifest::Manifest::parse`], checked by [`manifest::lint`] |
//! | `mtp-head.manifest.json` (track-contract.md 4) | [`declaration::Declaration::parse`] |
//!
//! | verdict | given by |
//! |---|---|
//! | does the engine compute what the golden says (benchd.md 11) | [`correctness::run_conformance`] |
//! | what must a timed leg emit, and where did it not (benchd.md 6) | [`timed::TimedOracle`] |
//! | may a timed stream leave its oracle so far (benchd.md 10) | [`fidelity::judge_timed`] |
//! | what does a run of this kind need (benchd.md 2.1) | [`mode::Mode`], [`contract::Contract::demands`] |
//! | is this box what it was calibrated to (benchd.md 8) | [`calibration::BoxCalibration`] |
//! | what is a candidate worth, and may it be (benchd.md 9) | [`score::Rule`] |
//! | what was sealed, and does it hold (benchd.md 15) | [`seal::Seal`] |
//! | may a submission hold this (track-contract.md 8) | [`surface::review`] |
//! | what a sample says | [`stats`] |
//! | which bytes were these (benchd.md 13) | [`digests`] |
//!
//! Goldens are made by [`golden::author`] and [`golden::per_depth_oracle`]. Whoever drives a worker implements
//! [`engine::Engine`]; recording, the gate and the replay then run on it. A refusal with a name ([`Refusal`]) has it in front
//! of its text and from its error's `refusal()`.
//!
//! What is read is closed: unknown and repeated keys, floats for integers, bytes behind the document are refused. A value
//! of these types has passed its checks; nothing later asks again.

pub mod calibration;
pub mod contract;
pub mod correctness;
pub mod declaration;
pub mod digests;
pub mod engine;
pub mod fidelity;
mod fields;
pub mod golden;
mod json;
pub mod manifest;
pub mod mode;
pub mod paths;
mod pin;
mod refusal;
pub mod score;
pub mod seal;
pub mod stats;
pub mod surface;
pub mod tape;
#[cfg(test)]
mod testing;
pub mod timed;

pub use bench_pins::Digest;

pub use crate::{
    fields::FieldError,
    pin::{ContentPin, Provenance, sha256},
    refusal::Refusal,
};
