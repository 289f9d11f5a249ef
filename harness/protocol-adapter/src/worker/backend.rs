use bench_protocol::{HeadProvenance, ResidentIdentity, RunnerIdentity, SpecConfig};

use crate::Error;

/// A token's id, as wide as engines have it (engine-protocol-v1.md 6, rule 13).
pub type TokenId = i32;

/// Who answers, for hello.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Which engine (track-contract.md 12.1).
    pub backend: String,
    /// On what it runs.
    pub device: String,
    /// The draft head's files, where they are known.
    pub head_provenance: Option<HeadProvenance>,
    /// Who runs the model.
    pub runner: Option<RunnerIdentity>,
    /// The process that holds the weights.
    pub resident: Option<ResidentIdentity>,
}

/// How a phase decodes, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// One token a forward.
    Serial,
    /// This many drafts a round, at least one.
    Mtp(u32),
}

impl Depth {
    /// The echo: what will run (engine-protocol-v1.md 6, rule 9).
    pub fn echo(self) -> SpecConfig {
        match self {
            Depth::Serial => SpecConfig::serial(),
            Depth::Mtp(depth) => SpecConfig::mtp(Some(depth)),
        }
    }
}

/// What a free run did. The worker checks that it adds up before it says so (rule 10).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeRun {
    /// The tokens committed, in order.
    pub tokens: Vec<TokenId>,
    /// How many of them each round committed.
    pub acceptance_lengths: Vec<u32>,
    /// Drafts proposed.
    pub drafted: u64,
    /// Drafts accepted.
    pub accepted: u64,
    /// Tokens committed, as the engine counts them.
    pub committed: u64,
    /// Rounds whose verification and replay chose differently, where the engine looks.
    pub disagreements: Option<u64>,
}

/// An engine as the verbs see it. Between [`open`](Backend::open) and [`close`](Backend::close) lies one phase, and nothing
/// that a phase put in may be found by the next.
///
/// After an error of any method but [`mtp_depth`](Backend::mtp_depth) the worker calls `close` and nothing else of that
/// phase. No method is called twice for one request, and none outside a phase but `identity`, `mtp_depth` and `open`.
pub trait Backend {
    /// Who this is. Asked once, before hello.
    fn identity(&self) -> Identity;

    /// Why `mtp` cannot run here; `None` when it can.
    fn why_serial_only(&self) -> Option<String>;

    /// The depth that will run when `mtp` is asked for: `requested`, which is within
    /// [`DEPTHS`](bench_protocol::DEPTHS), verbatim or refused, and the engine's own choice for `None`. Not called when
    /// [`why_serial_only`](Backend::why_serial_only) has a reason.
    fn mtp_depth(&self, requested: Option<u32>) -> Result<u32, Error>;

    /// Brings up a cold engine for a phase and empties it. Returns the bytes that are still there, which must be 0.
    fn open(&mut self) -> Result<u64, Error>;

    /// Drops the phase's engine. Also called when `open` has failed.
    fn close(&mut self);

    /// Runs a prompt, whole and once, and returns the greedy next token. Finished when it returns.
    fn prefill(&mut self, prompt: &[TokenId]) -> Result<TokenId, Error>;

    /// Runs a seed like [`prefill`](Backend::prefill); what follows is steps or, with a depth, a free run.
    fn begin(&mut self, seed: &[TokenId], depth: Depth) -> Result<TokenId, Error>;

    /// Runs the caller's token and returns the greedy next one.
    fn step(&mut self, token: TokenId) -> Result<TokenId, Error>;

    /// The highest logits after the last forward, with their tokens: descending, ties by the lower id
    /// (engine-protocol-v1.md 6.1). Called after `prefill` or `step`.
    fn top_logits(&mut self, count: usize) -> Result<Vec<(TokenId, f32)>, Error>;

    /// Commits exactly `count` tokens after the last one, as [`begin`](Backend::begin) was told; runs no prompt.
    fn free_run(&mut self, count: u32) -> Result<FreeRun, Error>;

    /// Whether text ends at this token.
    fn is_stop(&self, token: TokenId) -> bool;

    /// The most memory this engine has held, in GB. Never scored.
    fn peak_ram_gb(&self) -> f64;

    /// A greedy free run of at most `steps` tokens from a prompt, the last of which may be a stop id.
    fn correctness(&mut self, prompt: &[TokenId], steps: u32) -> Result<Vec<TokenId>, Error> {
        let mut token = self.prefill(prompt)?;
        let mut tokens = vec![token];
        while tokens.len() < steps as usize && !self.is_stop(token) {
            token = self.step(token)?;
            tokens.push(token);
        }
        Ok(tokens)
    }
}
