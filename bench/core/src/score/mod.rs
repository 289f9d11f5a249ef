//! The score: what the pairs of a run say about a candidate, and the gates it must pass (benchd.md 9).
//!
//! [`aggregate`] makes one [`Score`] of measured [`Pair`]s; [`Rule::judge`] holds it to the track's gates. A time that is none
//! is refused before anything is computed with it: no figure here can come from a zero, a negative or a NaN.

#[cfg(test)]
mod tests;

use crate::contract::{Axes, Bands, Contract, ContractError, PairCombine};
use crate::refusal::Refusal;
use crate::stats;

/// Seconds a token of one pair's legs: of the same run, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The serial control leg.
    pub control: Axes,
    /// The candidate's leg behind it.
    pub candidate: Axes,
}

/// What the pairs say together.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Seconds a token of the control legs.
    pub control: Axes,
    /// Seconds a token of the candidate's.
    pub candidate: Axes,
    /// Control over candidate: above 1 is faster.
    pub gains: Axes,
    /// The composite.
    pub score: f64,
    /// The gains that the gates look at: the aggregate's, or each pair's where a score is the mean of pairs.
    gated: Vec<Axes>,
}

/// How pairs become a score and what a score must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// How pairs become one figure.
    pub combine: PairCombine,
    /// Exponents, relative to their sum.
    pub weights: Axes,
    /// Gains below these refuse.
    pub floors: Axes,
    /// Decode gains above this are not believed.
    pub decode_ceiling: Option<f64>,
    /// Gains beyond these are not believed either, where their fast sides are switched on.
    pub bands: Bands,
}

/// Why there is no score.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScoreError {
    /// Nothing was measured.
    #[error("computed score was not finite: no pair was measured")]
    NoPairs,
    /// A time that is none.
    #[error("computed score was not finite: pair {pair}, {leg} leg: {axis} took {found} s/token")]
    Time {
        /// Counted from 1.
        pair: usize,
        /// `control` or `candidate`.
        leg: &'static str,
        /// `prefill` or `decode`.
        axis: &'static str,
        /// What was measured.
        found: f64,
    },
    /// Times so far apart that their ratio is no number.
    #[error("computed score was not finite")]
    NotFinite,
    /// Slower than the track allows.
    #[error(
        "performance floor failed: decode_speedup={:.6} floor={:.6} prefill_speedup={:.6} floor={:.6}",
        gains.decode, floors.decode, gains.prefill, floors.prefill
    )]
    Floor {
        /// What was reached.
        gains: Axes,
        /// What is demanded.
        floors: Axes,
    },
    /// Faster than the track's band.
    #[error("acceptance band failed: {axis}_speedup={gain:.6} is above {most:.6}, the fast side of the band")]
    Band {
        /// `prefill` or `decode`.
        axis: &'static str,
        /// What was reached.
        gain: f64,
        /// What is believed.
        most: f64,
    },
    /// Faster than anything the track believes.
    #[error(
        "{}: decode_speedup={gain:.6} is above the track's decode_gain_ceiling {ceiling:.6}",
        Refusal::DecodeGainAboveCeiling
    )]
    Ceiling {
        /// What was reached.
        gain: f64,
        /// What is believed.
        ceiling: f64,
    },
}

impl ScoreError {
    /// The name that the gate refuses by.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::NoPairs | Self::Time { .. } | Self::NotFinite => Refusal::ScoreNotFinite,
            Self::Floor { .. } => Refusal::PerformanceFloorFailed,
            Self::Band { .. } => Refusal::AcceptanceBandFailed,
            Self::Ceiling { .. } => Refusal::DecodeGainAboveCeiling,
        }
    }
}

/// How often `candidate` fits into `base`; 0 where either is no time (benchd.md 9.1).
pub fn gain(base: f64, candidate: f64) -> f64 {
    let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
    if is_time(base) && is_time(candidate) { base / candidate } else { 0.0 }
}

/// `prefill^(wp / (wp + wd)) * decode^(wd / (wp + wd))` (benchd.md 9.1). An axis of weight 0 is not looked at, and one that
/// has all of it is returned as it is. NaN for weights that are none, and for a gain that is looked at and not above 0.
pub fn composite(gains: Axes, weights: Axes) -> f64 {
    let sum = weights.prefill + weights.decode;
    let legal = |weight: f64| weight.is_finite() && weight >= 0.0;
    if !(legal(weights.prefill) && legal(weights.decode) && sum.is_finite() && sum > 0.0) {
        return f64::NAN;
    }
    let factor = |gain: f64, weight: f64| match weight / sum {
        0.0 => 1.0,
        _ if gain.is_nan() || gain <= 0.0 => f64::NAN,
        1.0 => gain,
        exponent => gain.powf(exponent),
    };
    factor(gains.prefill, weights.prefill) * factor(gains.decode, weights.decode)
}

impl Pair {
    /// Control over candidate.
    pub fn gains(&self) -> Axes {
        Axes {
            decode: gain(self.control.decode, self.candidate.decode),
            prefill: gain(self.control.prefill, self.candidate.prefill),
        }
    }
}

fn expect_times(pairs: &[Pair]) -> Result<(), ScoreError> {
    for (index, pair) in pairs.iter().enumerate() {
        for (leg, times) in [("control", pair.control), ("candidate", pair.candidate)] {
            for (axis, found) in [("prefill", times.prefill), ("decode", times.decode)] {
                if !(found.is_finite() && found > 0.0) {
                    return Err(ScoreError::Time { pair: index + 1, leg, axis, found });
                }
            }
        }
    }
    if pairs.is_empty() { Err(ScoreError::NoPairs) } else { Ok(()) }
}

/// The mean of one figure over pairs or gains, the same in whatever order they come.
fn mean_of<T>(of: &[T], axis: impl Fn(&T) -> f64) -> Result<f64, ScoreError> {
    stats::mean(&of.iter().map(axis).collect::<Vec<_>>()).ok_or(ScoreError::NotFinite)
}

fn means<T>(of: &[T], axes: impl Fn(&T) -> Axes) -> Result<Axes, ScoreError> {
    Ok(Axes { decode: mean_of(of, |item| axes(item).decode)?, prefill: mean_of(of, |item| axes(item).prefill)? })
}

/// One score of all pairs (benchd.md 9.2 and 9.4). Refuses a time that is none; gates are [`Rule::judge`]'s.
pub fn aggregate(pairs: &[Pair], combine: PairCombine, weights: Axes) -> Result<Score, ScoreError> {
    expect_times(pairs)?;
    let each: Vec<Axes> = pairs.iter().map(Pair::gains).collect();
    let scores: Vec<f64> = each.iter().map(|gains| composite(*gains, weights)).collect();
    let score = match combine {
        PairCombine::RatioOfSums => {
            let (control, candidate) = (means(pairs, |pair| pair.control)?, means(pairs, |pair| pair.candidate)?);
            let gains = Pair { control, candidate }.gains();
            Score { control, candidate, gains, score: composite(gains, weights), gated: vec![gains] }
        }
        PairCombine::LowerMedian => {
            let index = stats::lower_median_index(&scores).ok_or(ScoreError::NotFinite)?;
            let (pair, gains) = pairs.get(index).zip(each.get(index)).ok_or(ScoreError::NotFinite)?;
            let score = composite(*gains, weights);
            Score { control: pair.control, candidate: pair.candidate, gains: *gains, score, gated: vec![*gains] }
        }
        PairCombine::Mean => Score {
            control: means(pairs, |pair| pair.control)?,
            candidate: means(pairs, |pair| pair.candidate)?,
            gains: means(&each, |gains| *gains)?,
            score: stats::mean(&scores).ok_or(ScoreError::NotFinite)?,
            gated: each,
        },
    };
    if score.score.is_finite() && score.score >= 0.0 { Ok(score) } else { Err(ScoreError::NotFinite) }
}

impl Rule {
    /// The track's.
    pub fn of(contract: &Contract) -> Result<Self, ContractError> {
        Ok(Self {
            combine: contract.combine,
            weights: contract.weights,
            floors: contract.floors,
            decode_ceiling: contract.decode_gain_ceiling,
            bands: contract.bands()?,
        })
    }

    /// The score of these pairs, if it passes every gate (benchd.md 9.3): floors, then bands, then the ceiling. Exactly at a
    /// limit passes.
    pub fn judge(&self, pairs: &[Pair]) -> Result<Score, ScoreError> {
        let score = aggregate(pairs, self.combine, self.weights)?;
        for gains in &score.gated {
            self.gate(*gains)?;
        }
        Ok(score)
    }

    fn gate(&self, gains: Axes) -> Result<(), ScoreError> {
        let floors = self.floors;
        let clears = |gain: f64, floor: f64| gain.is_finite() && gain >= floor;
        if !(clears(gains.decode, floors.decode) && clears(gains.prefill, floors.prefill)) {
            return Err(ScoreError::Floor { gains, floors });
        }
        let Bands { prefill_down_enabled, prefill_down, decode_down_enabled, decode_down, .. } = self.bands;
        for (axis, enabled, down, gain) in [
            ("prefill", prefill_down_enabled, prefill_down, gains.prefill),
            ("decode", decode_down_enabled, decode_down, gains.decode),
        ] {
            // Seconds may be `down` below the control's, so the gain at most one over what is left.
            let most = 1.0 / (1.0 - down);
            if enabled && gain > most {
                return Err(ScoreError::Band { axis, gain, most });
            }
        }
        match self.decode_ceiling {
            Some(ceiling) if gains.decode > ceiling => Err(ScoreError::Ceiling { gain: gains.decode, ceiling }),
            _ => Ok(()),
        }
    }
}
