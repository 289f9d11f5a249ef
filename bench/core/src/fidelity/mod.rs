//! How far a stream of tokens may leave its reference (benchd.md 10). Integers decide; a stream is judged by itself, never
//! as part of an average.
//!
//! [`Budget`] and [`compare`] are the rule. A timed stream that left its oracle is judged by [`judge_timed`]: the reference
//! engine says what it would have chosen at each position ([`replay()`]). [`near_tie_report`] only reports.

mod near_tie;
mod replay;

pub use self::near_tie::{NearTieReport, StreamReport, near_tie_report};
pub use self::replay::{
    Candidate, Choice, Divergence, ReplayRule, TimedError, judge_replay, judge_timed, relative_gap, replay,
};

/// The track's budget (benchd.md 3).
pub const TOKEN_BUDGET_PER_THOUSAND: u32 = 100;

/// Streams that cannot be compared: a fault of the run, no verdict on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FidelityError {
    /// Streams without a partner.
    #[error("{emitted} streams were emitted, the oracle has {oracle}; compare runs of one cohort")]
    StreamCount {
        /// By the engine.
        emitted: usize,
        /// By the oracle.
        oracle: usize,
    },
    /// Positions without a partner.
    #[error("stream {slot}: {emitted} tokens were emitted, the oracle has {oracle}; compare runs of the same steps")]
    Length {
        /// Which stream, from 0.
        slot: usize,
        /// By the engine.
        emitted: usize,
        /// By the oracle.
        oracle: usize,
    },
    /// Nothing to judge by.
    #[error("stream {slot} is empty; nothing would be judged")]
    Empty {
        /// Which stream, from 0.
        slot: usize,
    },
}

/// Mismatches allowed in a thousand tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    per_thousand: u32,
}

impl Budget {
    /// That of [`TOKEN_BUDGET_PER_THOUSAND`].
    pub const TRACK: Self = Self { per_thousand: TOKEN_BUDGET_PER_THOUSAND };

    /// `0..=1000`; `None` above.
    pub fn new(per_thousand: u32) -> Option<Self> {
        (per_thousand <= 1000).then_some(Self { per_thousand })
    }

    /// How many in a thousand.
    pub fn per_thousand(self) -> u32 {
        self.per_thousand
    }

    /// Whether so many mismatches are too many: `mismatches * 1000 > limit * len`. Exactly the budget passes.
    pub fn is_exceeded(self, mismatches: usize, len: usize) -> bool {
        mismatches as u128 * 1000 > u128::from(self.per_thousand) * len as u128
    }
}

/// Where one stream left another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mismatches {
    /// How many positions differ.
    pub count: usize,
    /// The first of them.
    pub first: Option<usize>,
}

/// Compares stream `slot` with its oracle.
pub fn compare(slot: usize, emitted: &[i64], oracle: &[i64]) -> Result<Mismatches, FidelityError> {
    if emitted.len() != oracle.len() {
        return Err(FidelityError::Length { slot, emitted: emitted.len(), oracle: oracle.len() });
    }
    if emitted.is_empty() {
        return Err(FidelityError::Empty { slot });
    }
    let mut differing = emitted.iter().zip(oracle).enumerate().filter(|(_, (a, b))| a != b).map(|(step, _)| step);
    let first = differing.next();
    Ok(Mismatches { count: usize::from(first.is_some()) + differing.count(), first })
}

/// Compares each stream with its oracle.
pub fn compare_all(emitted: &[Vec<i64>], oracle: &[Vec<i64>]) -> Result<Vec<Mismatches>, FidelityError> {
    if emitted.len() != oracle.len() {
        return Err(FidelityError::StreamCount { emitted: emitted.len(), oracle: oracle.len() });
    }
    emitted.iter().zip(oracle).enumerate().map(|(slot, (emitted, oracle))| compare(slot, emitted, oracle)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exactly_a_tenth_passes_and_one_more_does_not() {
        assert!(!Budget::TRACK.is_exceeded(6, 64));
        assert!(Budget::TRACK.is_exceeded(7, 64));
        assert!(!Budget::TRACK.is_exceeded(13, 130));
        assert!(!Budget::TRACK.is_exceeded(12, 129));
        assert!(Budget::TRACK.is_exceeded(13, 129));
        assert!(!Budget::TRACK.is_exceeded(usize::MAX / 10, usize::MAX));
        assert_eq!(Budget::new(1001), None);
        assert!(Budget::new(0).unwrap().is_exceeded(1, usize::MAX));
    }

    #[test]
    fn streams_that_do_not_match_in_shape_are_faults_and_no_verdict() {
        assert_eq!(compare(3, &[1], &[]), Err(FidelityError::Length { slot: 3, emitted: 1, oracle: 0 }));
        assert_eq!(compare(0, &[], &[]), Err(FidelityError::Empty { slot: 0 }));
        let counts = compare_all(&[vec![1]], &[]);
        assert_eq!(counts, Err(FidelityError::StreamCount { emitted: 1, oracle: 0 }));
        let two = compare_all(&[vec![1, 2], vec![1, 2]], &[vec![1, 2], vec![1, 3]]).unwrap();
        assert_eq!(two, [Mismatches::default(), Mismatches { count: 1, first: Some(1) }]);
    }

    proptest! {
        #[test]
        fn the_budget_is_the_rational_comparison(limit in 0_u32..=1000, len in 1_usize..3000, mismatches in 0_usize..3000) {
            let budget = Budget::new(limit).unwrap();
            // Exact in f64 at these sizes.
            let exceeded = mismatches as f64 * 1000.0 > f64::from(limit) * len as f64;
            prop_assert_eq!(budget.is_exceeded(mismatches, len), exceeded);
        }

        #[test]
        fn a_budget_that_passes_passes_with_fewer_mismatches_more_tokens_or_more_budget(
            limit in 0_u32..1000, len in 1_usize..3000, mismatches in 1_usize..3000,
        ) {
            let (budget, wider) = (Budget::new(limit).unwrap(), Budget::new(limit + 1).unwrap());
            if !budget.is_exceeded(mismatches, len) {
                prop_assert!(!budget.is_exceeded(mismatches - 1, len));
                prop_assert!(!budget.is_exceeded(mismatches, len + 1));
                prop_assert!(!wider.is_exceeded(mismatches, len));
            }
        }

        #[test]
        fn comparing_counts_the_positions_that_differ(
            pairs in prop::collection::vec((0_i64..3, 0_i64..3), 1..40),
        ) {
            let (emitted, oracle): (Vec<i64>, Vec<i64>) = pairs.into_iter().unzip();
            let found = compare(0, &emitted, &oracle).unwrap();
            prop_assert_eq!(found, compare(0, &oracle, &emitted).unwrap());
            let differing: Vec<usize> = (0..emitted.len()).filter(|&step| emitted[step] != oracle[step]).collect();
            prop_assert_eq!(found, Mismatches { count: differing.len(), first: differing.first().copied() });
        }
    }
}
