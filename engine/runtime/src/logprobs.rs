//! How likely the model itself found a token, and which it found most likely.

use crate::backend::TokenId;

/// Most alternatives a request may ask for.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// Natural logarithms of probabilities after one row.
///
/// The distribution is the softmax of the row as the model made it: before bias, penalties, mask and temperature, over the
/// whole vocabulary. It says what the model thought, whatever the sampler was told, and so the chosen token need not be among
/// the most likely. Being a function of the row alone, the numbers are the same in every bit with drafting and without.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenLogprobs {
    /// Of the chosen token.
    pub logprob: f32,
    /// The most likely tokens, best first, the lower id of equals; as many as were asked for.
    pub top: Vec<(TokenId, f32)>,
}

impl TokenLogprobs {
    /// For the token `chosen` after `row` and the `top` most likely. Sums in f64, ids ascending. A logit that is not a number
    /// has no probability; nor has an id outside the row.
    pub fn of(row: &[f32], chosen: TokenId, top: usize) -> Self {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let above = |logit: f32| if logit == largest { 0.0 } else { f64::from(logit) - f64::from(largest) };
        let total: f64 = row.iter().filter(|logit| !logit.is_nan()).map(|logit| above(*logit).exp()).sum();
        let logprob = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { (above(logit) - total.ln()) as f32 };
        Self {
            logprob: row.get(chosen as usize).map_or(f32::NEG_INFINITY, |logit| logprob(*logit)),
            top: best(row, top).into_iter().map(|(id, logit)| (id, logprob(logit))).collect(),
        }
    }
}

/// The `count` largest logits, best first, the lower id of equals. `count` is small: insertion into a short list costs one
/// comparison for nearly every id.
fn best(row: &[f32], count: usize) -> Vec<(TokenId, f32)> {
    let mut kept: Vec<(TokenId, f32)> = Vec::with_capacity(count + 1);
    for (id, &logit) in row.iter().enumerate() {
        let full = kept.len() == count;
        if logit.is_nan() || (full && kept.last().is_none_or(|(_, least)| logit <= *least)) {
            continue;
        }
        let at = kept.partition_point(|(_, other)| *other >= logit);
        kept.insert(at, (id as TokenId, logit));
        kept.truncate(count);
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn logprobs_are_those_of_a_softmax_by_full_sort(
            row in prop::collection::vec((-60i32..60).prop_map(|v| v as f32 * 0.5), 1..120),
            chosen in any::<prop::sample::Index>(),
            top in 0usize..=MAX_TOP_LOGPROBS,
        ) {
            let chosen = chosen.index(row.len());
            let total: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
            let want = |id: usize| f64::from(row[id]) - total.ln();
            let got = TokenLogprobs::of(&row, chosen as TokenId, top);
            prop_assert!((f64::from(got.logprob) - want(chosen)).abs() < 1e-5);
            let mut ids: Vec<usize> = (0..row.len()).collect();
            ids.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
            ids.truncate(top);
            prop_assert_eq!(got.top.iter().map(|(id, _)| *id as usize).collect::<Vec<_>>(), ids);
            for (id, logprob) in &got.top {
                prop_assert!((f64::from(*logprob) - want(*id as usize)).abs() < 1e-5);
                prop_assert!(*logprob <= 0.0);
            }
        }
    }

    #[test]
    fn what_is_no_number_has_no_probability() {
        let got = TokenLogprobs::of(&[f32::NAN, 0.0, f32::NEG_INFINITY, 0.0], 0, 3);
        let half = 0.5f32.ln();
        assert_eq!(
            (got.logprob, &got.top[..]),
            (f32::NEG_INFINITY, &[(1, half), (3, half), (2, f32::NEG_INFINITY)][..])
        );
        assert_eq!(TokenLogprobs::of(&[f32::INFINITY, 1.0], 0, 1), TokenLogprobs { logprob: 0.0, top: vec![(0, 0.0)] });
        assert_eq!(TokenLogprobs::of(&[1.0], 7, 0).logprob, f32::NEG_INFINITY);
    }
}
