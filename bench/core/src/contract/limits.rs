//! What is measured around a run and how far it may go.

use super::Platform;
use crate::fields::{FieldError, Fields};

/// `low..=high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Least allowed.
    pub low: f64,
    /// Most allowed.
    pub high: f64,
}

/// Acceptance bands around the control leg, as fractions (benchd.md 9.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bands {
    /// How much slower prefill may be.
    pub prefill_up: f64,
    /// How much faster.
    pub prefill_down: f64,
    /// Whether the faster side is looked at.
    pub prefill_down_enabled: bool,
    /// How much slower decode may be.
    pub decode_up: f64,
    /// How much faster.
    pub decode_down: f64,
    /// Whether the faster side is looked at.
    pub decode_down_enabled: bool,
}

/// How steady a machine must be, and how far a control leg may be from its calibration (benchd.md 8).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// `calibration_max_cv`.
    pub max_cv: f64,
    /// Of the mean: `calibration_prefill_band_low`, `_high`.
    pub prefill: Range,
    /// Of the mean: `calibration_decode_band_low`, `_high`.
    pub decode: Range,
}

/// `memory_plan`: what a load needs beside its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// For one session.
    pub session_bytes: u64,
    /// To stay free.
    pub headroom_bytes: u64,
}

/// Limits of a run. A shared machine holds less than a box of its own, so a fixture may set each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// `cool_gate_celsius`. `None`: the platform has no gate (track-contract.md 12.5).
    pub cool_gate_celsius: Option<f64>,
    /// `quiescence_max_load`: the 1-minute load must be below it.
    pub quiescence_max_load: f64,
    /// `quiescence_max_gpu_percent`. `None`: no GPU is looked at.
    pub quiescence_max_gpu_percent: Option<f64>,
    /// `prefill_window_tolerance`: how far the parts of a timed window may be from the whole.
    pub prefill_window_tolerance: f64,
    /// `prefill_window_min_ratio`: a seed window shorter than this part of the prefill phase is not believed.
    pub prefill_window_min_ratio: f64,
    /// `fresh_prompt_max_ratio`: a fresh prompt may take this much more than the scored one.
    pub fresh_prompt_max_ratio: f64,
    /// Of control legs.
    pub calibration: Calibration,
    /// `None`: that of benchd.md.
    pub memory_plan: Option<MemoryPlan>,
}

const CALIBRATION_BANDS: [&str; 4] = [
    "calibration_prefill_band_low",
    "calibration_prefill_band_high",
    "calibration_decode_band_low",
    "calibration_decode_band_high",
];

pub(super) fn read(root: &Fields<'_>, platform: Platform) -> Result<Limits, FieldError> {
    let cool_gate = match platform {
        Platform::Cuda => Some(60.0),
        Platform::Mlx => Some(40.0),
        Platform::Cpu => None,
    };
    let gpu_percent = (platform == Platform::Cuda).then_some(10.0);
    let fraction = |key: &str, default: f64| {
        let found = root.number(key, "above 0 and below 1", |number| number > 0.0 && number < 1.0);
        found.map(|found| found.unwrap_or(default))
    };
    let below = |key: &str, default: f64| {
        let found = root.number(key, "above 0 and at most 1", |number| number > 0.0 && number <= 1.0);
        found.map(|found| found.unwrap_or(default))
    };
    let above = |key: &str, default: f64| {
        root.number(key, "1 or more", |number| number >= 1.0).map(|found| found.unwrap_or(default))
    };
    root.group(&CALIBRATION_BANDS)?;
    let [prefill_low, prefill_high, decode_low, decode_high] = CALIBRATION_BANDS;
    let memory_plan = match root.object("memory_plan")? {
        None => None,
        Some(plan) => {
            let bytes = |key: &str| {
                let wanted = "a positive number of bytes";
                plan.need(key, plan.integer(key, 1, u64::MAX, wanted)?, wanted)
            };
            Some(MemoryPlan { session_bytes: bytes("session_bytes")?, headroom_bytes: bytes("headroom_bytes")? })
        }
    };
    Ok(Limits {
        cool_gate_celsius: root.positive("cool_gate_celsius")?.or(cool_gate),
        quiescence_max_load: root.positive("quiescence_max_load")?.unwrap_or(2.0),
        quiescence_max_gpu_percent: root.positive("quiescence_max_gpu_percent")?.or(gpu_percent),
        prefill_window_tolerance: fraction("prefill_window_tolerance", 0.05)?,
        prefill_window_min_ratio: below("prefill_window_min_ratio", 0.7)?,
        fresh_prompt_max_ratio: above("fresh_prompt_max_ratio", 1.5)?,
        calibration: Calibration {
            max_cv: fraction("calibration_max_cv", 0.01)?,
            prefill: Range { low: below(prefill_low, 0.95)?, high: above(prefill_high, 1.05)? },
            decode: Range { low: below(decode_low, 0.98)?, high: above(decode_high, 1.02)? },
        },
        memory_plan,
    })
}
