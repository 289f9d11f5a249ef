//! An engine as the rules see it: prompts and tokens in, answers out; and how far an answer can be believed (benchd.md 10).

use std::collections::HashSet;

use bench_protocol::TopLogit;

use crate::golden::CORRECTNESS_TOP_LOGITS;

/// Logits this close are a tie (benchd.md 3).
pub const TIE_TOLERANCE: f64 = 1e-6;

/// An engine that answers in the correctness verbs of engine-protocol-v1.md 6; a worker session is one.
pub trait Engine {
    /// What can go wrong on the way.
    type Error;

    /// Closes the open phase, if there is one, so that the next sequence begins on a drained engine.
    fn next_phase(&mut self) -> Result<(), Self::Error>;
    /// `correctness_begin`: what follows the prompt.
    fn begin(&mut self, prompt: &[i64]) -> Result<Answer, Self::Error>;
    /// `correctness_step`: what follows the caller's token.
    fn step(&mut self, token: i64) -> Result<Answer, Self::Error>;
    /// `correctness`: up to `steps` tokens by the engine itself.
    fn free_run(&mut self, prompt: &[i64], steps: usize) -> Result<Vec<i64>, Self::Error>;
}

/// A greedy token and the candidates it was chosen from.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the engine says it chose.
    pub token: i64,
    /// Highest first.
    pub top_logits: Vec<TopLogit>,
}

impl Answer {
    /// The candidates, if the list can be one: 1 to 8 of them, the first being the token chosen, all in the vocabulary and
    /// different, logits finite, strictly in order (of equal logits the lower id first). Such a list can excuse a token;
    /// another counts for nothing but exact matches.
    pub fn trusted(&self, vocab_size: i64) -> Option<&[TopLogit]> {
        let list = &self.top_logits[..];
        let first = list.first().filter(|first| first.token == self.token && list.len() <= CORRECTNESS_TOP_LOGITS)?;
        let mut seen = HashSet::new();
        let sound = |entry: &TopLogit| {
            (0..vocab_size).contains(&entry.token) && entry.logit.is_finite() && seen.insert(entry.token)
        };
        let in_order = |pair: &[TopLogit]| match pair {
            [a, b] => leads(a, b),
            _ => true,
        };
        (first.logit.is_finite() && list.iter().all(sound) && list.windows(2).all(in_order)).then_some(list)
    }

    /// Whether the token is the expected one, or the expected one is tied with the top.
    pub fn agrees_with(&self, expected: i64, vocab_size: i64) -> bool {
        self.token == expected || self.ties_with_top(expected, vocab_size)
    }

    /// Whether a token is among trusted candidates and no more than the tolerance below the first.
    pub(crate) fn ties_with_top(&self, token: i64, vocab_size: i64) -> bool {
        let below = |list: &[TopLogit]| Some(list.first()?.logit - logit_of(list, token)?);
        self.trusted(vocab_size).and_then(below).is_some_and(|below| below <= TIE_TOLERANCE)
    }

    /// The candidates by what their logits say, whatever their order and the token beside them: highest first, of equal ones
    /// the lowest id. `None`: no candidates, or a logit that is not finite.
    pub(crate) fn by_logit(&self) -> Option<Vec<TopLogit>> {
        if self.top_logits.is_empty() || !self.top_logits.iter().all(|entry| entry.logit.is_finite()) {
            return None;
        }
        let mut list = self.top_logits.clone();
        // No two orders of one list differ after this: 0 and -0 are made equal by adding 0.
        list.sort_by(|a, b| (b.logit + 0.0).total_cmp(&(a.logit + 0.0)).then(a.token.cmp(&b.token)));
        Some(list)
    }
}

/// Whether one candidate stands before another.
fn leads(a: &TopLogit, b: &TopLogit) -> bool {
    a.logit > b.logit || (a.logit == b.logit && a.token < b.token)
}

fn logit_of(list: &[TopLogit], token: i64) -> Option<f64> {
    list.iter().find(|entry| entry.token == token).map(|entry| entry.logit)
}
