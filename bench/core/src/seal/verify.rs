//! A sealed file read again, with nothing beside it.

use serde_json::{Map, Value};

use super::{DIGEST, Seal, combine_name, in_order};
use crate::calibration::{BoxCalibration, CalibrationError};
use crate::contract::{Axes, Bands, PairCombine};
use crate::fidelity::Budget;
use crate::fields::{self, FieldError, Fields};
use crate::pin::sha256;
use crate::refusal::Refusal;
use crate::score::{Pair, Rule, ScoreError};

/// Why a file is no seal, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// Not JSON, or a key twice.
    #[error("{}: the file is no sealed result", Refusal::SealTampered)]
    Json(#[source] serde_json::Error),
    /// A key with the wrong thing behind it, or with nothing.
    #[error("{name}: {0}", name = Refusal::SealTampered)]
    Field(#[from] FieldError),
    /// Bytes that are not those that were sealed.
    #[error("{}: {what}; measure again, or take the file from where it was sealed", Refusal::SealTampered)]
    Tampered {
        /// What does not fit.
        what: String,
    },
    /// Pairs that no score comes of.
    #[error("{name}: the sealed pairs do not pass: {0}", name = Refusal::SealTampered)]
    Score(#[from] ScoreError),
    /// A control leg that its own calibration refuses.
    #[error("{name}: the sealed control legs do not pass: {0}", name = Refusal::SealTampered)]
    Calibration(#[from] CalibrationError),
}

const NUMBER: &str = "a finite number";
const COUNT: &str = "a count";

/// A result's numbers, each named when it is not there.
struct Metrics<'a>(Fields<'a>);

impl<'a> Metrics<'a> {
    fn number(&self, key: &str) -> Result<f64, FieldError> {
        self.0.need(key, self.0.number(key, NUMBER, |_| true)?, NUMBER)
    }

    fn count(&self, key: &str) -> Result<u64, FieldError> {
        self.0.need(key, self.0.integer(key, 0, u64::MAX, COUNT)?, COUNT)
    }

    fn flag(&self, key: &str) -> Result<bool, FieldError> {
        self.0.need(key, self.0.flag(key)?, "true or false")
    }

    fn axes(&self, decode: &str, prefill: &str) -> Result<Axes, FieldError> {
        Ok(Axes { decode: self.number(decode)?, prefill: self.number(prefill)? })
    }
}

impl Seal {
    /// Reads an artifact: its form and its digest of itself. Local results are read too.
    pub fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let tampered = |what: &str| SealError::Tampered { what: what.into() };
        let value = fields::parse(bytes).map_err(SealError::Json)?;
        let root = Fields::root(&value).ok_or_else(|| tampered("the file is no JSON object"))?;
        if let Some(key) = root.unknown(&["metrics", "passed", "score"]).first() {
            return Err(tampered(&format!("`{key}` is no key of a sealed result")));
        }
        let passed = root.need("passed", root.flag("passed")?, "true or false")?;
        let score = match root.get("score") {
            Some(Value::Null) => None,
            _ => Some(root.need("score", root.number("score", NUMBER, |_| true)?, "a number or null")?),
        };
        let metrics = value.get("metrics").and_then(Value::as_object);
        let metrics = metrics.ok_or_else(|| root.wrong("metrics", "an object"))?;
        let sealed = metrics.get(DIGEST).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut plain: Map<String, Value> = metrics.clone();
        plain.remove(DIGEST);
        let seal = Self { score, passed, metrics: plain };
        // Another spelling of the same values is another file.
        if serde_json::to_vec_pretty(&in_order(value.clone())).map_err(SealError::Json)? != bytes {
            return Err(tampered("the file is not in the form in which results are sealed"));
        }
        if sha256(&seal.bytes_of(&seal.metrics)?).to_string() != sealed {
            return Err(tampered("the document is not the one its seal_sha256 is of"));
        }
        Ok(seal)
    }

    /// Verifies a scored artifact from its bytes alone: everything that a gate looked at is computed again.
    pub fn verify(bytes: &[u8]) -> Result<Self, SealError> {
        let seal = Self::parse(bytes)?;
        let tampered = |what: String| SealError::Tampered { what };
        let score = seal.score.ok_or_else(|| tampered("the result has no score: nobody is scored by it".into()))?;
        let document = Value::Object(seal.metrics.clone());
        let metrics = Metrics(Fields::root(&document).ok_or_else(|| tampered("the result has no metrics".into()))?);
        for (key, wanted) in [
            ("passed_correctness", true),
            ("passed_decode_speedup_floor", true),
            ("passed_prefill_speedup_floor", true),
            ("baseline_band_passed", true),
            ("partial_result", false),
        ] {
            if metrics.flag(key)? != wanted {
                return Err(tampered(format!("`{key}` is {}: such a run is never sealed", !wanted)));
            }
        }
        if !seal.passed || seal.metrics.get("error").is_some_and(|error| !error.is_null()) {
            return Err(tampered("a run that did not pass is never sealed".into()));
        }
        let rule = rule(&metrics)?;
        let pairs = pairs(&metrics)?;
        let judged = rule.judge(&pairs)?;
        for (key, found, wanted) in [
            ("score", score, judged.score),
            ("decode_speedup", metrics.number("decode_speedup")?, judged.gains.decode),
            ("prefill_speedup", metrics.number("prefill_speedup")?, judged.gains.prefill),
            ("decode_seconds_per_token", metrics.number("decode_seconds_per_token")?, judged.candidate.decode),
            ("prefill_seconds_per_token", metrics.number("prefill_seconds_per_token")?, judged.candidate.prefill),
            (
                "baseline_decode_seconds_per_token",
                metrics.number("baseline_decode_seconds_per_token")?,
                judged.control.decode,
            ),
            (
                "baseline_prefill_seconds_per_token",
                metrics.number("baseline_prefill_seconds_per_token")?,
                judged.control.prefill,
            ),
        ] {
            if found != wanted {
                return Err(tampered(format!("`{key}` is {found}, its pairs give {wanted}")));
            }
        }
        control_legs(&seal.metrics, &metrics, &pairs)?;
        Ok(seal)
    }
}

fn rule(metrics: &Metrics<'_>) -> Result<Rule, SealError> {
    let combines =
        [PairCombine::RatioOfSums, PairCombine::LowerMedian, PairCombine::Mean].map(|one| (combine_name(one), one));
    let wanted = "`ratio_of_sums`, `lower_median` or `mean`";
    let combine = metrics.0.word("official_pair_combine", &combines, wanted)?;
    let decode_ceiling = match metrics.0.get("decode_gain_ceiling") {
        Some(Value::Null) => None,
        _ => Some(metrics.number("decode_gain_ceiling")?),
    };
    Ok(Rule {
        combine: metrics.0.need("official_pair_combine", combine, wanted)?,
        weights: metrics.axes("score_decode_weight", "score_prefill_weight")?,
        floors: metrics.axes("decode_speedup_floor", "prefill_speedup_floor")?,
        decode_ceiling,
        bands: Bands {
            prefill_up: metrics.number("prefill_band_up_tolerance")?,
            prefill_down: metrics.number("prefill_band_down_tolerance")?,
            prefill_down_enabled: metrics.flag("prefill_band_down_enabled")?,
            decode_up: metrics.number("decode_band_up_tolerance")?,
            decode_down: metrics.number("decode_band_down_tolerance")?,
            decode_down_enabled: metrics.flag("decode_band_down_enabled")?,
        },
    })
}

/// The pairs, each with its number and a stream inside the token budget.
fn pairs(metrics: &Metrics<'_>) -> Result<Vec<Pair>, SealError> {
    let wanted = "a list of pairs";
    let tolerance = metrics.count("timed_token_tolerance_per_thousand")?;
    let budget = u32::try_from(tolerance).ok().and_then(Budget::new);
    let budget = budget.ok_or_else(|| metrics.0.wrong("timed_token_tolerance_per_thousand", "0..=1000"))?;
    let tokens = metrics.count("timed_stream_tokens")?;
    let entries = metrics.0.need("paired_legs", metrics.0.objects("paired_legs")?, wanted)?;
    let mut pairs = Vec::new();
    for (entry, number) in entries.into_iter().zip(1_u64..) {
        let entry = Metrics(entry);
        if entry.count("pair")? != number {
            return Err(entry.0.wrong("pair", "the pair's place in the list").into());
        }
        let mismatches = entry.count("token_mismatch_count")?;
        let [mismatches, tokens] = [mismatches, tokens].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        if mismatches > tokens || budget.is_exceeded(mismatches, tokens) {
            return Err(entry.0.wrong("token_mismatch_count", "inside the track's token budget").into());
        }
        pairs.push(Pair {
            control: entry.axes("control_decode_seconds_per_token", "control_prefill_seconds_per_token")?,
            candidate: entry.axes("candidate_decode_seconds_per_token", "candidate_prefill_seconds_per_token")?,
        });
    }
    Ok(pairs)
}

/// The calibration that was sealed with the run, and every control leg inside its band.
fn control_legs(all: &Map<String, Value>, metrics: &Metrics<'_>, pairs: &[Pair]) -> Result<(), SealError> {
    let sealed = all.get("baseline_calibration").ok_or_else(|| metrics.0.wrong("baseline_calibration", "an object"))?;
    let bytes = serde_json::to_vec(sealed).map_err(SealError::Json)?;
    let calibration = BoxCalibration::parse(&bytes, metrics.number("calibration_max_cv")?)?;
    let text = |key: &str| all.get(key).and_then(Value::as_str);
    for (key, wanted) in
        [("baseline_box", &calibration.box_name), ("baseline_reference_commit", &calibration.reference_commit)]
    {
        if text(key) != Some(wanted) {
            return Err(metrics.0.wrong(key, "that of baseline_calibration").into());
        }
    }
    for pair in pairs {
        calibration.expect_in_band(pair.control)?;
    }
    Ok(())
}
