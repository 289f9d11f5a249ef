use bench_core::timed::TokenMismatch;

use super::LegPhase;
use crate::machine::CoolError;
use crate::session::SessionError;

/// Why there is no leg.
#[derive(Debug, thiserror::Error)]
pub enum LegError {
    /// Nothing can be timed with this.
    #[error("the oracle's {field} is empty; record the golden again")]
    Plan {
        /// Which prompt.
        field: &'static str,
    },
    /// A worker was refused.
    #[error("{} phase: {error}", phase.name())]
    Session {
        /// Where.
        phase: LegPhase,
        /// By this.
        error: SessionError,
    },
    /// A token that no judge can make right. Neither token is named.
    #[error("{0}")]
    Token(TokenMismatch),
    /// The device is too hot.
    #[error("{} phase: {error}", phase.name())]
    Cool {
        /// Before it.
        phase: LegPhase,
        /// By this.
        error: CoolError,
    },
    /// No time, or no tokens.
    #[error(
        "PREFILL-WINDOW-NOT-OBSERVED: the seed took {seed_seconds} s, the run {run_seconds} s, both {whole_seconds} s; \
         each must be positive, and so must their tokens"
    )]
    WindowNotObserved {
        /// Seconds.
        seed_seconds: f64,
        /// Seconds.
        run_seconds: f64,
        /// Seconds.
        whole_seconds: f64,
    },
    /// The work was not done where it is timed.
    #[error("PREFILL-WINDOW-DISAGREES: {detail}")]
    WindowDisagrees {
        /// What is not alike.
        detail: String,
    },
    /// The scored prompt is faster than others.
    #[error(
        "FRESH-PROMPT-SLOWER: a fresh prompt took {fresh:.9} s per {unit}, the scored one {scored:.9}; at most {most} times as much"
    )]
    FreshSlower {
        /// Token of the prefill, or round of the decode.
        unit: &'static str,
        /// Seconds.
        fresh: f64,
        /// Seconds.
        scored: f64,
        /// The limit.
        most: f64,
    },
    /// Two phases say that two tokens follow one prompt.
    #[error("FRESH-PROMPT-INCONSISTENT: prefill and seed of one fresh prompt gave different tokens")]
    FreshInconsistent,
    /// Another process holds the weights than at the beginning.
    #[error("resident_identity_changed_within_window: {} phase: the worker is attached to another load of the weights", phase.name())]
    ResidentChanged {
        /// Seen there.
        phase: LegPhase,
    },
    /// There are no random numbers for a fresh prompt.
    #[error("no random numbers for a fresh prompt: {0}")]
    Random(String),
}

impl LegError {
    /// The name it is refused by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plan { .. } => "Plan",
            Self::Session { error, .. } => error.name(),
            Self::Token(_) => "TokenMismatch",
            Self::Cool { error, .. } => error.name(),
            Self::WindowNotObserved { .. } => "PREFILL-WINDOW-NOT-OBSERVED",
            Self::WindowDisagrees { .. } => "PREFILL-WINDOW-DISAGREES",
            Self::FreshSlower { .. } => "FRESH-PROMPT-SLOWER",
            Self::FreshInconsistent => "FRESH-PROMPT-INCONSISTENT",
            Self::ResidentChanged { .. } => "resident_identity_changed_within_window",
            Self::Random(_) => "Random",
        }
    }
}
