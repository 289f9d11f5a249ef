use serde::{Deserialize, Serialize};

use crate::object::{finite, object_only, parse, some, some_finite};
use crate::{Error, SpecConfig};

/// One response line; the fields in wire order (engine-protocol-v1.md 5). Nothing derived is among them: no rate, no ratio,
/// no elapsed time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// The request's; 0 for hello, [`UNREADABLE_ID`](crate::UNREADABLE_ID) when the request could not be read.
    pub id: i64,
    /// The session's. A response without one decodes, as the schema has it, and then matches no session.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub nonce: Option<String>,
    /// Whether the request was carried out.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub error: Option<String>,
    /// `prefill`, `decode_step`, `correctness_begin`, `correctness_step`: the greedy next token.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub token: Option<i64>,
    /// `correctness_begin`, `correctness_step`: exactly [`TOP_LOGITS`](crate::TOP_LOGITS), highest first.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub top_logits: Option<Vec<TopLogit>>,
    /// `decode_begin`, `free_decode_begin`: the token after the seed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub seed_token: Option<i64>,
    /// `correctness`, `free_decode_run`: what was generated.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub tokens: Option<Vec<i64>>,
    /// hello, `correctness_begin`, `correctness_step`, `phase_diagnostics`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub expert_stats: Option<ExpertStats>,
    /// `correctness`, `correctness_begin`, `correctness_step`, `phase_diagnostics`. Never scored.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[serde(serialize_with = "some_finite")]
    pub peak_ram_gb: Option<f64>,
    /// hello: [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION).
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub protocol_version: Option<u32>,
    /// hello: which engine.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub backend: Option<String>,
    /// hello: on what it runs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub device: Option<String>,
    /// `phase_diagnostics`: forwards and rounds of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub completed_work: Option<u64>,
    /// `phase_diagnostics`, optional: 0 or the phase is refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub cache_memory: Option<u64>,
    /// hello.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub capabilities: Option<Vec<String>>,
    /// `free_decode_run`: tokens committed by each round.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub acceptance_lengths: Option<Vec<u32>>,
    /// `free_decode_run`: drafts proposed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub drafted_total: Option<u64>,
    /// `free_decode_run`: drafts accepted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub accepted_total: Option<u64>,
    /// `free_decode_run`: tokens committed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub committed_total: Option<u64>,
    /// `decode_begin`, `free_decode_begin`: what will run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub effective_spec: Option<SpecConfig>,
    /// hello: modes that can run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub spec_modes: Option<Vec<String>>,
    /// hello, optional: the draft head's files.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub head_provenance: Option<HeadProvenance>,
    /// `phase_diagnostics`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub mlx_active_memory_bytes: Option<u64>,
    /// `phase_diagnostics`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub mlx_cache_memory_bytes: Option<u64>,
    /// `phase_diagnostics`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub mlx_peak_memory_bytes: Option<u64>,
    /// `correctness` verbs, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[serde(serialize_with = "some_finite")]
    pub top_logit_margin: Option<f64>,
    /// `correctness` verbs, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[serde(serialize_with = "some_finite")]
    pub expected_token_logit: Option<f64>,
    /// `correctness` verbs, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub expected_token_rank: Option<u32>,
    /// `free_decode_run`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub spec_decoder: Option<String>,
    /// `free_decode_run`, optional. Absent is not reported, which is not 0.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub verify_replay_disagreements: Option<u64>,
    /// `free_decode_run`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub verification_mode: Option<VerificationMode>,
    /// `free_decode_run`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub rectangular_verification_rounds: Option<u64>,
    /// `free_decode_run`, optional audit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub serial_verification_rounds: Option<u64>,
    /// hello, optional.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub runner: Option<RunnerIdentity>,
    /// hello, optional: one and the same over all phases of a window.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub resident: Option<ResidentIdentity>,
}

impl Response {
    /// A success without anything to say yet.
    pub fn ok(id: i64, nonce: &str) -> Self {
        Self { id, nonce: Some(nonce.to_owned()), ok: true, ..Self::default() }
    }

    /// A refusal or a fault.
    pub fn failed(id: i64, nonce: &str, error: impl Into<String>) -> Self {
        Self { ok: false, error: Some(error.into()), ..Self::ok(id, nonce) }
    }

    /// Reads a line, with or without its line end. Errors: anything but one object of the closed envelope.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        Ok(parse(line)?)
    }

    /// The canonical line, with its line end. Errors: a number that JSON has no form for.
    pub fn to_line(&self) -> Result<Vec<u8>, Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// A token and its logit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct TopLogit {
    /// The token's id.
    pub token: i64,
    /// A finite f32, widened.
    #[serde(serialize_with = "finite")]
    pub logit: f64,
}

/// Counters of an engine that reads experts from storage. One that holds them all sends zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ExpertStats {
    /// Experts found in the cache.
    pub expert_cache_hits: u64,
    /// Experts not found there.
    pub expert_cache_misses: u64,
    /// Experts dropped from it.
    pub expert_cache_evictions: u64,
    /// Bytes read for experts.
    pub expert_bytes_read: u64,
    /// Time spent reading them.
    #[serde(serialize_with = "finite")]
    pub expert_read_seconds: f64,
    /// The most tensors the cache has held.
    pub expert_peak_cached_tensors: u64,
}

/// The draft head's files, as the engine found them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct HeadProvenance {
    /// Digest of the files.
    pub sha256: String,
    /// Their size.
    pub bytes: u64,
    /// How many they are.
    pub file_count: u64,
}

/// Who runs the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct RunnerIdentity {
    /// Its name.
    pub id: String,
    /// The architecture it runs.
    pub model_type: String,
    /// 64 lower-case hexadecimal digits.
    #[serde(deserialize_with = "sha256")]
    pub manifest_sha256: String,
    /// Its build.
    pub build: String,
}

/// The process that holds the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ResidentIdentity {
    /// Its process id.
    pub pid: u32,
    /// Which load of the weights.
    pub load_epoch: u64,
}
object_only!(TopLogit, ExpertStats, HeadProvenance, RunnerIdentity, ResidentIdentity);

/// How drafts were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerificationMode {
    /// All rows of a round in one forward.
    Rectangular,
    /// Row by row.
    Serial,
}

fn sha256<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(text);
    }
    Err(serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &"64 lower-case hexadecimal digits"))
}
