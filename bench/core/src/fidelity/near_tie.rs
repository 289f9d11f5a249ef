//! How much of a run's mismatches are near ties of the reference. Reported, never judged by (benchd.md 10).

use serde::Serialize;

use super::{Budget, Choice, FidelityError, compare};
use crate::stats;

/// Of one stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamReport {
    /// Which, from 0.
    pub slot: usize,
    /// Tokens in it.
    pub committed: usize,
    /// Those that are not the reference's choice.
    pub mismatches: usize,
    /// The same, in a thousand tokens.
    pub mismatch_per_thousand: f64,
    /// Positions at which the reference's second choice is inside the envelope.
    pub near_tie_positions: usize,
    /// Mismatches at such positions.
    pub near_tie_mismatches: usize,
    /// Mismatches elsewhere.
    pub non_near_tie_mismatches: usize,
    /// Least gap between the reference's choice and the token emitted instead; absent when no mismatch is a candidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_committed_relative_gap: Option<f64>,
    /// The median of those gaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_committed_relative_gap: Option<f64>,
}

/// Of all streams of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NearTieReport {
    /// One each, in order.
    pub streams: Vec<StreamReport>,
    /// Tokens in all.
    pub committed: usize,
    /// Mismatches in all.
    pub mismatches: usize,
    /// Near ties in all.
    pub near_tie_positions: usize,
    /// Mismatches at near ties.
    pub near_tie_mismatches: usize,
    /// Mismatches elsewhere.
    pub non_near_tie_mismatches: usize,
    /// What a stream may have.
    pub budget_per_thousand: u32,
    /// What the worst stream has.
    pub max_stream_mismatch_per_thousand: f64,
    /// The budget less that; below 0 when it is exceeded.
    pub headroom_per_thousand: f64,
}

/// Reports on streams and the reference's choices for each. A position is a near tie when the reference's second choice is
/// at most `envelope` below its first, as a relative gap.
pub fn near_tie_report(
    streams: &[(&[i64], &[Choice])],
    envelope: f64,
    budget: Budget,
) -> Result<NearTieReport, FidelityError> {
    let stream = |(slot, (emitted, choices)): (usize, &(&[i64], &[Choice]))| report(slot, emitted, choices, envelope);
    let streams: Vec<StreamReport> = streams.iter().enumerate().map(stream).collect::<Result<_, _>>()?;
    let sum = |count: fn(&StreamReport) -> usize| streams.iter().map(count).sum();
    let worst = streams.iter().map(|stream| stream.mismatch_per_thousand).fold(0.0, f64::max);
    Ok(NearTieReport {
        committed: sum(|stream| stream.committed),
        mismatches: sum(|stream| stream.mismatches),
        near_tie_positions: sum(|stream| stream.near_tie_positions),
        near_tie_mismatches: sum(|stream| stream.near_tie_mismatches),
        non_near_tie_mismatches: sum(|stream| stream.non_near_tie_mismatches),
        budget_per_thousand: budget.per_thousand(),
        max_stream_mismatch_per_thousand: worst,
        headroom_per_thousand: f64::from(budget.per_thousand()) - worst,
        streams,
    })
}

fn report(slot: usize, emitted: &[i64], choices: &[Choice], envelope: f64) -> Result<StreamReport, FidelityError> {
    let chosen: Vec<i64> = choices.iter().map(|choice| choice.token).collect();
    let mismatches = compare(slot, emitted, &chosen)?.count;
    let near = |choice: &Choice| choice.second().is_some_and(|second| second.gap <= envelope);
    let missed: Vec<(i64, &Choice)> =
        emitted.iter().copied().zip(choices).filter(|(token, choice)| *token != choice.token).collect();
    let near_tie_mismatches = missed.iter().filter(|(_, choice)| near(choice)).count();
    let gaps: Vec<f64> = missed.iter().filter_map(|(token, choice)| choice.gap_of(*token)).collect();
    Ok(StreamReport {
        slot,
        committed: emitted.len(),
        mismatches,
        mismatch_per_thousand: mismatches as f64 * 1000.0 / emitted.len() as f64,
        near_tie_positions: choices.iter().filter(|choice| near(choice)).count(),
        near_tie_mismatches,
        non_near_tie_mismatches: mismatches - near_tie_mismatches,
        min_committed_relative_gap: gaps.iter().copied().reduce(f64::min),
        median_committed_relative_gap: stats::median(&gaps),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fidelity::Candidate;

    fn choice(gaps: &[f64]) -> Choice {
        let ranked = gaps.iter().enumerate().map(|(token, &gap)| Candidate { token: token as i64, gap }).collect();
        Choice { token: 0, ranked }
    }

    #[test]
    fn a_report_counts_near_ties_and_the_gaps_of_what_was_emitted_instead() {
        let choices = [choice(&[0.0, 0.01]), choice(&[0.0, 0.5, 0.9]), choice(&[0.0, 0.01, 0.2]), choice(&[])];
        let streams = [(&[0, 2, 2, 0][..], &choices[..]), (&[0, 0, 0, 0], &choices)];
        let found = near_tie_report(&streams, 0.01, Budget::TRACK).unwrap();
        let first = StreamReport {
            slot: 0,
            committed: 4,
            mismatches: 2,
            mismatch_per_thousand: 500.0,
            near_tie_positions: 2,
            near_tie_mismatches: 1,
            non_near_tie_mismatches: 1,
            min_committed_relative_gap: Some(0.2),
            median_committed_relative_gap: Some(0.55),
        };
        assert_eq!(found.streams[0], first);
        assert_eq!((found.committed, found.mismatches, found.near_tie_positions), (8, 2, 4));
        assert_eq!((found.max_stream_mismatch_per_thousand, found.headroom_per_thousand), (500.0, -400.0));
        let text = serde_json::to_value(&found.streams[1]).unwrap();
        assert!(text.get("min_committed_relative_gap").is_none(), "{text}");
        assert!(near_tie_report(&[(&[][..], &[][..])], 0.01, Budget::TRACK).is_err());
    }

    proptest! {
        #[test]
        fn counts_add_up_and_the_headroom_is_negative_exactly_when_a_stream_fails(
            emitted in prop::collection::vec(prop::collection::vec(0_i64..3, 1..30), 1..4),
            near in any::<bool>(),
            limit in 0_u32..=1000,
        ) {
            let one = choice(&[0.0, if near { 0.0 } else { 0.9 }]);
            let choices: Vec<Vec<Choice>> = emitted.iter().map(|stream| vec![one.clone(); stream.len()]).collect();
            let streams: Vec<(&[i64], &[Choice])> =
                emitted.iter().zip(&choices).map(|(emitted, choices)| (&emitted[..], &choices[..])).collect();
            let budget = Budget::new(limit).unwrap();
            let found = near_tie_report(&streams, 0.1, budget).unwrap();
            prop_assert_eq!(found.near_tie_mismatches + found.non_near_tie_mismatches, found.mismatches);
            prop_assert_eq!(found.near_tie_positions, if near { found.committed } else { 0 });
            let failed = found.streams.iter().any(|stream| budget.is_exceeded(stream.mismatches, stream.committed));
            prop_assert_eq!(found.headroom_per_thousand < 0.0, failed);
        }
    }
}
