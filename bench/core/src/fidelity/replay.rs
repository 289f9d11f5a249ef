//! A timed stream that left its oracle, judged by the reference engine: it is fed the stream, token by token, and says what
//! it would have chosen at each position (benchd.md 10, "timed leg V2").

use super::{Budget, FidelityError, Mismatches, compare};
use crate::engine::{Answer, Engine};
use crate::refusal::Refusal;

/// A candidate of the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Which.
    pub token: i64,
    /// [`relative_gap`] from the first; 0 for the first.
    pub gap: f64,
}

/// What the reference would have chosen at one position, given the tokens that were emitted before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Its greedy token.
    pub token: i64,
    /// Its candidates, best first; none when its list contradicts the token or itself.
    pub ranked: Vec<Candidate>,
}

/// `(top - other) / max(1, |top|)`.
pub fn relative_gap(top: f64, other: f64) -> f64 {
    (top - other) / top.abs().max(1.0)
}

impl Choice {
    /// From an answer of the reference engine.
    pub fn of(answer: &Answer, vocab_size: i64) -> Self {
        let ranked = match answer.trusted(vocab_size) {
            Some(list @ [top, ..]) => list
                .iter()
                .map(|entry| Candidate { token: entry.token, gap: relative_gap(top.logit, entry.logit) })
                .collect(),
            _ => Vec::new(),
        };
        Self { token: answer.token, ranked }
    }

    /// The token it would have taken next.
    pub fn second(&self) -> Option<Candidate> {
        self.ranked.get(1).copied()
    }

    /// How far below the first a token is, if it is a candidate.
    pub fn gap_of(&self, token: i64) -> Option<f64> {
        self.ranked.iter().find(|candidate| candidate.token == token).map(|candidate| candidate.gap)
    }
}

/// Feeds the reference a prompt and then the stream that was emitted, whatever it chooses itself; its choice at each
/// position, in a phase of its own.
pub fn replay<E: Engine>(
    engine: &mut E,
    prompt: &[i64],
    emitted: &[i64],
    vocab_size: i64,
) -> Result<Vec<Choice>, E::Error> {
    // What follows the last token is not asked for.
    let Some((_, fed)) = emitted.split_last() else { return Ok(Vec::new()) };
    engine.next_phase()?;
    let mut choices = vec![Choice::of(&engine.begin(prompt)?, vocab_size)];
    for &token in fed {
        choices.push(Choice::of(&engine.step(token)?, vocab_size));
    }
    Ok(choices)
}

/// How a timed stream that left its oracle is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayRule {
    /// `timed_token_tolerance_per_thousand`.
    pub budget: Budget,
    /// `timed_token_near_tie_relative_gap`: a mismatch must be the second choice and no further off than this.
    pub near_tie_gap: Option<f64>,
}

/// What a replay found; sealed per pair as `token_mismatch_*`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Divergence {
    /// Emitted tokens that are not the reference's choice. Near ties count.
    pub mismatches: Mismatches,
    /// Mismatches inside the near-tie gap; 0 without one.
    pub near_ties: usize,
    /// Mismatches that are the second choice.
    pub second_choices: usize,
    /// The widest gap among those.
    pub second_choice_max_relative_gap: Option<f64>,
}

/// Judges a timed stream by what the reference chose at each position. `Ok((found, Some(name)))` refuses the stream; the
/// near-tie rule is asked before the count (benchd.md 10).
pub fn judge_replay(
    emitted: &[i64],
    choices: &[Choice],
    rule: &ReplayRule,
) -> Result<(Divergence, Option<Refusal>), FidelityError> {
    let chosen: Vec<i64> = choices.iter().map(|choice| choice.token).collect();
    let mut found = Divergence { mismatches: compare(0, emitted, &chosen)?, ..Divergence::default() };
    for (token, choice) in emitted.iter().zip(choices).filter(|(token, choice)| **token != choice.token) {
        if let Some(second) = choice.second().filter(|second| second.token == *token) {
            found.second_choices += 1;
            let widest = found.second_choice_max_relative_gap.map_or(second.gap, |gap| gap.max(second.gap));
            found.second_choice_max_relative_gap = Some(widest);
            found.near_ties += usize::from(rule.near_tie_gap.is_some_and(|limit| second.gap <= limit));
        }
    }
    let count = found.mismatches.count;
    let refusal = if rule.near_tie_gap.is_some() && found.near_ties < count {
        Some(Refusal::TimedDivergenceNotANearTie)
    } else if rule.budget.is_exceeded(count, emitted.len()) {
        Some(Refusal::TimedDivergenceOverTolerance)
    } else {
        None
    };
    Ok((found, refusal))
}

/// No verdict on a timed stream.
#[derive(Debug, thiserror::Error)]
pub enum TimedError<E> {
    /// The stream, or the reference's answers, cannot be compared.
    #[error(transparent)]
    Streams(#[from] FidelityError),
    /// The reference could not be asked.
    #[error("{}: the reference engine could not replay the timed stream", Refusal::TimedReplayFailed)]
    Replay(#[source] E),
}

impl<E> TimedError<E> {
    /// The refusal's name, if it has one.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Streams(_) => None,
            Self::Replay(_) => Some(Refusal::TimedReplayFailed),
        }
    }
}

/// Judges a timed stream: equal to its oracle it passes and nothing is replayed; else `replay` is called once, which boots
/// the reference and gives its choices for this stream.
pub fn judge_timed<E>(
    emitted: &[i64],
    oracle: &[i64],
    rule: &ReplayRule,
    replay: impl FnOnce() -> Result<Vec<Choice>, E>,
) -> Result<(Divergence, Option<Refusal>), TimedError<E>> {
    if compare(0, emitted, oracle)?.count == 0 {
        return Ok((Divergence::default(), None));
    }
    let choices = replay().map_err(TimedError::Replay)?;
    Ok(judge_replay(emitted, &choices, rule)?)
}

#[cfg(test)]
mod tests {
    use bench_protocol::TopLogit;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::Following;

    fn choice(token: i64, second: i64, gap: f64) -> Choice {
        Choice { token, ranked: vec![Candidate { token, gap: 0.0 }, Candidate { token: second, gap }] }
    }

    fn counting() -> Following {
        Following::new(|token| (token != 40).then_some(token + 1))
    }

    #[test]
    fn a_replay_feeds_the_prompt_and_all_of_the_stream_but_its_last_token() {
        let mut reference = counting();
        let choices = replay(&mut reference, &[1, 2], &[3, 9, 10, 40], 100).unwrap();
        assert_eq!((reference.fed, reference.phases), (vec![2, 3, 9, 10], 1));
        assert_eq!(choices.iter().map(|choice| choice.token).collect::<Vec<_>>(), [3, 4, 10, 11]);
        assert_eq!(choices[1].second(), Some(Candidate { token: 5, gap: 0.25 }));
        assert_eq!((choices[1].gap_of(4), choices[1].gap_of(5), choices[1].gap_of(6)), (Some(0.0), Some(0.25), None));
        let (found, refusal) =
            judge_replay(&[3, 9, 10, 40], &choices, &ReplayRule { budget: Budget::TRACK, near_tie_gap: None }).unwrap();
        assert_eq!(found.mismatches, Mismatches { count: 2, first: Some(1) });
        assert_eq!(refusal, Some(Refusal::TimedDivergenceOverTolerance));
        assert_eq!(replay(&mut counting(), &[1], &[], 100), Ok(Vec::new()));
    }

    #[test]
    fn only_a_stream_that_left_its_oracle_is_replayed_and_a_failed_replay_has_a_name() {
        let rule = ReplayRule { budget: Budget::new(500).unwrap(), near_tie_gap: None };
        let judge = |emitted: &[i64], oracle: &[i64]| {
            judge_timed(emitted, oracle, &rule, || replay(&mut counting(), &[1], emitted, 100))
        };
        let never = || -> Result<Vec<Choice>, String> { Err("replayed".into()) };
        assert_eq!(judge_timed(&[1, 2], &[1, 2], &rule, never).unwrap(), (Divergence::default(), None));
        // Away from the oracle, and what the reference itself would have said of this stream.
        assert_eq!(judge(&[2, 3, 4], &[2, 3, 5]).unwrap(), (Divergence::default(), None));
        let (found, refusal) = judge(&[2, 9, 10], &[2, 3, 4]).unwrap();
        assert_eq!((found.mismatches.first, refusal), (Some(1), None));
        let failed = judge(&[2, 40, 4], &[2, 3, 4]).unwrap_err();
        assert_eq!(failed.refusal(), Some(Refusal::TimedReplayFailed));
        assert!(failed.to_string().starts_with("TIMED-REPLAY-FAILED: "), "{failed}");
        let short = judge(&[2], &[2, 3]).unwrap_err();
        assert_eq!(short.refusal(), None);
    }

    #[test]
    fn without_a_gap_the_budget_alone_decides() {
        let rule = ReplayRule { budget: Budget::TRACK, near_tie_gap: None };
        let choices: Vec<Choice> = (0..10).map(|token| choice(token, token + 100, 0.5)).collect();
        let mut emitted: Vec<i64> = (0..10).collect();
        emitted[4] = 104;
        let (found, refusal) = judge_replay(&emitted, &choices, &rule).unwrap();
        assert_eq!((found.mismatches.count, found.mismatches.first, refusal), (1, Some(4), None));
        assert_eq!((found.second_choices, found.near_ties), (1, 0));
        assert_eq!(found.second_choice_max_relative_gap, Some(0.5));
        emitted[7] = 99;
        let (found, refusal) = judge_replay(&emitted, &choices, &rule).unwrap();
        assert_eq!((found.second_choices, refusal), (1, Some(Refusal::TimedDivergenceOverTolerance)));
    }

    #[test]
    fn with_a_gap_only_near_second_choices_are_tolerated_and_they_still_count() {
        let rule = ReplayRule { budget: Budget::TRACK, near_tie_gap: Some(0.01) };
        let judge = |gap: f64, emitted: &[i64]| {
            let choices: Vec<Choice> = (0..10).map(|token| choice(token, token + 100, gap)).collect();
            judge_replay(emitted, &choices, &rule).unwrap().1
        };
        let one = [0, 1, 2, 103, 4, 5, 6, 7, 8, 9];
        assert_eq!(judge(0.01, &one), None);
        assert_eq!(judge(0.011, &one), Some(Refusal::TimedDivergenceNotANearTie));
        let third_choice = [0, 1, 2, 203, 4, 5, 6, 7, 8, 9];
        assert_eq!(judge(0.0, &third_choice), Some(Refusal::TimedDivergenceNotANearTie));
        let two = [0, 1, 2, 103, 104, 5, 6, 7, 8, 9];
        assert_eq!(judge(0.0, &two), Some(Refusal::TimedDivergenceOverTolerance));
        // Both rules broken: the near tie is asked first.
        let two_far = [0, 1, 2, 203, 104, 5, 6, 7, 8, 9];
        assert_eq!(judge(0.0, &two_far), Some(Refusal::TimedDivergenceNotANearTie));
    }

    #[test]
    fn a_choice_is_read_from_an_answer_only_when_its_candidates_agree_with_it() {
        let answer = |token, logits: &[(i64, f64)]| Answer {
            token,
            top_logits: logits.iter().map(|&(token, logit)| TopLogit { token, logit }).collect(),
        };
        let second = |token, logits: &[(i64, f64)]| Choice::of(&answer(token, logits), 50).second();
        assert_eq!(second(7, &[(7, 20.0), (3, 18.0)]), Some(Candidate { token: 3, gap: 0.1 }));
        assert_eq!(second(7, &[(7, 0.5), (3, 0.25)]), Some(Candidate { token: 3, gap: 0.25 }));
        assert_eq!(second(7, &[(7, 20.0)]), None);
        assert_eq!(second(8, &[(7, 20.0), (3, 18.0)]), None);
        assert_eq!(second(7, &[(7, 18.0), (3, 20.0)]), None);
    }

    proptest! {
        #[test]
        fn one_more_mismatch_never_turns_a_refusal_into_a_pass(
            (emitted, at) in prop::collection::vec(0_i64..3, 1..40)
                .prop_flat_map(|emitted| { let len = emitted.len(); (Just(emitted), 0..len) }),
            limit in 0_u32..=1000,
            gap in prop::option::of(Just(0.1)),
        ) {
            let rule = ReplayRule { budget: Budget::new(limit).unwrap(), near_tie_gap: gap };
            let choices = vec![choice(0, 1, 0.05); emitted.len()];
            let (before, refused) = judge_replay(&emitted, &choices, &rule).unwrap();
            let mut worse = emitted;
            if worse[at] == 0 { worse[at] = 1; }
            let (after, refused_after) = judge_replay(&worse, &choices, &rule).unwrap();
            prop_assert!(after.mismatches.count >= before.mismatches.count);
            prop_assert!(refused.is_none() || refused_after.is_some());
            prop_assert!(after.second_choices <= after.mismatches.count && after.near_ties <= after.second_choices);
        }
    }
}
