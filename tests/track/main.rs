//! The embedded track end to end: benchd, workers in their sandbox, the resident, the embedded model.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

mod faults;
mod fixture;
mod iterate;
mod recording;
