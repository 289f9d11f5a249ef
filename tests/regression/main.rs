//! One module per public report of a fault in engines of this kind; the name says which.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

mod llamacpp_28019_dirty_context;
mod strix_llamacpp_34_no_progress;
