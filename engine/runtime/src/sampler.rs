//! Choosing a token from a row of logits.
//!
//! The order is: bias, penalties, mask, temperature, top-k, top-p, min-p, then one draw. Temperature 0 stops after the mask and
//! takes the largest logit, the lowest id where several are equal. Of the penalties the one on repetition comes first and
//! counts prompt and answer, those on presence and frequency count the answer alone.
//!
//! # Why drafting cannot change sampled text
//!
//! The draw for position `i` inverts the cumulative distribution at `u(seed, i)`, a pure function of the seed and of the
//! position, never of how many draws came before. Penalties count the tokens before the position, those verified in the same
//! round among them (qwen4exp.md 10), and nothing else. The token at a position is therefore a function of its logits, the
//! seed, the position and the tokens before it. A round computes each verified row's logits with the bits of a serial step
//! (design 3.2), chooses each row's token by this function, and accepts a draft exactly when it is that token; so the text
//! with drafting is the text without, token for token, and its distribution is the serial one.
//!
//! This is also the rule of qwen4exp.md 10 for greedy (one-hot) drafts. With `X ~ p` the chosen token, draft `d` is accepted
//! with probability `P(X = d) = p(d)`, and when it is rejected the token that stands in its place is distributed as `X`
//! given `X != d`: a draw from `p` with `d` removed and the rest normalised.

mod penalties;

use std::cmp::Ordering;

use crate::backend::{BackendError, LogitEdit, TokenId};
use crate::error::Error;
use penalties::Occurrences;
pub use penalties::Penalties;

/// How tokens are chosen. Checked by [`Sampling::new`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    seed: u64,
    penalties: Penalties,
    answer_from: usize,
}

impl Sampling {
    /// `temperature` 0 is greedy, `top_k` 0, `top_p` 1 and `min_p` 0 are off. Errors name the flag.
    pub fn new(temperature: f32, top_k: usize, top_p: f32, min_p: f32, seed: u64) -> Result<Self, Error> {
        let refuse = |flag, found, wanted| Err(Error::InvalidSampling { flag, found, wanted });
        if !temperature.is_finite() || temperature < 0.0 {
            return refuse("--temp", temperature, "a finite number >= 0 (0 is greedy)");
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return refuse("--top-p", top_p, "a number above 0 and at most 1 (1 is off)");
        }
        if !(0.0..=1.0).contains(&min_p) {
            return refuse("--min-p", min_p, "a number from 0 to 1 (0 is off)");
        }
        Ok(Self { temperature, top_k, top_p, min_p, seed, ..Self::greedy() })
    }
    /// Always the largest logit.
    pub const fn greedy() -> Self {
        let penalties = Penalties::OFF;
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, penalties, answer_from: 0 }
    }
    /// The same with other penalties.
    #[must_use]
    pub fn with_penalties(self, penalties: Penalties) -> Self {
        Self { penalties, ..self }
    }
    /// The same for an answer whose first token takes this position. A session sets it for each of its answers.
    #[must_use]
    pub fn answering_from(self, position: usize) -> Self {
        Self { answer_from: position, ..self }
    }
    /// Whether the largest logit is taken, no draw made.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
    /// Divides the logits; 0 = greedy.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }
    /// Most candidates kept; 0 = all.
    pub fn top_k(&self) -> usize {
        self.top_k
    }
    /// Probability mass kept, from the most likely down; 1 = all.
    pub fn top_p(&self) -> f32 {
        self.top_p
    }
    /// Least probability kept, as a share of the largest; 0 = all.
    pub fn min_p(&self) -> f32 {
        self.min_p
    }
    /// Names the sequence of draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }
    /// On what was said already.
    pub fn penalties(&self) -> &Penalties {
        &self.penalties
    }
    /// Position of the answer's first token: penalties on presence and frequency count from here.
    pub fn answer_from(&self) -> usize {
        self.answer_from
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::greedy()
    }
}

/// Buffers and counts of [`choose`], kept between calls so that a row costs no allocation and only what is new is counted.
/// What they hold never changes a choice.
#[derive(Debug, Clone, Default)]
pub struct SamplerScratch {
    seen: Occurrences,
    edited: Vec<f32>,
    candidates: Vec<Candidate>,
    weights: Vec<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: TokenId,
    logit: f32,
}

impl Candidate {
    /// Best first: higher logit, then lower id. Logits are never NaN here.
    fn order(a: &Self, b: &Self) -> Ordering {
        b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
    }
}

/// The token of one row. `before` is all that precedes it, the row's own token last, so its length is the position the chosen
/// token takes.
///
/// NaN and minus infinity are never chosen. Errors are [`BackendError::Misuse`]: an edit that names an id outside the row, a
/// mask of another length, or no id left to choose (all masked, or no logit is a number). Cost: one pass over the row when
/// greedy or with `top_k`; about two, with an exponential per id, otherwise. Penalties add a comparison of `before` with that
/// of the last call and a step for each different token in it.
pub fn choose(
    logits: &[f32],
    edit: Option<&LogitEdit>,
    sampling: &Sampling,
    before: &[TokenId],
    scratch: &mut SamplerScratch,
) -> Result<TokenId, BackendError> {
    let SamplerScratch { seen, edited, candidates, weights } = scratch;
    let row = prepare(logits, edit, sampling, before, seen, edited)?;
    let position = before.len();
    let nothing = || misuse(format!("position {position}: no id is allowed and has a logit above minus infinity"));
    if sampling.is_greedy() {
        return argmax(row).ok_or_else(nothing);
    }
    truncate(row, sampling, candidates, weights);
    draw(candidates, weights, uniform(sampling.seed, position)).ok_or_else(nothing)
}

/// The distribution [`choose`] draws from, over the ids it can draw (a probability may still round to 0 in f32); one id when
/// greedy, none where `choose` would find nothing.
pub fn distribution(
    logits: &[f32],
    edit: Option<&LogitEdit>,
    sampling: &Sampling,
    before: &[TokenId],
) -> Result<Vec<(TokenId, f32)>, BackendError> {
    let SamplerScratch { mut seen, mut edited, mut candidates, mut weights } = SamplerScratch::default();
    let row = prepare(logits, edit, sampling, before, &mut seen, &mut edited)?;
    if sampling.is_greedy() {
        return Ok(argmax(row).map(|id| (id, 1.0)).into_iter().collect());
    }
    truncate(row, sampling, &mut candidates, &mut weights);
    let total: f64 = weights.iter().sum();
    let drawable = candidates.iter().zip(&weights).filter(|(_, w)| **w > 0.0);
    Ok(drawable.map(|(c, w)| (c.id, (w / total) as f32)).collect())
}

/// A number in `[0, 1)` that depends on nothing but its arguments.
///
/// Element `position` of a SplitMix64 sequence whose start is itself a mixed seed: the state is a counter times an odd
/// constant, the output a bijective finaliser of it, so any element is reached without the ones before, seeds that differ
/// by one give unrelated sequences, and 53 high bits make the fraction.
pub fn uniform(seed: u64, position: usize) -> f64 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |mut v: u64| {
        v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        v ^ (v >> 31)
    };
    let start = mix(seed.wrapping_add(GOLDEN));
    let bits = mix(start.wrapping_add(GOLDEN.wrapping_mul(position as u64 + 1)));
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The id of the largest logit, the lowest where several are equal. NaN and minus infinity never win.
pub fn argmax(row: &[f32]) -> Option<TokenId> {
    let mut best = None;
    let mut top = f32::NEG_INFINITY;
    for (id, &logit) in row.iter().enumerate() {
        if logit > top {
            (best, top) = (Some(id as TokenId), logit);
        }
    }
    best
}

fn misuse(why: String) -> BackendError {
    BackendError::Misuse { call: "choose", why }
}

/// The row after bias, penalties and mask: `logits` itself where there is none of them. A masked id becomes minus infinity.
fn prepare<'a>(
    logits: &'a [f32],
    edit: Option<&LogitEdit>,
    sampling: &Sampling,
    before: &[TokenId],
    seen: &mut Occurrences,
    edited: &'a mut Vec<f32>,
) -> Result<&'a [f32], BackendError> {
    let penalties = sampling.penalties;
    let edit = edit.filter(|e| !e.bias.is_empty() || e.allowed.is_some());
    if edit.is_none() && penalties.is_off() {
        return Ok(logits);
    }
    edited.clear();
    edited.extend_from_slice(logits);
    for &(id, bias) in edit.map_or(&[][..], |edit| &edit.bias) {
        let vocab = logits.len();
        let logit = edited.get_mut(id as usize).ok_or(BackendError::TokenOutsideVocabulary { id, vocab })?;
        *logit += bias;
    }
    if !penalties.is_off() {
        seen.follow(before, sampling.answer_from);
        seen.penalise(edited, &penalties);
    }
    if let Some(allowed) = edit.and_then(|edit| edit.allowed.as_ref()) {
        if allowed.len() != logits.len().div_ceil(32) {
            let (found, wanted) = (allowed.len(), logits.len().div_ceil(32));
            return Err(misuse(format!("the mask has {found} words, {wanted} cover the vocabulary")));
        }
        for (word, logits) in allowed.iter().zip(edited.chunks_mut(32)) {
            for (bit, logit) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
    Ok(edited)
}

/// Fills `kept` with the ids that survive top-k, top-p and min-p, and `weights` with their probabilities times a common
/// factor (1 for the largest). Order: best first where anything was cut, else by id.
fn truncate(row: &[f32], sampling: &Sampling, kept: &mut Vec<Candidate>, weights: &mut Vec<f64>) {
    let inverse = 1.0 / f64::from(sampling.temperature);
    weights.clear();
    if sampling.top_k > 0 && sampling.top_k < row.len() {
        best(row, sampling.top_k, kept);
        let top = kept.first().map_or(0.0, |c| c.logit);
        weights.extend(kept.iter().map(|c| weight(c.logit, top, inverse)));
        let total = weights.iter().sum();
        if sampling.top_p < 1.0 {
            let keep = nucleus(weights, f64::from(sampling.top_p), total).unwrap_or(kept.len());
            kept.truncate(keep);
        }
    } else if sampling.top_p < 1.0 {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total = row.iter().filter(|l| **l > f32::NEG_INFINITY).map(|l| weight(*l, top, inverse)).sum();
        // The nucleus is nearly always small, so its order is found among ever larger heads of the row, not by sorting it.
        let mut count = 256;
        loop {
            best(row, count.min(row.len()), kept);
            weights.clear();
            weights.extend(kept.iter().map(|c| weight(c.logit, top, inverse)));
            if let Some(keep) = nucleus(weights, f64::from(sampling.top_p), total) {
                kept.truncate(keep);
                break;
            }
            if count >= row.len() {
                break;
            }
            count *= 8;
        }
    } else {
        kept.clear();
        let numbers = row.iter().enumerate().filter(|(_, l)| **l > f32::NEG_INFINITY);
        kept.extend(numbers.map(|(id, &logit)| Candidate { id: id as TokenId, logit }));
        let top = kept.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max);
        weights.extend(kept.iter().map(|c| weight(c.logit, top, inverse)));
    }
    weights.truncate(kept.len());
    if sampling.min_p > 0.0 {
        // Weights are shares of the largest already.
        let least = f64::from(sampling.min_p);
        let mut each = weights.iter();
        kept.retain(|_| each.next().is_some_and(|w| *w >= least));
        weights.retain(|w| *w >= least);
    }
}

/// `exp((logit - top) / temperature)`; exactly 1 at the top, also where that is infinite.
fn weight(logit: f32, top: f32, inverse_temperature: f64) -> f64 {
    if logit == top { 1.0 } else { ((f64::from(logit) - f64::from(top)) * inverse_temperature).exp() }
}

/// How many of the best-first weights reach the share `top_p` of `total`; `None` where all of them do not.
fn nucleus(weights: &[f64], top_p: f64, total: f64) -> Option<usize> {
    let mut sum = 0.0;
    let reached = weights.iter().position(|w| {
        sum += w;
        sum >= top_p * total
    });
    reached.map(|last| last + 1)
}

/// The best `count` candidates of a row, best first, in one pass: whatever cannot be among them any more is dropped by one
/// comparison, because a later id with an equal logit loses.
fn best(row: &[f32], count: usize, kept: &mut Vec<Candidate>) {
    kept.clear();
    let room = (4 * count).max(1024);
    let mut floor = f32::NEG_INFINITY;
    for (id, &logit) in row.iter().enumerate() {
        if logit > floor {
            kept.push(Candidate { id: id as TokenId, logit });
            if kept.len() == room {
                let (_, last, _) = kept.select_nth_unstable_by(count - 1, Candidate::order);
                floor = last.logit;
                kept.truncate(count);
            }
        }
    }
    kept.sort_unstable_by(Candidate::order);
    kept.truncate(count);
}

/// Inverse of the cumulative distribution at `u` in `[0, 1)`. An id of weight 0 is never drawn.
fn draw(candidates: &[Candidate], weights: &[f64], u: f64) -> Option<TokenId> {
    let total: f64 = weights.iter().sum();
    let target = u * total;
    let mut sum = 0.0;
    let mut last = None;
    for (candidate, &weight) in candidates.iter().zip(weights) {
        if weight > 0.0 {
            sum += weight;
            last = Some(candidate.id);
            if target < sum {
                break;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests;
