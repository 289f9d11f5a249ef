//! Goldens: prompts and the tokens a right engine continues them with (benchd.md 4).
//!
//! [`Golden::load`] is the one door. Its document is closed at every level, its checks run in the order of benchd.md 4, and
//! a [`Golden`] that exists has passed them all. [`author`] makes goldens, and per-depth oracles out of them.

pub mod author;
mod check;
mod error;
mod splice;

use serde::{Deserialize, Serialize};

pub use self::error::GoldenError;
pub use self::splice::{Capture, negative_control, per_depth_oracle};
use crate::json::{self, present, present_object, present_objects};
use crate::pin::{ContentPin, Provenance};

/// Steps of a teacher-forced case (benchd.md 3, `CORRECTNESS_STEPS`).
pub const CORRECTNESS_STEPS: usize = 64;
/// How many candidates an answer carries (benchd.md 3, `CORRECTNESS_TOP_LOGITS`).
pub const CORRECTNESS_TOP_LOGITS: usize = 8;
/// Least length of a benchmark block's continuation (benchd.md 3, `BENCHMARK_DECODE_STEPS`).
pub const BENCHMARK_DECODE_STEPS: usize = 128;
/// Longest context of an anchor.
pub const MAX_ANCHOR_CONTEXT: usize = 1024;
/// Longest continuation of a free-run gate.
pub const MAX_FREE_RUN_STEPS: usize = 256;
/// Longest prompt of a behavior case.
pub const MAX_BEHAVIOR_PROMPT: usize = 2048;
/// Most tokens a behavior case may ask for.
pub const MAX_BEHAVIOR_STEPS: i64 = 64;

/// The model as far as a golden has to know it; a fixture declares it, since the embedded track has another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelShape {
    /// `golden_model_type` of the fixture.
    pub model_type: String,
    /// Ids are `0..vocab_size`.
    pub vocab_size: i64,
    /// `num_hidden_layers`.
    pub layers: u32,
    /// Length of every prompt that is timed or stepped through.
    pub seed_tokens: usize,
}

/// What the caller demands beyond the closed schema.
#[derive(Debug, Clone)]
pub struct Demands<'a> {
    /// Of the track.
    pub shape: &'a ModelShape,
    /// Least `expected_tokens` of a case: 64 on official runs, one more than the timed steps on local ones.
    pub expected_tokens: usize,
    /// Least `expected_decode_tokens` of the benchmark block.
    pub decode_tokens: usize,
    /// Whether the benchmark block must be there.
    pub benchmark: bool,
    /// What the bytes must be.
    pub pin: Option<ContentPin>,
    /// What a `model_provenance` must say, if there is one.
    pub provenance: Option<&'a Provenance>,
}

impl<'a> Demands<'a> {
    /// Those of an official run, without pins.
    pub fn official(shape: &'a ModelShape) -> Self {
        Self {
            shape,
            expected_tokens: CORRECTNESS_STEPS,
            decode_tokens: BENCHMARK_DECODE_STEPS,
            benchmark: true,
            pin: None,
            provenance: None,
        }
    }
}

/// A golden that passed every check, and the identity of its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Golden {
    document: Document,
    pin: ContentPin,
}

/// One prompt and its greedy continuation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique in the golden.
    pub name: String,
    /// Exactly the track's seed length.
    pub prompt_tokens: Vec<i64>,
    /// `[0]` follows the prompt, `[k + 1]` follows `[k]`.
    pub expected_tokens: Vec<i64>,
}

/// Gates beside the cases.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// Single answers.
    #[serde(default, deserialize_with = "present_objects", skip_serializing_if = "Option::is_none")]
    pub anchors: Option<Vec<Anchor>>,
    /// Runs without teacher forcing.
    #[serde(default, deserialize_with = "present_objects", skip_serializing_if = "Option::is_none")]
    pub free_run: Option<Vec<FreeRun>>,
    /// Validated, never run.
    #[serde(default, deserialize_with = "present_objects", skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Vec<Behavior>>,
}

/// One context and what may follow it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Unique in the golden.
    pub name: String,
    /// `1..=1024` tokens.
    pub context_tokens: Vec<i64>,
    /// The reference's choice.
    pub expected_token: i64,
    /// Others that are as good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_tokens: Option<Vec<i64>>,
    /// `1..=8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_expected_rank: Option<i64>,
    /// How far below the top the expected token may then be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_top_logit_delta: Option<f64>,
}

/// A prompt whose greedy run must begin in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeRun {
    /// Unique in the golden.
    pub name: String,
    /// Exactly the track's seed length.
    pub prompt_tokens: Vec<i64>,
    /// `1..=256` tokens.
    pub expected_tokens: Vec<i64>,
    /// How many of them count; absent, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_prefix_tokens: Option<i64>,
}

/// A prompt with answers that would do; judged by people elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behavior {
    /// Unique in the golden.
    pub name: String,
    /// `1..=2048` tokens.
    pub prompt_tokens: Vec<i64>,
    /// Each at most `max_new_tokens` long.
    pub accepted_token_sequences: Vec<Vec<i64>>,
    /// `1..=64`.
    pub max_new_tokens: i64,
    /// The prompt as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_prompt: Option<String>,
    /// The right answer's letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_answer_key: Option<String>,
    /// The right answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_reference_answer: Option<String>,
    /// Field of knowledge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_domain: Option<String>,
    /// Part of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_subdomain: Option<String>,
}

/// What is timed, and what must come out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// Of the prefill phase.
    pub prefill_prompt_tokens: Vec<i64>,
    /// Follows it.
    pub expected_prefill_token: i64,
    /// Of the decode phase.
    pub decode_seed_tokens: Vec<i64>,
    /// Follows it.
    pub expected_decode_seed_token: i64,
    /// Follow that.
    pub expected_decode_tokens: Vec<i64>,
    /// A stored baseline, of tracks without a control leg.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_prefill_seconds_per_token: Option<f64>,
    /// The other half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_decode_seconds_per_token: Option<f64>,
}

impl Benchmark {
    /// Whether it carries a stored baseline, which a track with a live control leg refuses.
    pub fn has_stored_baseline(&self) -> bool {
        self.baseline_prefill_seconds_per_token.is_some() || self.baseline_decode_seconds_per_token.is_some()
    }
}

/// The document as it is written: the key order is that of benchd.md 4.3.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, deserialize_with = "present")]
    version: Option<i64>,
    #[serde(default, deserialize_with = "present")]
    model_type: Option<String>,
    #[serde(default, deserialize_with = "present_object", skip_serializing_if = "Option::is_none")]
    model_provenance: Option<Provenance>,
    #[serde(deserialize_with = "json::objects")]
    cases: Vec<Case>,
    #[serde(default, deserialize_with = "present_object", skip_serializing_if = "Option::is_none")]
    correctness_gates: Option<Gates>,
    #[serde(default, deserialize_with = "present_object", skip_serializing_if = "Option::is_none")]
    benchmark: Option<Benchmark>,
}

impl Golden {
    /// Reads a golden; the checks and their order are those of benchd.md 4.
    pub fn load(bytes: &[u8], demands: &Demands<'_>) -> Result<Self, GoldenError> {
        let actual = bytes.len() as u64;
        // The count before the hash: a file of another length need not be hashed.
        if let Some(ContentPin { bytes: expected, .. }) = demands.pin
            && expected != actual
        {
            return Err(GoldenError::ByteCount { expected, actual });
        }
        let pin = ContentPin::of(bytes);
        if let Some(ContentPin { sha256: expected, .. }) = demands.pin
            && expected != pin.sha256
        {
            return Err(GoldenError::Sha256 { expected, actual: pin.sha256 });
        }
        let document: Document = json::document(bytes).map_err(GoldenError::Decode)?;
        check::document(&document, demands)?;
        Ok(Self { document, pin })
    }

    /// Length and digest of the bytes it was read from.
    pub fn pin(&self) -> ContentPin {
        self.pin
    }

    /// The track's `model_type`.
    pub fn model_type(&self) -> &str {
        self.document.model_type.as_deref().unwrap_or_default()
    }

    /// The model it was recorded on, if it says so.
    pub fn provenance(&self) -> Option<&Provenance> {
        self.document.model_provenance.as_ref()
    }

    /// At least one.
    pub fn cases(&self) -> &[Case] {
        &self.document.cases
    }

    /// Anchors, or none.
    pub fn anchors(&self) -> &[Anchor] {
        self.document.correctness_gates.as_ref().and_then(|gates| gates.anchors.as_deref()).unwrap_or_default()
    }

    /// Free-run gates, or none.
    pub fn free_runs(&self) -> &[FreeRun] {
        self.document.correctness_gates.as_ref().and_then(|gates| gates.free_run.as_deref()).unwrap_or_default()
    }

    /// Behavior cases, or none. They are not run (benchd.md 4).
    pub fn behaviors(&self) -> &[Behavior] {
        self.document.correctness_gates.as_ref().and_then(|gates| gates.behavior.as_deref()).unwrap_or_default()
    }

    /// The timed block, if it has one.
    pub fn benchmark(&self) -> Option<&Benchmark> {
        self.document.benchmark.as_ref()
    }

    /// Cases and all gate cases (benchd.md 11, `case_count`).
    pub fn case_count(&self) -> usize {
        self.cases().len() + self.anchors().len() + self.free_runs().len() + self.behaviors().len()
    }
}

/// The prompt a golden file is about: the first `.`-segment of its name (benchd.md 4.2). `botany.mtp2.golden.json` is about
/// `botany`. `None`: the name has no such segment.
pub fn prompt_name(file_name: &str) -> Option<&str> {
    file_name.split('.').next().filter(|name| !name.is_empty())
}
