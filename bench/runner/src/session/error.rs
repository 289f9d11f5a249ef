use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::stderr::MAX_STDERR_BYTES;

/// Why a session is over. Each is final: the worker is dead and reaped by the time that it is returned.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The program cannot be started.
    #[error("{program}: cannot be started as a worker; build and stage the engine first")]
    Spawn {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A response is not what its request asks for.
    #[error("{0}")]
    Protocol(String),
    /// A line that begins like a response and is none.
    #[error("engine response line could not be decoded: {0}")]
    Json(String),
    /// The engine refused or failed.
    #[error("{kind}: the engine reports: {message}")]
    Engine {
        /// The request.
        kind: String,
        /// The engine's text.
        message: String,
    },
    /// Not this session's response.
    #[error("{kind}: the response has another nonce than hello had")]
    NonceMismatch {
        /// The request.
        kind: String,
    },
    /// An earlier error ended it.
    #[error("the session ended with an earlier error; start another worker")]
    SessionDiscarded,
    /// The engine does not offer what is to be asked.
    #[error("the engine's hello does not offer `{capability}`")]
    CapabilityNotAdvertised {
        /// What is missing.
        capability: String,
    },
    /// The engine does not run this way of decoding.
    #[error("the engine's hello does not offer the spec mode `{mode}`; it offers {offered}")]
    SpecModeNotRunnable {
        /// Wanted.
        mode: String,
        /// Offered.
        offered: String,
    },
    /// The engine decodes in another way than it was asked to.
    #[error("asked for {asked}, and the engine runs {echoed}")]
    SpecEchoDivergence {
        /// The request's `spec`.
        asked: String,
        /// The response's `effective_spec`.
        echoed: String,
    },
    /// The engine did more or less than it was asked.
    #[error("{issued} timed steps were issued and the engine reports {reported}")]
    CompletedWorkMismatch {
        /// By us.
        issued: u64,
        /// By the engine.
        reported: u64,
    },
    /// Something of the phase is left in the engine.
    #[error("the engine's allocator still caches {reported} bytes behind the phase; it must be empty")]
    AllocatorCacheNotDrained {
        /// Bytes.
        reported: u64,
    },
    /// A free run does not add up.
    #[error("free run: {detail}")]
    FreeRunConsistency {
        /// The sum that does not hold.
        detail: String,
    },
    /// The response was not there in time.
    #[error("{phase}: no response within {budget_seconds} s")]
    RunTimeout {
        /// The request.
        phase: String,
        /// How long it may take.
        budget_seconds: f64,
    },
    /// A response, or the beginning of one, before its request.
    #[error("RESPONSE-BEFORE-REQUEST: the worker wrote a response before {kind} was asked")]
    ResponseBeforeRequest {
        /// The request.
        kind: String,
    },
    /// A response that does not end.
    #[error("RESPONSE-LINE-TOO-LONG: {kind}: the worker wrote more than 16 MiB without a line end")]
    LineTooLong {
        /// The request.
        kind: String,
    },
    /// Lines without end that are no responses.
    #[error("WORKER-STDOUT-FLOOD: {kind}: more than 16 MiB on stdout are no response; write logs to stderr")]
    StdoutFlood {
        /// The request.
        kind: String,
    },
    /// More than anybody reads.
    #[error("WORKER-STDERR-FLOOD: the worker wrote more than {MAX_STDERR_BYTES} bytes to stderr")]
    StderrFlood,
    /// The worker is gone.
    #[error("WORKER-DIED: {kind}: the worker ended ({status}); its stderr: {stderr}")]
    WorkerDied {
        /// The request.
        kind: String,
        /// How it ended.
        status: String,
        /// Its last words.
        stderr: String,
    },
    /// The operating system failed.
    #[error("{kind}: the streams of the worker failed")]
    Io {
        /// The request.
        kind: String,
        /// Why.
        source: io::Error,
    },
    /// Somebody wants the run to end.
    #[error("interrupted")]
    Interrupted,
}

impl SessionError {
    /// The name it is refused by; scripts and tests look for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Spawn { .. } => "WORKER-NOT-STARTED",
            Self::Protocol(_) => "Protocol",
            Self::Json(_) => "Json",
            Self::Engine { .. } => "Engine",
            Self::NonceMismatch { .. } => "NonceMismatch",
            Self::SessionDiscarded => "SessionDiscarded",
            Self::CapabilityNotAdvertised { .. } => "CapabilityNotAdvertised",
            Self::SpecModeNotRunnable { .. } => "SpecModeNotRunnable",
            Self::SpecEchoDivergence { .. } => "SpecEchoDivergence",
            Self::CompletedWorkMismatch { .. } => "CompletedWorkMismatch",
            Self::AllocatorCacheNotDrained { .. } => "AllocatorCacheNotDrained",
            Self::FreeRunConsistency { .. } => "FreeRunConsistency",
            Self::RunTimeout { .. } => "RunTimeout",
            Self::ResponseBeforeRequest { .. } => "RESPONSE-BEFORE-REQUEST",
            Self::LineTooLong { .. } => "RESPONSE-LINE-TOO-LONG",
            Self::StdoutFlood { .. } => "WORKER-STDOUT-FLOOD",
            Self::StderrFlood => "WORKER-STDERR-FLOOD",
            Self::WorkerDied { .. } => "WORKER-DIED",
            Self::Io { .. } => "Io",
            Self::Interrupted => "Interrupted",
        }
    }
}

/// What a run may take at the most, if it is to end at all: four times as long as the slowest serial engine (benchd.md 3).
pub const DEFAULT_CEILING_SECONDS_PER_TOKEN: f64 = 0.133_613_948_570_312_5;

const RUN_MARGIN: f64 = 4.0;

/// A budget that is none.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{steps} steps of at most {ceiling_seconds_per_token} s are no deadline; both must be positive and finite")]
pub struct BudgetError {
    /// Steps.
    pub steps: usize,
    /// Of one.
    pub ceiling_seconds_per_token: f64,
}

/// The deadline of a run of `steps` tokens (engine-protocol-v1.md 7, "RunTimeout"). What gives no deadline is an error.
pub fn run_budget(steps: usize, ceiling_seconds_per_token: f64) -> Result<Duration, BudgetError> {
    let seconds = steps as f64 * ceiling_seconds_per_token * RUN_MARGIN;
    let refused = BudgetError { steps, ceiling_seconds_per_token };
    if !(seconds > 0.0 && seconds.is_finite()) {
        return Err(refused);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_deadline_or_an_error_and_never_none() {
        assert_eq!(run_budget(128, 0.25), Ok(Duration::from_secs(128)));
        for (steps, ceiling) in [(0, 1.0), (1, 0.0), (1, -1.0), (1, f64::NAN), (1, f64::INFINITY), (1, 1e300)] {
            assert!(run_budget(steps, ceiling).is_err(), "{steps} {ceiling}");
        }
    }
}
