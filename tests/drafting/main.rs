//! Drafting changes speed and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

mod greedy;
mod rollback;
mod sampled;
mod snapshot;
mod synthetic;

use cudafast_cpu::{CpuOptions, CpuTimeline, Precision};
use cudafast_tests::Bound;

/// A one-thread timeline, int8: tests run beside each other.
fn timeline(bound: &Bound) -> CpuTimeline {
    bound.timeline_with(&CpuOptions { threads: 1, precision: Precision::Int8, ..CpuOptions::default() })
}
