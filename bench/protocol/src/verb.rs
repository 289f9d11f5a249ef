/// What a request asks for (engine-protocol-v1.md 6), without the cohort form's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Full forward of a prompt.
    Prefill,
    /// One seed forward, then steps.
    DecodeBegin,
    /// Evaluate the caller's token.
    DecodeStep,
    /// A greedy free run from a prompt, ended by a stop id.
    Correctness,
    /// Forward of a prompt, with logits.
    CorrectnessBegin,
    /// Evaluate the caller's token, with logits.
    CorrectnessStep,
    /// Full prefill of a seed with the requested way of decoding.
    FreeDecodeBegin,
    /// Commit `count` tokens.
    FreeDecodeRun,
    /// Report and close the phase.
    PhaseDiagnostics,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 9] = [
        Verb::Prefill,
        Verb::DecodeBegin,
        Verb::DecodeStep,
        Verb::Correctness,
        Verb::CorrectnessBegin,
        Verb::CorrectnessStep,
        Verb::FreeDecodeBegin,
        Verb::FreeDecodeRun,
        Verb::PhaseDiagnostics,
    ];

    /// What `kind` says.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Prefill => "prefill",
            Verb::DecodeBegin => "decode_begin",
            Verb::DecodeStep => "decode_step",
            Verb::Correctness => "correctness",
            Verb::CorrectnessBegin => "correctness_begin",
            Verb::CorrectnessStep => "correctness_step",
            Verb::FreeDecodeBegin => "free_decode_begin",
            Verb::FreeDecodeRun => "free_decode_run",
            Verb::PhaseDiagnostics => "phase_diagnostics",
        }
    }

    /// The verb of that name.
    pub fn from_name(name: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Whether it opens a phase.
    pub fn opens(self) -> bool {
        use Verb::{Correctness, CorrectnessBegin, DecodeBegin, FreeDecodeBegin, Prefill};
        matches!(self, Prefill | DecodeBegin | Correctness | CorrectnessBegin | FreeDecodeBegin)
    }

    /// Whether the request may carry `spec` (engine-protocol-v1.md 6, rule 7).
    pub fn takes_spec(self) -> bool {
        matches!(self, Verb::DecodeBegin | Verb::FreeDecodeBegin)
    }
}
