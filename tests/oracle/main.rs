//! Against the oracle: an independent implementation's outputs for two random models and three prompts each.
//!
//! Bound 1e-5 (largest difference over largest value) for f32: the oracle's own two implementations agree to 3e-6, and its
//! smallest deliberate mistake moves logits by 2e-5. All integers must be equal.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

mod backend;
mod draft;
mod int8;
mod reference;

/// See the module documentation.
const F32_BOUND: f64 = 1e-5;
