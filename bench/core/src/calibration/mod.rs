//! A box's calibration: what the serial reference tree takes there, and how far a control leg may be from it (benchd.md 8).
//!
//! It says whether a box is in the state in which it was measured. No figure of it reaches a score.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::contract::{Axes, Calibration, Range};
use crate::json;
use crate::pin::is_lower_hex;
use crate::refusal::Refusal;
use crate::stats;

/// Fewest passes: a spread is that of at least two.
pub const MIN_PASSES: u32 = 2;
/// How far ahead of our clock a calibration may have been made.
const CLOCKS_APART: Duration = Duration::from_secs(300);
/// No mean is that long (track-contract.md 7.5).
const MAX_MEAN_SECONDS: f64 = 60.0;

/// A calibration file that passed every check that needs nothing but its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxCalibration {
    version: u32,
    /// Of which track.
    pub track_id: String,
    /// The machine's name.
    #[serde(rename = "box")]
    pub box_name: String,
    /// The commit of the tree that was measured, 40 digits.
    pub reference_commit: String,
    /// The golden's prompt.
    pub prompt: String,
    /// How often it was measured.
    pub passes: u32,
    prefill_seconds_per_token_mean: f64,
    decode_seconds_per_token_mean: f64,
    prefill_cv: f64,
    decode_cv: f64,
    prefill_band_low: f64,
    prefill_band_high: f64,
    decode_band_low: f64,
    decode_band_high: f64,
    /// RFC 3339, UTC.
    pub captured_at: String,
    /// The commit of the benchd that measured, 40 digits.
    pub benchd_source_commit: String,
}

/// What was measured, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Of which track.
    pub track_id: String,
    /// The machine's name.
    pub box_name: String,
    /// The tree, 40 digits.
    pub reference_commit: String,
    /// The golden's prompt.
    pub prompt: String,
    /// RFC 3339, UTC.
    pub captured_at: String,
    /// 40 digits.
    pub benchd_source_commit: String,
}

/// Why a calibration is refused, or a leg by it.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// Not the document.
    #[error("{}: it is no calibration; write one with tools/calibrate-box.sh", Refusal::BaselineCalibrationInvalid)]
    Json(#[source] serde_json::Error),
    /// A value that cannot be.
    #[error("{}: `{key}` is {found}; must be {wanted}", Refusal::BaselineCalibrationInvalid)]
    Field {
        /// Which.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What belongs there.
        wanted: &'static str,
    },
    /// Passes too far apart, of the file or just measured.
    #[error(
        "{}: {axis} varies by {cv:.4} over {passes} passes, the track allows {max}; quieten the box and calibrate it again",
        Refusal::CalibrationCvExceeded
    )]
    Spread {
        /// `prefill` or `decode`.
        axis: &'static str,
        /// Deviation over mean.
        cv: f64,
        /// How many.
        passes: u32,
        /// Of the track.
        max: f64,
    },
    /// Of another track, box, prompt or tree.
    #[error(
        "{refusal}: the calibration's `{key}` is `{found}`, the run's is `{wanted}`; calibrate this box for this run"
    )]
    Other {
        /// Its name.
        refusal: Refusal,
        /// Which key.
        key: &'static str,
        /// In the file.
        found: String,
        /// Of the run.
        wanted: String,
    },
    /// A leg that is not what the box was calibrated to.
    #[error(
        "{}: {axis} took {measured} s/token, {ratio:.4} of the calibrated {mean}; the band is {low}..={high}",
        Refusal::SerialControlLegOutsideBand
    )]
    OutsideBand {
        /// `prefill` or `decode`.
        axis: &'static str,
        /// Of the leg.
        measured: f64,
        /// Of the calibration.
        mean: f64,
        /// Leg over calibration.
        ratio: f64,
        /// Least allowed.
        low: f64,
        /// Most allowed.
        high: f64,
    },
}

impl CalibrationError {
    /// The name that it refuses by.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Json(_) | Self::Field { .. } => Refusal::BaselineCalibrationInvalid,
            Self::Spread { .. } => Refusal::CalibrationCvExceeded,
            Self::Other { refusal, .. } => *refusal,
            Self::OutsideBand { .. } => Refusal::SerialControlLegOutsideBand,
        }
    }
}

type Checked = Result<(), CalibrationError>;

fn field(key: &'static str, found: impl ToString, wanted: &'static str) -> CalibrationError {
    CalibrationError::Field { key, found: found.to_string(), wanted }
}

fn time(text: &str) -> Option<Timestamp> {
    text.ends_with('Z').then(|| text.parse().ok()).flatten()
}

impl BoxCalibration {
    /// Of passes of the control leg. Refuses a spread above the track's, and whatever [`parse`](Self::parse) would.
    pub fn of_passes(subject: Subject, passes: &[Axes], track: &Calibration) -> Result<Self, CalibrationError> {
        let of = |axis: fn(&Axes) -> f64| passes.iter().map(axis).collect::<Vec<_>>();
        let (prefill, decode) = (of(|pass| pass.prefill), of(|pass| pass.decode));
        // A figure that is none stays none, and the file's own check refuses it by its key.
        let figure = |figure: Option<f64>| figure.unwrap_or(f64::NAN);
        let calibration = Self {
            version: 1,
            track_id: subject.track_id,
            box_name: subject.box_name,
            reference_commit: subject.reference_commit,
            prompt: subject.prompt,
            passes: u32::try_from(passes.len()).unwrap_or(u32::MAX),
            prefill_seconds_per_token_mean: figure(stats::mean(&prefill)),
            decode_seconds_per_token_mean: figure(stats::mean(&decode)),
            prefill_cv: figure(stats::sample_cv(&prefill)),
            decode_cv: figure(stats::sample_cv(&decode)),
            prefill_band_low: track.prefill.low,
            prefill_band_high: track.prefill.high,
            decode_band_low: track.decode.low,
            decode_band_high: track.decode.high,
            captured_at: subject.captured_at,
            benchd_source_commit: subject.benchd_source_commit,
        };
        if let Some(bad) = prefill.iter().chain(&decode).find(|seconds| !is_time(**seconds)) {
            return Err(field("passes", format!("one of {bad} s/token"), "of finite times above 0"));
        }
        calibration.check(track.max_cv)?;
        Ok(calibration)
    }

    /// Reads a file, closed. Refuses a spread above `max_cv`, the track's.
    pub fn parse(bytes: &[u8], max_cv: f64) -> Result<Self, CalibrationError> {
        let calibration: Self = json::document(bytes).map_err(CalibrationError::Json)?;
        calibration.check(max_cv)?;
        Ok(calibration)
    }

    /// As it is written: pretty, with a newline.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn check(&self, max_cv: f64) -> Checked {
        if self.version != 1 {
            return Err(field("version", self.version, "1"));
        }
        for (key, text) in [("track_id", &self.track_id), ("box", &self.box_name), ("prompt", &self.prompt)] {
            if text.trim().is_empty() || text.contains(char::is_control) {
                return Err(field(key, format!("{text:?}"), "a text that is not blank, without control characters"));
            }
        }
        for (key, text) in
            [("reference_commit", &self.reference_commit), ("benchd_source_commit", &self.benchd_source_commit)]
        {
            if !is_lower_hex(text, 40) {
                return Err(field(key, format!("{text:?}"), "40 lower-case hexadecimal digits"));
            }
        }
        if self.passes < MIN_PASSES {
            return Err(field("passes", self.passes, "2 or more: one pass has no spread"));
        }
        for (key, seconds) in [
            ("prefill_seconds_per_token_mean", self.prefill_seconds_per_token_mean),
            ("decode_seconds_per_token_mean", self.decode_seconds_per_token_mean),
        ] {
            if !is_time(seconds) {
                return Err(field(key, seconds, "a finite number above 0"));
            }
        }
        for (key, axis, cv) in [("prefill_cv", "prefill", self.prefill_cv), ("decode_cv", "decode", self.decode_cv)] {
            if !(cv.is_finite() && cv >= 0.0) {
                return Err(field(key, cv, "a finite fraction, 0 or more"));
            }
            if cv > max_cv {
                return Err(CalibrationError::Spread { axis, cv, passes: self.passes, max: max_cv });
            }
        }
        for (keys, Range { low, high }) in [
            (["prefill_band_low", "prefill_band_high"], self.prefill_band()),
            (["decode_band_low", "decode_band_high"], self.decode_band()),
        ] {
            if !(low.is_finite() && low > 0.0 && low <= 1.0) {
                return Err(field(keys[0], low, "above 0 and at most 1"));
            }
            if !(high.is_finite() && high >= 1.0) {
                return Err(field(keys[1], high, "a finite number, 1 or more"));
            }
        }
        match time(&self.captured_at) {
            Some(_) => Ok(()),
            None => Err(field("captured_at", format!("{:?}", self.captured_at), "a time of RFC 3339 in UTC")),
        }
    }

    fn prefill_band(&self) -> Range {
        Range { low: self.prefill_band_low, high: self.prefill_band_high }
    }

    fn decode_band(&self) -> Range {
        Range { low: self.decode_band_low, high: self.decode_band_high }
    }

    /// Seconds a token of the reference tree on this box.
    pub fn means(&self) -> Axes {
        Axes { decode: self.decode_seconds_per_token_mean, prefill: self.prefill_seconds_per_token_mean }
    }

    /// Refuses a calibration of another track, box, prompt or reference tree, in this order (benchd.md 7, step 14).
    pub fn expect(&self, track_id: &str, box_name: &str, prompt: &str, reference_commit: &str) -> Checked {
        use Refusal::{
            BaselineCalibrationBoxMismatch, BaselineCalibrationCommitMismatch, BaselineCalibrationPromptMismatch,
            BaselineCalibrationTrackMismatch,
        };
        for (refusal, key, found, wanted) in [
            (BaselineCalibrationTrackMismatch, "track_id", &self.track_id, track_id),
            (BaselineCalibrationBoxMismatch, "box", &self.box_name, box_name),
            (BaselineCalibrationPromptMismatch, "prompt", &self.prompt, prompt),
            (BaselineCalibrationCommitMismatch, "reference_commit", &self.reference_commit, reference_commit),
        ] {
            if found != wanted {
                let (found, wanted) = (found.clone(), wanted.to_owned());
                return Err(CalibrationError::Other { refusal, key, found, wanted });
            }
        }
        Ok(())
    }

    /// Refuses what a box's owner would not sign (track-contract.md 7.5): means of a minute, bands as wide as a factor of
    /// two, a time before the reference commit was made or later than now.
    pub fn expect_plausible(&self, now: Timestamp, committed: Timestamp) -> Checked {
        for (key, seconds) in [
            ("prefill_seconds_per_token_mean", self.prefill_seconds_per_token_mean),
            ("decode_seconds_per_token_mean", self.decode_seconds_per_token_mean),
        ] {
            if seconds >= MAX_MEAN_SECONDS {
                return Err(field(key, seconds, "below 60 s"));
            }
        }
        for (keys, Range { low, high }) in [
            (["prefill_band_low", "prefill_band_high"], self.prefill_band()),
            (["decode_band_low", "decode_band_high"], self.decode_band()),
        ] {
            if low <= 0.5 {
                return Err(field(keys[0], low, "above 0.5"));
            }
            if high >= 2.0 {
                return Err(field(keys[1], high, "below 2"));
            }
        }
        let captured = time(&self.captured_at);
        let ahead = now.checked_add(CLOCKS_APART).ok();
        if captured.is_none() || captured < Some(committed) {
            return Err(field("captured_at", &self.captured_at, "not before the reference commit was made"));
        }
        if ahead.is_some() && captured > ahead {
            return Err(field("captured_at", &self.captured_at, "no more than 300 s from now"));
        }
        Ok(())
    }

    /// Refuses a control leg outside the band, on either side: one that is too fast is as suspect as one that is too slow
    /// (design 8). A time that is none is outside.
    pub fn expect_in_band(&self, leg: Axes) -> Checked {
        for (axis, measured, mean, band) in [
            ("prefill", leg.prefill, self.prefill_seconds_per_token_mean, self.prefill_band()),
            ("decode", leg.decode, self.decode_seconds_per_token_mean, self.decode_band()),
        ] {
            let Range { low, high } = band;
            let inside = is_time(measured) && measured >= mean * low && measured <= mean * high;
            if !inside {
                let ratio = measured / mean;
                return Err(CalibrationError::OutsideBand { axis, measured, mean, ratio, low, high });
            }
        }
        Ok(())
    }
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}
