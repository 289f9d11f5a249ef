//! What a device must do, at the level of the model: run these rows, run one round, move a state.
//!
//! A [`Backend`] holds the bound weights on one device; a [`Timeline`] is the device half of a session: one sequence of
//! tokens with all state between them (qwen4exp.md 8). Nothing here names an operator, so a backend may fuse anything.
//!
//! A timeline at position `p` holds the state after tokens `0..p`, the residual row `R[p-1]` and the logits of that row.
//! Draft-head cache row `i` joins `R[i]` with token `i + 1`, so rows `0..p-1` are fixed by the tokens and row `p - 1` waits
//! for the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudafast_model::{Hyperparams, MemoryPlan};

use crate::logprobs::TokenLogprobs;
use crate::sampler::Sampling;
use crate::snapshot::Snapshot;

/// A vocabulary id.
pub type TokenId = u32;

/// Deepest draft a round may verify; a round runs at most `MAX_DEPTH + 1` rows.
pub const MAX_DEPTH: usize = 6;

/// Absolute positions at which prefill is cut and snapshots may be taken, in tokens: the chunk of the chunked delta net.
pub const CHUNK_TOKENS: usize = 64;

/// Raised by another thread to end work early; read per round and per prefill chunk.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Asks the running call to stop at its next check.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Makes the flag usable for a next call.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a backend could not do what was asked, and in what state that leaves the timeline.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The timeline is unchanged.
    #[error("{needed} tokens do not fit the context of {limit}; ask for fewer, or open a longer one")]
    ContextFull {
        /// Tokens the call would have made.
        needed: usize,
        /// Tokens the timeline was opened for.
        limit: usize,
    },
    /// The timeline is unchanged.
    #[error("token id {id} is outside the vocabulary of {vocab}")]
    TokenOutsideVocabulary {
        /// The offending id.
        id: TokenId,
        /// Vocabulary size.
        vocab: usize,
    },
    /// The timeline stands at the last whole chunk that was run.
    #[error("cancelled after {position} tokens")]
    Cancelled {
        /// Where the timeline stands.
        position: usize,
    },
    /// The timeline is unchanged: the call needs something that is not there (a choice before any row, a rewind past the
    /// last round, a depth outside 0..=6).
    #[error("{call}: {why}")]
    Misuse {
        /// The call.
        call: &'static str,
        /// What it lacked.
        why: String,
    },
    /// The timeline is unchanged: the snapshot belongs to another model, precision or context.
    #[error("snapshot does not fit: {why}")]
    SnapshotMismatch {
        /// What differs.
        why: String,
    },
    /// The timeline is past use; reset or drop it. Finite weights of a trained model do not do this.
    #[error("the logits of position {position} are not numbers: the model's data is damaged; download it again")]
    NotFinite {
        /// Position of the row.
        position: usize,
    },
    /// The engine is dead; drop it.
    #[error("device fault in {operation}: {why}; restart the engine")]
    Device {
        /// What was running.
        operation: String,
        /// What the driver said.
        why: String,
    },
}

/// How a timeline is opened.
#[derive(Debug, Clone)]
pub struct TimelineOptions {
    /// Most tokens it can hold. At most the trained context.
    pub ctx_tokens: usize,
}

/// Which rows' logits a prefill hands out.
pub enum LogitRows<'a> {
    /// None; the last row's stay in the timeline for [`Timeline::choose`].
    None,
    /// Every row, in order, as `(position, logits)`.
    Each(&'a mut dyn FnMut(usize, &[f32])),
}

/// A change to one row's logits before a token is chosen: added biases and allowed ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogitEdit {
    /// `(id, value)` added to the logit.
    pub bias: Vec<(TokenId, f32)>,
    /// One bit per id, set = allowed; `None` allows all. Bit `id % 32` of word `id / 32`.
    pub allowed: Option<Vec<u32>>,
}

/// One turn of the speculative cycle.
#[derive(Debug, Clone)]
pub struct RoundRequest<'a> {
    /// Drafts to chain after this round's last token, for the next round: 0..=[`MAX_DEPTH`], 0 = serial. They
    /// may reach past the budget or the context (how many tokens this round commits is not known when it is asked for); what
    /// does is never verified.
    pub next_depth: usize,
    /// Verifies these instead of the drafts the timeline holds (tests, grammars, n-gram look-up).
    pub drafts: Option<&'a [TokenId]>,
    /// Most tokens this round may commit (at least 1): drafts past it are not verified.
    pub budget: usize,
    /// Acceptance ends behind one of these. Empty: never.
    pub stop: &'a [TokenId],
    /// How every row's token is chosen. Penalties see the row's own past: the tokens in the state, the pending one and the
    /// drafts accepted before the row. A device keeps counts for `tokens[answer_from..]` and for all, adds a row's drafts to
    /// them while it verifies, and counts anew when `answer_from` changes.
    pub sampling: &'a Sampling,
    /// Edits per row (row 0 chooses the token after `fed`); missing rows have none.
    pub edits: &'a [LogitEdit],
    /// Hand out the logits of the kept rows.
    pub want_logits: bool,
    /// Hand out the log-probability of every row's token and of this many most likely ones.
    pub top_logprobs: Option<usize>,
}

/// What one round did.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Position of the first committed token.
    pub position: usize,
    /// Tokens now part of the state: the pending one, then the accepted drafts. Never empty.
    pub committed: Vec<TokenId>,
    /// Drafts that were verified.
    pub drafted: usize,
    /// Drafts that were accepted: `committed.len() - 1`.
    pub accepted: usize,
    /// The token chosen after the last committed one: pending, not part of the state.
    pub next: TokenId,
    /// Drafts chained after `next`, to be verified by the next round.
    pub drafts: Vec<TokenId>,
    /// `committed.len()` rows of `vocab` logits, unedited, where asked for; else empty.
    pub logits: Vec<f32>,
    /// Of the token chosen by each committed row, the last that of `next`, where asked for; else empty.
    pub logprobs: Vec<TokenLogprobs>,
}

/// A loaded model on one device.
pub trait Backend: Send {
    /// One line for people: device, threads or card, precision.
    fn describe(&self) -> String;
    /// The model's numbers.
    fn hyperparams(&self) -> &Hyperparams;
    /// Whether a draft head is loaded; without one every depth above 0 is a [`BackendError::Misuse`].
    fn has_draft_head(&self) -> bool;
    /// Every byte this backend holds and a timeline of `ctx_tokens` will hold.
    fn memory_plan(&self, ctx_tokens: usize) -> MemoryPlan;
    /// A new, empty timeline.
    fn open(&self, options: &TimelineOptions) -> Result<Box<dyn Timeline>, BackendError>;
}

/// The device half of a session. All calls are synchronous.
pub trait Timeline: Send {
    /// Tokens in the state.
    fn position(&self) -> usize;
    /// The tokens in the state.
    fn tokens(&self) -> &[TokenId];
    /// The chosen token that no row has run yet: set by [`choose`](Self::choose) and [`round`](Self::round), gone after
    /// [`prefill`](Self::prefill), [`rewind`](Self::rewind) and [`restore`](Self::restore).
    fn pending(&self) -> Option<TokenId>;
    /// Drafts waiting to be verified after [`pending`](Self::pending).
    fn drafts(&self) -> &[TokenId];
    /// Runs prompt tokens in chunks cut at multiples of [`CHUNK_TOKENS`], seeding the draft head's cache as it goes.
    /// A pending token is forgotten: pass it again if it was kept. After an error other than `Device` or `Cancelled` the
    /// timeline is as it was.
    fn prefill(&mut self, tokens: &[TokenId], rows: LogitRows<'_>, cancel: &CancelFlag) -> Result<(), BackendError>;
    /// Logits of the last row, `[vocab]`, unedited. Empty before any row.
    fn last_logits(&self) -> &[f32];
    /// Chooses the token after the last row, makes it pending and chains `depth` drafts behind it.
    fn choose(&mut self, sampling: &Sampling, edit: Option<&LogitEdit>, depth: usize) -> Result<TokenId, BackendError>;
    /// One round: verify the pending token and the drafts, accept, roll back, draft again. Commits 1..=depth+1 tokens;
    /// every state then stands at the same position. Greedy bits do not depend on the drafts (design 3.2).
    /// `ContextFull` and `Misuse` leave the timeline as it was, save that a `Misuse` found in an edit (an id or a mask that
    /// does not fit, nothing left to choose) ends the reach of [`rewind`](Self::rewind).
    fn round(&mut self, request: &RoundRequest<'_>) -> Result<Round, BackendError>;
    /// Takes back committed tokens of the last round: keeps its first `keep_rows` (1..=committed). Afterwards nothing is
    /// pending, and [`choose`](Self::choose) works from the kept row's logits.
    fn rewind(&mut self, keep_rows: usize) -> Result<(), BackendError>;
    /// A copy of all state at the present position. Any position is allowed; prefix reuse takes them at multiples of
    /// [`CHUNK_TOKENS`], where continuing gives the bits of a cold run (design 3.5).
    fn snapshot(&self) -> Snapshot;
    /// Replaces all state.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), BackendError>;
    /// Back to position 0.
    fn reset(&mut self);
}
