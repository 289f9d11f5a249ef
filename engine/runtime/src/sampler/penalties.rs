//! Penalties on what was said already, and the counts they rest on.

use std::collections::HashMap;

use crate::backend::TokenId;
use crate::error::Error;

/// How much less likely a token becomes by having occurred. Checked by [`Penalties::new`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
}

impl Penalties {
    /// Changes nothing.
    pub const OFF: Self = Self { repeat: 1.0, presence: 0.0, frequency: 0.0 };

    /// `repeat` 1, `presence` 0 and `frequency` 0 are off; a `repeat` below 1 and a negative other one reward. Errors name the
    /// flag.
    pub fn new(repeat: f32, presence: f32, frequency: f32) -> Result<Self, Error> {
        let refuse = |flag, found, wanted| Err(Error::InvalidSampling { flag, found, wanted });
        if !(0.01..=10.0).contains(&repeat) {
            return refuse("--repeat-penalty", repeat, "a number from 0.01 to 10 (1 is off)");
        }
        for (flag, found) in [("--presence-penalty", presence), ("--frequency-penalty", frequency)] {
            if !(-2.0..=2.0).contains(&found) {
                return refuse(flag, found, "a number from -2 to 2 (0 is off)");
            }
        }
        Ok(Self { repeat, presence, frequency })
    }
    /// Whether they change nothing.
    pub fn is_off(&self) -> bool {
        *self == Self::OFF
    }
    /// Divides positive logits and multiplies others, of every token of the prompt and the answer; 1 = off.
    pub fn repeat(&self) -> f32 {
        self.repeat
    }
    /// Subtracted once from every token of the answer; 0 = off.
    pub fn presence(&self) -> f32 {
        self.presence
    }
    /// Subtracted from every token of the answer as often as it occurs there; 0 = off.
    pub fn frequency(&self) -> f32 {
        self.frequency
    }

    /// The logit of a token that occurred, in exactly these f32 operations on every backend.
    fn apply(&self, logit: f32, in_answer: u32) -> f32 {
        let repeated = if logit > 0.0 { logit / self.repeat } else { logit * self.repeat };
        if in_answer == 0 { repeated } else { repeated - (self.presence + self.frequency * in_answer as f32) }
    }
}

impl Default for Penalties {
    fn default() -> Self {
        Self::OFF
    }
}

/// Which tokens occurred, and how often in the answer. Follows a sequence wherever it goes: forth by the rows a round
/// accepts, back by a rewind, elsewhere by a restored snapshot.
///
/// The memory plan leaves it out: at most some 30 bytes a token of context (an id, and an entry of the map if the token is a
/// new one), where the caches of the published model take 30,000.
#[derive(Debug, Clone, Default)]
pub(super) struct Occurrences {
    /// What is counted.
    tokens: Vec<TokenId>,
    answer_from: usize,
    counts: HashMap<TokenId, Count>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    all: u32,
    in_answer: u32,
}

impl Occurrences {
    /// Makes the counts those of `tokens`, of which `tokens[answer_from..]` are the answer. What is new or gone since the last
    /// call is counted, the rest is only compared: nobody has to tell of a rewind, so nobody can forget to.
    pub(super) fn follow(&mut self, tokens: &[TokenId], answer_from: usize) {
        if answer_from != self.answer_from {
            self.tokens.clear();
            self.counts.clear();
            self.answer_from = answer_from;
        }
        let within = self.tokens.len().min(tokens.len());
        let same = if self.tokens[..within] == tokens[..within] {
            within
        } else {
            self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
        };
        while self.tokens.len() > same {
            self.pop();
        }
        tokens[same..].iter().for_each(|token| self.push(*token));
    }

    fn push(&mut self, token: TokenId) {
        let in_answer = self.tokens.len() >= self.answer_from;
        let count = self.counts.entry(token).or_default();
        count.all += 1;
        count.in_answer += u32::from(in_answer);
        self.tokens.push(token);
    }

    fn pop(&mut self) {
        let Some(token) = self.tokens.pop() else { return };
        let in_answer = self.tokens.len() >= self.answer_from;
        if let Some(count) = self.counts.get_mut(&token) {
            count.all -= 1;
            count.in_answer -= u32::from(in_answer);
            if count.all == 0 {
                self.counts.remove(&token);
            }
        }
    }

    /// Penalises a row. Tokens the row has no logit for are left out. Each logit is changed once and on its own, so the order
    /// the counts come in does not matter.
    pub(super) fn penalise(&self, row: &mut [f32], penalties: &Penalties) {
        for (id, count) in &self.counts {
            if let Some(logit) = row.get_mut(*id as usize) {
                *logit = penalties.apply(*logit, count.in_answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Forth, back and elsewhere, in any order: the counts are those of a count from nothing.
        #[test]
        fn counts_depend_on_the_tokens_and_not_on_the_way_there(
            steps in prop::collection::vec((0usize..12, prop::collection::vec(0u32..5, 0..8), 0usize..3), 1..20),
        ) {
            let mut followed = Occurrences::default();
            let mut tokens = Vec::new();
            for (keep, more, answer) in steps {
                tokens.truncate(keep);
                tokens.extend(more);
                let answer_from = 4 * answer;
                followed.follow(&tokens, answer_from);
                let count = |id| {
                    let at = |from: usize| tokens.iter().skip(from).filter(|token| **token == id).count() as u32;
                    Count { all: at(0), in_answer: at(answer_from) }
                };
                for id in 0..5 {
                    prop_assert_eq!(followed.counts.get(&id).copied().unwrap_or_default(), count(id));
                }
                prop_assert!(followed.counts.values().all(|count| count.all > 0), "nothing is kept for what is gone");
            }
        }
    }

    #[test]
    fn penalties_out_of_range_are_refused_by_flag() {
        for (values, flag) in [
            ((0.0, 0.0, 0.0), "--repeat-penalty"),
            ((10.5, 0.0, 0.0), "--repeat-penalty"),
            ((f32::NAN, 0.0, 0.0), "--repeat-penalty"),
            ((-1.0, 0.0, 0.0), "--repeat-penalty"),
            ((1.0, 2.5, 0.0), "--presence-penalty"),
            ((1.0, f32::NAN, 0.0), "--presence-penalty"),
            ((1.0, 0.0, -2.5), "--frequency-penalty"),
            ((1.0, 0.0, f32::INFINITY), "--frequency-penalty"),
        ] {
            let refused = Penalties::new(values.0, values.1, values.2).unwrap_err().to_string();
            assert!(refused.starts_with(flag), "{refused}");
        }
    }

    #[test]
    fn a_token_of_the_prompt_is_repeated_and_one_of_the_answer_is_present_too() {
        let mut seen = Occurrences::default();
        seen.follow(&[0, 1, 1, 2, 1, 9], 3);
        let mut row = [4.0, -4.0, 4.0, 4.0];
        seen.penalise(&mut row, &Penalties::new(2.0, 0.5, 0.25).unwrap());
        assert_eq!(row, [2.0, -8.75, 1.25, 4.0]);
    }
}
