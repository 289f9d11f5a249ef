//! Where the weights are: one timeline of tokens, moved by the operations of engine-protocol-v1.md 10.
//!
//! A [`Target`] is an engine in this process (`engine::InProcess`, feature `engine`), a resident engine over its socket
//! ([`Resident`](crate::resident::Resident)), or a state machine of one number for tests ([`Stub`]). [`OnTarget`] carries
//! the worker's verbs out on any of them.
//!
//! Every operation that moves the state returns the frontier argmax: the greedy choice after the last token.

mod decimal;
#[cfg(feature = "engine")]
pub mod engine;
mod error;
#[cfg(feature = "engine")]
mod load;
mod memory;
mod on_target;
mod stub;
mod top;

pub use decimal::nine_digits;
pub use error::{TargetError, one_line};
pub use memory::peak_ram_bytes_of;
pub use on_target::OnTarget;
pub use stub::Stub;
pub use top::top_of;

/// A token id as targets and the resident wire have it.
pub type Token = crate::worker::TokenId;

/// Most tokens one speculative cycle may return (engine-protocol-v1.md 10).
pub const MAX_CYCLE_TOKENS: usize = 17;

/// How deep a target can draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drafting {
    /// Not at all: it was opened without a draft head.
    None,
    /// At the one depth that it was started with.
    Fixed(u32),
    /// At any depth from 1 to this.
    UpTo(u32),
}

impl Drafting {
    /// Tokens of a cycle for a resident: drafts and the token that is fed; 1 is serial.
    pub fn draft_tokens(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Fixed(depth) | Self::UpTo(depth) => depth.saturating_add(1),
        }
    }

    /// What a resident that says `draft_tokens` can do.
    pub fn of_resident(draft_tokens: u32) -> Self {
        match draft_tokens {
            0 | 1 => Self::None,
            tokens => Self::Fixed(tokens - 1),
        }
    }

    /// Whether rounds of this depth can be run.
    pub fn allows(self, depth: u32) -> bool {
        match self {
            Self::None => false,
            Self::Fixed(only) => depth == only,
            Self::UpTo(max) => (1..=max).contains(&depth),
        }
    }

    /// Refuses a depth that it does not allow.
    pub fn check(self, depth: u32) -> Result<(), TargetError> {
        if self.allows(depth) { Ok(()) } else { Err(TargetError::Depth { depth, draft_tokens: self.draft_tokens() }) }
    }

    /// The depth where none was asked for: the deepest.
    pub fn default_depth(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Fixed(depth) | Self::UpTo(depth) => Some(depth),
        }
    }
}

/// What does not change while a target lives.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The worker's `backend` string (track-contract.md 12.1).
    pub backend: String,
    /// The worker's `device` string: `cpu <isa>`, `cuda sm_NN`, `none`.
    pub device: String,
    /// What was loaded, in words.
    pub ident: String,
    /// Ids are below this.
    pub vocab: usize,
    /// The model's own end token.
    pub eos: Option<Token>,
    /// Ids behind which a correctness run ends, the model's own among them.
    pub stop_ids: Vec<Token>,
    /// How deep it drafts.
    pub drafting: Drafting,
    /// Most tokens the timeline holds.
    pub ctx_tokens: usize,
    /// The model's file, or its name.
    pub model_path: String,
    /// The draft head's; empty where none is loaded.
    pub mtp_head_path: String,
    /// The process that holds the weights, where that is another one.
    pub resident_pid: Option<u32>,
}

/// What one speculative cycle did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Tokens now part of the state: the one that was fed, then the accepted drafts.
    pub committed: Vec<Token>,
    /// The frontier argmax behind the last of them.
    pub next: Token,
}

/// Counts since the target was opened; they only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Drafts proposed for verification.
    pub drafts: u64,
    /// Drafts accepted.
    pub hits: u64,
    /// Times drafting was given up.
    pub quenches: u64,
    /// Times verified rows differed from a serial replay of them.
    pub disagreements: u64,
}

/// One engine with one timeline. Operations without a `Result` cannot report a failure: it is kept, and the next one with
/// a `Result`, or [`fault`](Self::fault), returns it.
pub trait Target {
    /// What does not change.
    fn facts(&self) -> &Facts;
    /// Forgets every token: the next [`sync`](Self::sync) runs its whole prompt.
    fn invalidate(&mut self);
    /// Runs a prompt from an empty state.
    fn sync(&mut self, tokens: &[Token]) -> Result<Token, TargetError>;
    /// Runs one token of the caller's choice, which need not be the frontier argmax.
    fn eval(&mut self, token: Token) -> Result<Token, TargetError>;
    /// The frontier argmax; `None` before any token, or when it is not known.
    fn argmax(&mut self) -> Option<Token>;
    /// The `k` largest logits of the last row, descending, the lowest id first where they are equal. Empty before any token.
    fn top_logits(&mut self, k: usize) -> Vec<(Token, f32)>;
    /// Makes cycles of this depth. Refuses one that [`Facts::drafting`] does not allow.
    fn arm(&mut self, depth: u32) -> Result<(), TargetError>;
    /// Feeds `first` and runs one cycle at the armed depth: 1 to `budget` tokens, the first of which is `first`. The tokens
    /// are those of as many serial steps.
    fn eval_speculative(&mut self, first: Token, budget: u32) -> Result<Cycle, TargetError>;
    /// Counts so far.
    fn counters(&mut self) -> Counters;
    /// What an operation without a `Result` ran into, once.
    fn fault(&mut self) -> Result<(), TargetError> {
        Ok(())
    }
    /// The most memory that the process with the weights ever held, where the system says so.
    fn peak_ram_bytes(&self) -> Option<u64> {
        peak_ram_bytes_of(self.facts().resident_pid)
    }
}
