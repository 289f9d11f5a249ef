//! The wire of Engine Protocol v1 (engine-protocol-v1.md 2 to 6): requests, responses, and lines of either.
//!
//! Start at [`Request`] and [`Response`]; [`Hello`] is the first response, checked. [`LineReader`] reads lines of bounded
//! length; [`is_blank`] is what a worker skips, [`is_noise`] what the benchmarker skips. An envelope is closed: a key that
//! is unknown, given twice, `null` or of another type refuses the line, and so does an array where an object belongs. What
//! is written is canonical, so reading and writing it again gives the same bytes.
//!
//! The cohort form (engine-protocol-v1.md 12) is not spoken: its keys are unknown keys. Nothing here has a clock, a process
//! or an opinion on a value: that `count` is within [`MAX_RUN_COUNT`] is for the worker to say, with the request's own id.

mod error;
mod hello;
mod line;
mod object;
mod request;
mod response;
mod spec;
mod verb;

pub use crate::{
    error::{Error, HelloDefect},
    hello::Hello,
    line::{Line, LineReader, is_blank, is_noise},
    request::Request,
    response::{ExpertStats, HeadProvenance, ResidentIdentity, Response, RunnerIdentity, TopLogit, VerificationMode},
    spec::{LenientSpec, MtpBlock, SpecConfig, SpecMode},
    verb::Verb,
};

/// What hello's `protocol_version` must be.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest line read, its line end not counted. A prompt of 1024 tokens takes about 6 KB.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// The largest `count` of `free_decode_run` (engine-protocol-v1.md 6, rule 6).
pub const MAX_RUN_COUNT: u32 = 1536;

/// How many `top_logits` there are, exactly.
pub const TOP_LOGITS: usize = 8;

/// The depths a request may name (engine-protocol-v1.md 6, rule 8).
pub const DEPTHS: std::ops::RangeInclusive<u32> = 1..=6;

/// The capability that `free_decode_begin` and `free_decode_run` need.
pub const FREE_RUN_DECODE: &str = "free_run_decode";

/// The id of a response to a line that could not be read.
pub const UNREADABLE_ID: i64 = -1;

/// What a refusal of an unreadable request line starts with (engine-protocol-v1.md 6, rule 5).
pub const UNREADABLE_PREFIX: &str = "request line was not a valid WorkerRequest: ";
