use std::fmt;

use bench_protocol::Verb;

/// What is being done between an opener and `phase_diagnostics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseKind {
    /// `prefill`.
    Prefill,
    /// `decode_begin` and its steps.
    Decode,
    /// `correctness`.
    CorrectnessFreeRun,
    /// `correctness_begin` and its steps.
    CorrectnessAnchor,
    /// `free_decode_begin` and its runs.
    FreeRun,
}

impl fmt::Display for PhaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a verb does to the phase (engine-protocol-v1.md 6, the table).
pub(crate) enum Effect {
    Opens(PhaseKind),
    Needs(PhaseKind),
    Closes,
}

pub(crate) fn effect(verb: Verb) -> Effect {
    match verb {
        Verb::Prefill => Effect::Opens(PhaseKind::Prefill),
        Verb::DecodeBegin => Effect::Opens(PhaseKind::Decode),
        Verb::DecodeStep => Effect::Needs(PhaseKind::Decode),
        Verb::Correctness => Effect::Opens(PhaseKind::CorrectnessFreeRun),
        Verb::CorrectnessBegin => Effect::Opens(PhaseKind::CorrectnessAnchor),
        Verb::CorrectnessStep => Effect::Needs(PhaseKind::CorrectnessAnchor),
        Verb::FreeDecodeBegin => Effect::Opens(PhaseKind::FreeRun),
        Verb::FreeDecodeRun => Effect::Needs(PhaseKind::FreeRun),
        Verb::PhaseDiagnostics => Effect::Closes,
    }
}

/// The open phase and what it has done: `completed_work` of the barrier.
pub(crate) struct Phase {
    pub(crate) kind: PhaseKind,
    pub(crate) completed_work: u64,
}
