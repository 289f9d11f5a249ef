//! Positions, drafts and acceptance: everything between a device that runs rows and a caller who wants text.
//!
//! A device implements [`Backend`] and [`Timeline`]; callers open a [`Session`] on an [`Engine`] and call
//! [`Session::generate`], which reuses the longest known prefix of the prompt, prefills the rest, then runs rounds of the
//! speculative cycle (qwen4exp.md 10) and streams tokens as they are known.
//!
//! Guaranteed: drafting changes speed and nothing else, greedy or sampled (see [`sampler`]); every round commits at least
//! one token or the call ends with an error; no draft is verified past the requested length; after any return the session
//! stands where a serial run would; ids that stand for nothing are never chosen.

mod backend;
pub mod checks;
pub mod depth;
mod engine;
mod error;
mod generation;
mod logprobs;
mod prefix;
pub mod sampler;
mod session;
mod snapshot;
mod timings;
mod vocab;

pub use crate::backend::{
    Backend, BackendError, CHUNK_TOKENS, CancelFlag, LogitEdit, LogitRows, MAX_DEPTH, Round, RoundRequest, Timeline,
    TimelineOptions, TokenId,
};
pub use crate::depth::{DepthChooser, DepthPolicy, RoundCost};
pub use crate::engine::Engine;
pub use crate::error::Error;
pub use crate::generation::{Finish, GenEvent, GenerateOptions, Generation, Prefill, RoundStat};
pub use crate::logprobs::{MAX_TOP_LOGPROBS, TokenLogprobs};
pub use crate::sampler::{Penalties, SamplerScratch, Sampling};
pub use crate::session::{Session, SessionOptions};
pub use crate::snapshot::{AttentionState, CacheRows, GdnState, LayerState, Snapshot};
pub use crate::timings::Timings;
pub use crate::vocab::{chat_template, tokenizer};
