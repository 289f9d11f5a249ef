//! The sealed result: what it holds, how its bytes are made, and whether a file is still one (benchd.md 15).
//!
//! [`Seal::new`] makes a document of a judged score; [`Seal::to_bytes`] is the artifact, [`sidecar`] and [`integrity`] the two
//! files beside it. [`Seal::verify`] reads an artifact again, alone: its form, its digest of itself, every pair against the
//! calibration it holds, and the score from the pairs by the rule it holds. Writer and reader of a key stand in this module.
//!
//! A seal shows that nothing was changed behind it by mistake or by hand. It is no signature: who can run benchd can make
//! another one.

mod metrics;
#[cfg(test)]
mod tests;
mod verify;

use bench_pins::Digest;
use serde_json::{Map, Value, json};

pub use self::metrics::{always_present, clamp_diagnostics, is_measured, rounded};
pub use self::verify::SealError;
use crate::calibration::BoxCalibration;
use crate::contract::{Axes, Bands, DecodeFigure, PairCombine};
use crate::fidelity::Divergence;
use crate::fields;
use crate::pin::{ContentPin, sha256};
use crate::score::{Pair, Rule, Score};

/// A result: of a scored run with a number, of a local one without.
#[derive(Debug, Clone, PartialEq)]
pub struct Seal {
    /// The composite; `None` for what nobody is scored by.
    pub score: Option<f64>,
    /// Whether every gate was passed.
    pub passed: bool,
    /// Everything else, by name.
    pub metrics: Map<String, Value>,
}

/// What a scored run was judged by, and what it measured.
#[derive(Debug, Clone, Copy)]
pub struct Scored<'a> {
    /// Of the track.
    pub rule: &'a Rule,
    /// Which window decode is timed by.
    pub decode_figure: DecodeFigure,
    /// The verdict.
    pub score: &'a Score,
    /// What it is of.
    pub legs: &'a [PairRecord],
    /// What the control legs were held to.
    pub calibration: &'a BoxCalibration,
    /// Widest spread the track allows a calibration.
    pub max_cv: f64,
    /// Mismatches allowed in a thousand timed tokens.
    pub tolerance_per_thousand: u32,
    /// Tokens of a timed stream, the seed's included.
    pub stream_tokens: usize,
}

/// One pair as it is sealed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairRecord {
    /// Seconds a token.
    pub pair: Pair,
    /// Where the candidate's stream was not the reference's choice.
    pub divergence: Divergence,
}

const DIGEST: &str = "seal_sha256";

/// As it is sealed and as a fixture spells it.
pub fn combine_name(combine: PairCombine) -> &'static str {
    match combine {
        PairCombine::RatioOfSums => "ratio_of_sums",
        PairCombine::LowerMedian => "lower_median",
        PairCombine::Mean => "mean",
    }
}

/// As it is sealed and as a fixture spells it.
pub fn figure_name(figure: DecodeFigure) -> &'static str {
    match figure {
        DecodeFigure::DecodeWindow => "decode_window",
        DecodeFigure::WholeWindow => "whole_window",
    }
}

impl Seal {
    /// A scored run that passed. `metrics` is what the rule and the pairs do not say.
    pub fn new(scored: &Scored<'_>, metrics: Map<String, Value>) -> Result<Self, SealError> {
        let mut all = always_present();
        all.extend(metrics);
        all.extend(judged(scored).map_err(SealError::Json)?);
        clamp_diagnostics(&mut all);
        Ok(Self { score: Some(scored.score.score), passed: true, metrics: all })
    }

    /// The artifact's bytes: pretty, keys in order, no newline behind them, with its digest of itself.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SealError> {
        let mut metrics = self.metrics.clone();
        metrics.remove(DIGEST);
        let plain = self.bytes_of(&metrics)?;
        metrics.insert(DIGEST.into(), sha256(&plain).to_string().into());
        self.bytes_of(&metrics)
    }

    fn bytes_of(&self, metrics: &Map<String, Value>) -> Result<Vec<u8>, SealError> {
        let document = json!({ "score": self.score, "passed": self.passed, "metrics": metrics });
        serde_json::to_vec_pretty(&in_order(document)).map_err(SealError::Json)
    }

    /// The artifact without what no two runs have in common: times, memory, process ids, nonces, and what follows from them.
    pub fn without_measurements(&self) -> Map<String, Value> {
        let kept = self.metrics.iter().filter(|(key, _)| !is_measured(key));
        let mut kept: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        // Which pairs there are stays; what they took goes.
        for key in ["paired_legs", "per_prompt"] {
            if let Some(entries) = kept.get_mut(key).and_then(Value::as_array_mut) {
                for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                    entry.retain(|key, _| !is_measured(key));
                }
            }
        }
        kept.insert("scored".into(), self.score.is_some().into());
        kept.insert("passed".into(), self.passed.into());
        kept
    }

    /// Keys by which two seals differ in more than measurements, in order.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let (ours, theirs) = (self.without_measurements(), other.without_measurements());
        let mut keys: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().filter(|key| ours.get(*key) != theirs.get(*key)).cloned().collect()
    }
}

/// The digest file beside an artifact.
pub fn sidecar(artifact: &[u8]) -> String {
    format!("{}\n", sha256(artifact))
}

/// What the integrity record says of a run (benchd.md 15).
#[derive(Debug, Clone)]
pub struct Integrity<'a> {
    /// The artifact.
    pub artifact: &'a [u8],
    /// The candidate's commit.
    pub commit: &'a str,
    /// The golden's path as it may be published.
    pub golden_path: &'a str,
    /// The golden as it was read again after the run.
    pub golden: ContentPin,
    /// The contract.
    pub contract: ContentPin,
    /// Of the trusted tree.
    pub harness: Digest,
    /// Of the weights.
    pub weights: Digest,
    /// Of the worker's program.
    pub engine: Digest,
    /// Of the benchmarker's own program.
    pub benchd: Digest,
    /// What held the workers.
    pub sandbox: &'a str,
}

/// The integrity record's bytes: pretty, keys in order, with a newline.
pub fn integrity(of: &Integrity<'_>) -> Result<Vec<u8>, SealError> {
    let pin = |pin: ContentPin| json!({ "bytes": pin.bytes, "sha256": pin.sha256.to_string() });
    let record = json!({
        "version": 1,
        "score_sha256": sha256(of.artifact).to_string(),
        "score_bytes": of.artifact.len(),
        "commit": of.commit,
        "golden": { "path": of.golden_path, "pin": pin(of.golden) },
        "contract": pin(of.contract),
        "harness_hash": of.harness.to_string(),
        "weights_hash": of.weights.to_string(),
        "engine_sha256": of.engine.to_string(),
        "benchd_sha256": of.benchd.to_string(),
        "sandbox": of.sandbox,
    });
    let mut bytes = serde_json::to_vec_pretty(&in_order(record)).map_err(SealError::Json)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Whether an integrity record is the one of an artifact.
pub fn verify_integrity(record: &[u8], artifact: &[u8]) -> Result<(), SealError> {
    let tampered = |what| SealError::Tampered { what };
    let value = fields::parse(record).map_err(SealError::Json)?;
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    if text("score_sha256") != Some(sha256(artifact).to_string().as_str()) {
        return Err(tampered("the integrity record is of another artifact".into()));
    }
    let seal: Value = serde_json::from_slice(artifact).map_err(SealError::Json)?;
    let golden = value.pointer("/golden/pin/sha256").and_then(Value::as_str);
    let contract = value.pointer("/contract/sha256").and_then(Value::as_str);
    for (key, recorded) in [
        ("commit", text("commit")),
        ("golden_hash", golden),
        ("contract_sha256", contract),
        ("harness_hash", text("harness_hash")),
        ("weights_hash", text("weights_hash")),
    ] {
        let sealed = seal.pointer(&format!("/metrics/{key}")).and_then(Value::as_str);
        if recorded.is_none() || sealed != recorded {
            return Err(tampered(format!("the integrity record and the artifact have another `{key}`")));
        }
    }
    Ok(())
}

/// Everything that is computed from a score, its pairs and its rule.
fn judged(scored: &Scored<'_>) -> Result<Map<String, Value>, serde_json::Error> {
    let Scored { rule, score, calibration, .. } = scored;
    let Bands { prefill_up, prefill_down, prefill_down_enabled, decode_up, decode_down, decode_down_enabled } =
        rule.bands;
    let Axes { decode, prefill } = score.candidate;
    let value = json!({
        "decode_seconds_per_token": decode,
        "prefill_seconds_per_token": prefill,
        "candidate_leg_decode_seconds_per_token": decode,
        "candidate_leg_prefill_seconds_per_token": prefill,
        "baseline_decode_seconds_per_token": score.control.decode,
        "baseline_prefill_seconds_per_token": score.control.prefill,
        "baseline_leg_decode_seconds_per_token": score.control.decode,
        "baseline_leg_prefill_seconds_per_token": score.control.prefill,
        "decode_speedup": score.gains.decode,
        "prefill_speedup": score.gains.prefill,
        "decode_speedup_floor": rule.floors.decode,
        "prefill_speedup_floor": rule.floors.prefill,
        "passed_decode_speedup_floor": true,
        "passed_prefill_speedup_floor": true,
        "decode_gain_ceiling": rule.decode_ceiling,
        "official_pair_combine": combine_name(rule.combine),
        "decode_figure": figure_name(scored.decode_figure),
        "score_decode_weight": rule.weights.decode,
        "score_prefill_weight": rule.weights.prefill,
        "prefill_band_up_tolerance": prefill_up,
        "prefill_band_down_tolerance": prefill_down,
        "prefill_band_down_enabled": prefill_down_enabled,
        "decode_band_up_tolerance": decode_up,
        "decode_band_down_tolerance": decode_down,
        "decode_band_down_enabled": decode_down_enabled,
        "baseline_source": "serial-control-leg",
        "baseline_band_passed": true,
        "baseline_box": calibration.box_name,
        "baseline_reference_commit": calibration.reference_commit,
        "baseline_calibration": serde_json::to_value(calibration)?,
        "calibration_max_cv": scored.max_cv,
        "timed_token_tolerance_per_thousand": scored.tolerance_per_thousand,
        "timed_stream_tokens": scored.stream_tokens,
        "paired_legs": scored.legs.iter().zip(1_u64..).map(|(leg, number)| pair_value(number, leg)).collect::<Vec<_>>(),
    });
    Ok(match value {
        Value::Object(map) => map,
        _ => Map::new(),
    })
}

/// One entry of `paired_legs`; `number` counts from 1.
pub fn pair_value(number: u64, record: &PairRecord) -> Value {
    let PairRecord { pair, divergence } = record;
    json!({
        "pair": number,
        "control_prefill_seconds_per_token": pair.control.prefill,
        "control_decode_seconds_per_token": pair.control.decode,
        "candidate_prefill_seconds_per_token": pair.candidate.prefill,
        "candidate_decode_seconds_per_token": pair.candidate.decode,
        "token_mismatch_count": divergence.mismatches.count,
        "token_mismatch_first_step": divergence.mismatches.first,
        "token_mismatch_near_tie_count": divergence.near_ties,
        "token_mismatch_second_choice_count": divergence.second_choices,
        "token_mismatch_second_choice_max_relative_gap": divergence.second_choice_max_relative_gap,
    })
}

/// The same value with the keys of every object in ascending order, whatever serde_json was built to keep.
fn in_order(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(entries.into_iter().map(|(key, value)| (key, in_order(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(in_order).collect()),
        scalar => scalar,
    }
}
