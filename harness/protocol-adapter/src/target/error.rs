//! What a target refuses.

use std::io;
use std::path::PathBuf;

use super::Token;

/// Why a target could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A prompt without tokens has no frontier.
    #[error("the prompt has no tokens; give at least one")]
    EmptyPrompt,
    /// A cycle commits at least one token.
    #[error("a cycle commits at least one token, the budget is 0")]
    Budget,
    /// A token was to be run before any prompt.
    #[error("no prompt has run; sync one first")]
    NoPrompt,
    /// An id that the vocabulary does not have.
    #[error("token id {token} is outside the vocabulary of {vocab}")]
    TokenOutsideVocabulary {
        /// The id.
        token: Token,
        /// Ids are below this.
        vocab: usize,
    },
    /// A draft depth that this target does not run.
    #[error("draft depth {depth} cannot be run: the engine was opened with {draft_tokens} draft tokens, which is depth {}", draft_tokens.saturating_sub(1))]
    Depth {
        /// The depth asked for.
        depth: u32,
        /// What it was opened with, the fed token included.
        draft_tokens: u32,
    },
    /// A cycle that did not begin with the token it was fed.
    #[error("the engine was fed token {fed} and committed {} first", found.map_or("nothing".to_owned(), |found| found.to_string()))]
    ForeignCycle {
        /// What it was fed.
        fed: Token,
        /// What it committed first.
        found: Option<Token>,
    },
    /// A cycle that went on past its budget.
    #[error("the engine committed {committed} tokens, {budget} were left to commit")]
    CycleTooLong {
        /// Tokens of the cycle.
        committed: usize,
        /// What it was given.
        budget: u32,
    },
    /// Drafting was given up in a run that was to draft.
    #[error("the engine gave up drafting {times} times in a run that was to draft")]
    Quenched {
        /// How often.
        times: u64,
    },
    /// A run that was to draft and did not: it would be a serial one under another name.
    #[error("the mtp drafter proposed nothing in a run of {count} tokens; it is not at work")]
    NothingDrafted {
        /// Tokens of the run.
        count: u32,
    },
    /// Counts that went back: another run's, or another engine's.
    #[error("the engine's {counter} went from {before} to {after} in a run")]
    CounterWentBack {
        /// Which.
        counter: &'static str,
        /// Before the run.
        before: u64,
        /// After it.
        after: u64,
    },
    /// More drafts than the engine's rounds have rows for.
    #[error("--draft-tokens {found}: this engine drafts at most {} deep, which is {max}", max.saturating_sub(1))]
    DraftTokens {
        /// What was asked for.
        found: u32,
        /// The most.
        max: u32,
    },
    /// Drafting without a draft head.
    #[error("{model}: no draft head beside it; name one with --mtp-model, or ask for --draft-tokens 1")]
    NoDraftHead {
        /// The model.
        model: String,
    },
    /// More than one draft head beside the model, and no telling which.
    #[error("{folder}: {count} draft heads beside the model; leave one, or name one with --mtp-model")]
    SeveralDraftHeads {
        /// Where.
        folder: PathBuf,
        /// How many.
        count: usize,
    },
    /// A context that the model was not trained for.
    #[error("--ctx-tokens {found}: expected 1..={trained}, the context the model was trained for")]
    Context {
        /// What was asked for.
        found: usize,
        /// The trained context.
        trained: usize,
    },
    /// A stop id that the model does not have.
    #[error("--stop-ids {id}: the vocabulary has {vocab} ids")]
    StopId {
        /// The id.
        id: Token,
        /// Ids are below this.
        vocab: usize,
    },
    /// A device that is none.
    #[cfg(feature = "engine")]
    #[error("--device {found}: expected cpu, cuda, or cuda:N")]
    Device {
        /// What was asked for.
        found: String,
    },
    /// A card, in a build that has no use for it.
    #[cfg(all(feature = "engine", not(feature = "cuda")))]
    #[error(
        "--device cuda:{card}: this build has no CUDA backend; use --device cpu, or a build with the feature `cuda`"
    )]
    NoCuda {
        /// Its number.
        card: u32,
    },
    /// The card cannot be used, or has no room for the weights.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] cudafast_cuda::CudaError),
    /// A model file is not as it must be.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    File(#[from] cudafast_gguf::Error),
    /// A model cannot be bound, or does not fit.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Model(#[from] cudafast_model::Error),
    /// The engine refused, or failed.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(#[from] cudafast_runtime::BackendError),
    /// The connection to the resident engine cannot be used any more.
    #[error("resident engine {}: {what}; start a fresh worker", socket.display())]
    Resident {
        /// Its socket.
        socket: PathBuf,
        /// What went wrong.
        what: String,
    },
    /// The resident engine answered that it could not do it.
    #[error("the resident engine refused {op}: {why}")]
    Refused {
        /// The operation.
        op: &'static str,
        /// Its own words.
        why: String,
    },
    /// The resident engine cannot be reached.
    #[error("resident engine {}: cannot be reached; is it running?", socket.display())]
    Connect {
        /// Its socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl TargetError {
    /// Whether the engine is past use: whoever owns it ends.
    pub fn is_fatal(&self) -> bool {
        match self {
            #[cfg(feature = "engine")]
            Self::Engine(error) => {
                use cudafast_runtime::BackendError;
                matches!(error, BackendError::Device { .. } | BackendError::NotFinite { .. })
            }
            _ => false,
        }
    }

    /// The error and its causes on one line, control characters escaped: paths and answers of others may hold newlines.
    pub fn one_line(&self) -> String {
        one_line(self)
    }
}

/// An error and its causes, separated by colons, control characters escaped.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line.chars().fold(String::with_capacity(line.len()), |mut escaped, c| {
        if c.is_control() {
            escaped.extend(c.escape_default())
        } else {
            escaped.push(c)
        }
        escaped
    })
}

/// Over the wire of a worker every failure of a target is a fault of the engine.
impl From<TargetError> for crate::Error {
    fn from(error: TargetError) -> Self {
        Self::Fault(error.one_line())
    }
}
