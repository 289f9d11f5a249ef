use std::io;

use bench_protocol::{DEPTHS, MAX_RUN_COUNT};

use crate::worker::PhaseKind;

/// Why a request is not carried out; the texts are what goes over the wire (engine-protocol-v1.md 6).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A defect of the request itself.
    #[error("malformed request: {0}")]
    Malformed(#[from] Malformed),
    /// An opener inside a phase.
    #[error("double-open: {arrived} arrived while a {open} phase was still open (missing phase_diagnostics)")]
    DoubleOpen {
        /// What it would have opened.
        arrived: PhaseKind,
        /// What is open.
        open: PhaseKind,
    },
    /// A step outside any phase.
    #[error("{kind} with no open phase")]
    NoOpenPhase {
        /// The verb.
        kind: &'static str,
    },
    /// A barrier outside any phase.
    #[error("phase_diagnostics with no open phase to close")]
    NothingToClose,
    /// A step of another phase.
    #[error("{kind} has no matching opener: current phase is {open}, not {needed}")]
    NoMatchingOpener {
        /// The verb.
        kind: &'static str,
        /// What is open.
        open: PhaseKind,
        /// What the verb needs.
        needed: PhaseKind,
    },
    /// A cold engine that is not empty.
    #[error("allocator drain left {bytes} residual bytes (want verified-zero)")]
    NotDrained {
        /// What is left.
        bytes: u64,
    },
    /// A depth no engine of this track runs.
    #[error(
        "requested mtp draft depth {depth} is outside this track's envelope ({}...{}); an explicitly requested depth is \
         echoed verbatim, so it is refused rather than clamped. Omit the depth to let the engine choose one.",
        DEPTHS.start(), DEPTHS.end()
    )]
    DepthOutsideEnvelope {
        /// The depth asked for.
        depth: u32,
    },
    /// A mode that this engine, as it was opened, has not.
    #[error("spec mode \"mtp\" is not runnable on this engine; runnable modes are serial ({why})")]
    NotRunnable {
        /// What is missing.
        why: String,
    },
    /// An id the engine has no type for.
    #[error("engine fault: token id {token} does not fit the engine's 32-bit ids")]
    TokenTooWide {
        /// The id.
        token: i64,
    },
    /// An answer that contradicts itself (engine-protocol-v1.md 6, rule 10).
    #[error("free_decode_run refuses its own answer: {0}")]
    RunInconsistent(String),
    /// Another number of logits than the protocol has.
    #[error("engine fault: engine returned {found} top logits, the protocol has exactly {wanted}", wanted = bench_protocol::TOP_LOGITS)]
    TopLogits {
        /// How many came.
        found: usize,
    },
    /// A fault of the engine; the phase is lost.
    #[error("engine fault: {0}")]
    Fault(String),
    /// A response that cannot be written down.
    #[error("engine fault: the answer has no JSON form: {0}")]
    Unwritable(#[source] bench_protocol::Error),
    /// Standard input or output broke.
    #[error("the protocol stream broke")]
    Stream(#[from] io::Error),
}

/// A request that reads but asks for nothing a worker can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A verb that is none.
    #[error("unknown request kind {kind:?}")]
    UnknownKind {
        /// What `kind` said.
        kind: String,
    },
    /// A field the verb needs.
    #[error("{kind} missing {field}")]
    Missing {
        /// The verb.
        kind: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field the verb has no use for; refused, because ignoring it would look like obeying it.
    #[error("{kind} takes no {field}{}", if *field == "spec" { "; spec belongs on decode_begin and free_decode_begin" } else { "" })]
    Needless {
        /// The verb.
        kind: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A free run of nothing.
    #[error("free_decode_run count must be positive, got {count}")]
    CountNotPositive {
        /// The count.
        count: u32,
    },
    /// A free run that is too long.
    #[error("free_decode_run count {count} is above the bound {MAX_RUN_COUNT}")]
    CountAboveBound {
        /// The count.
        count: u32,
    },
    /// `steps` of `correctness` out of bounds.
    #[error("correctness steps must be in 1...{MAX_RUN_COUNT}, got {steps}")]
    Steps {
        /// The steps.
        steps: i64,
    },
    /// A mode of another track, or of none.
    #[error("spec mode {mode:?} is not a mode this track runs; allowed_modes is serial, mtp")]
    UnknownMode {
        /// The mode.
        mode: String,
    },
    /// Parameters of a mode that is not asked for.
    #[error("spec mode \"serial\" carries an mtp block; a serial run has no draft depth")]
    SerialWithMtpBlock,
    /// A key of `spec` that this track does not read.
    #[error("spec key {key:?} is not one this track reads; its keys are mode, mtp")]
    SpecKey {
        /// The key.
        key: String,
    },
    /// A drafting spec where steps are the caller's.
    #[error("decode_begin runs serial only; spec mode {mode:?} belongs on free_decode_begin")]
    DraftingOnDecodeBegin {
        /// The mode.
        mode: &'static str,
    },
}
