//! Why a golden is refused. No text shows a token that an engine is to find.

use bench_pins::Digest;

/// Every refusal of the loader and of authoring, in the loader's order (benchd.md 4).
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// Pinned length, checked before anything is read.
    #[error("correctness golden byte count mismatch: expected {expected}, actual {actual}")]
    ByteCount {
        /// Of the pin.
        expected: u64,
        /// Of the bytes.
        actual: u64,
    },
    /// Pinned digest.
    #[error("correctness golden sha256 mismatch: expected {expected}, actual {actual}")]
    Sha256 {
        /// Of the pin.
        expected: Digest,
        /// Of the bytes.
        actual: Digest,
    },
    /// Not JSON, another shape, an unknown or repeated key, something behind the document.
    #[error("correctness golden could not be decoded; record it again with `record-correctness-golden`")]
    Decode(#[source] serde_json::Error),
    /// `version` is not there.
    #[error("correctness golden has no `version`; this loader reads version 1")]
    NoVersion,
    /// `version` is another.
    #[error("correctness golden version {found} is not supported; this loader reads version 1")]
    Version {
        /// What it says.
        found: i64,
    },
    /// `model_type` is not there.
    #[error("correctness golden has no `model_type`; the track's is `{wanted}`")]
    NoModelType {
        /// Of the track.
        wanted: String,
    },
    /// Empty, or with blanks around it.
    #[error("correctness golden model_type {found:?} is empty or has blanks around it; the track's is `{wanted}`")]
    ModelTypeShape {
        /// What it says.
        found: String,
        /// Of the track.
        wanted: String,
    },
    /// A half-filled provenance.
    #[error("correctness golden model_provenance.{field} {found:?} is not {wanted}")]
    ProvenanceShape {
        /// Which of the two.
        field: &'static str,
        /// What it says.
        found: String,
        /// What belongs there.
        wanted: &'static str,
    },
    /// Recorded on another kind of model.
    #[error("correctness golden model_type is {found:?}, the track's is `{wanted}`; record it on the track's model")]
    ModelType {
        /// What it says.
        found: String,
        /// Of the track.
        wanted: String,
    },
    /// Recorded on another model.
    #[error(
        "correctness golden model_provenance does not match the pinned reference model: found {found}, pinned {pinned}"
    )]
    ProvenanceIdentity {
        /// What it says, `repository@revision`.
        found: String,
        /// Of the contract.
        pinned: String,
    },
    /// A list that must have entries has none.
    #[error("{field} is empty; give at least one entry, or leave an optional list out")]
    Empty {
        /// Which list.
        field: String,
    },
    /// A name that cannot be one.
    #[error("correctness golden {kind} name {name:?} is empty, has blanks around it or control characters in it")]
    Name {
        /// Of which kind of entry.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Twice in one section.
    #[error("duplicate correctness golden {kind} name {name}")]
    DuplicateName {
        /// Of which kind of entry.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// In two sections.
    #[error("duplicate correctness golden name {name}: it stands under {first} and under {second}")]
    NameInTwoSections {
        /// The name.
        name: String,
        /// One kind.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A token the model does not have.
    #[error("{field} is outside configured vocab range 0..<{vocab}")]
    OutsideVocab {
        /// Where it stands: `NAME.prompt_tokens[3]`.
        field: String,
        /// The track's vocabulary.
        vocab: i64,
    },
    /// A list of exactly so many tokens.
    #[error("{field} has {found} tokens; need exactly {need}")]
    Exactly {
        /// Which list.
        field: String,
        /// How many it has.
        found: usize,
        /// How many it must have.
        need: usize,
    },
    /// A list of at least so many tokens.
    #[error("{field} has {found} tokens; need at least {need}")]
    AtLeast {
        /// Which list.
        field: String,
        /// How many it has.
        found: usize,
        /// How many it must have.
        need: usize,
    },
    /// A number, or a list's length, outside its range.
    #[error("{field} is {found}; must be {low}..={high}")]
    Range {
        /// Which.
        field: String,
        /// What it is.
        found: i64,
        /// Least allowed.
        low: i64,
        /// Most allowed.
        high: i64,
    },
    /// `correctness_gates` without a section.
    #[error("correctness_gates has none of anchors, free_run, behavior; leave it out instead")]
    NoSections,
    /// A delta that nothing uses.
    #[error("{name}.max_top_logit_delta needs max_expected_rank beside it")]
    DeltaWithoutRank {
        /// The anchor.
        name: String,
    },
    /// A delta that is no distance.
    #[error("{name}.max_top_logit_delta is {found}; must be finite and >= 0")]
    Delta {
        /// The anchor.
        name: String,
        /// What it is.
        found: f64,
    },
    /// The loader was asked for a golden to score with.
    #[error("benchmark golden file must contain a benchmark oracle")]
    NoBenchmark,
    /// One of a pair.
    #[error(
        "benchmark has one of baseline_prefill_seconds_per_token and baseline_decode_seconds_per_token; give both or neither"
    )]
    HalfBaseline,
    /// A time that is none.
    #[error("benchmark.{field} is {found}; must be finite and > 0")]
    Baseline {
        /// Which of the two.
        field: &'static str,
        /// What it is.
        found: f64,
    },

    /// Authoring: a prompt file is integers between blanks, commas and brackets.
    #[error("prompt tokens: {text:?} is no integer; write ids between blanks, commas or brackets")]
    PromptText {
        /// The word that is none.
        text: String,
    },
    /// Authoring: what was recorded does not come out of the loader as it went in.
    #[error("golden does not come back from its own bytes; nothing was written")]
    RoundTrip,
    /// Splicing: the capture is no capture.
    #[error(
        "free-run capture could not be decoded; it is {{\"seed_token\",\"tokens\",\"drafted_total\",\"accepted_total\"}}"
    )]
    Capture(#[source] serde_json::Error),
    /// Splicing: the capture ran from another token than the serial golden.
    #[error(
        "capture begins with another seed token than the serial golden's expected_decode_seed_token; capture it from this golden on the same build"
    )]
    SeedToken,
    /// Splicing: a capture of another length.
    #[error(
        "capture has {found} tokens, the serial golden's expected_decode_tokens {need}; capture exactly {need} steps"
    )]
    CaptureLength {
        /// Of the capture.
        found: usize,
        /// Of the golden.
        need: usize,
    },
}
