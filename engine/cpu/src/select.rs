//! Which tokens a query attends (qwen4exp.md 5, select).

use crate::math::{best_first, dot_inline};
use crate::model::Model;
use crate::simd::{self, Kernel};
use crate::state::Cache;

/// Attended tokens of one query, ascending: every visible one, or the kept QSA blocks and the tail.
pub enum Selected {
    /// Tokens `0..n`.
    Dense(usize),
    /// Whole blocks, ascending, then the tokens behind the last complete block.
    Blocks {
        /// Kept block numbers, ascending.
        blocks: Vec<u32>,
        /// Tokens of a block.
        ratio: usize,
        /// The incomplete block's tokens.
        tail: std::ops::Range<usize>,
    },
}

impl Selected {
    /// Whether there are none: never, a query sees itself.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// How many tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::Dense(n) => *n,
            Self::Blocks { blocks, ratio, tail } => blocks.len() * ratio + tail.len(),
        }
    }
    /// The `i`-th token's position.
    #[inline(always)]
    pub fn token(&self, i: usize) -> usize {
        match self {
            Self::Dense(_) => i,
            Self::Blocks { blocks, ratio, tail } => match blocks.get(i / ratio) {
                Some(block) => *block as usize * ratio + i % ratio,
                None => tail.start + (i - blocks.len() * ratio),
            },
        }
    }
    /// All positions.
    pub fn tokens(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|i| self.token(i))
    }
}

/// `queries: [index heads][dim]`, normed and rotated; the query sees tokens `0..visible`. Higher score first, then the
/// lower block: the relu makes exact zeros, so ties do occur.
pub(crate) fn select(model: &Model, pooled: &Cache, queries: &[f32], visible: usize) -> Selected {
    let ix = &model.hp.indexer;
    let blocks = visible / ix.ratio;
    let budget = ix.budget_blocks();
    if blocks <= budget {
        return Selected::Dense(visible);
    }
    let mut scores = vec![0.0f32; blocks];
    let bytes = blocks * ix.head_dim * 4;
    model.pool.split(&mut scores, 1, bytes, |first, scores| {
        simd::run(Scores { pooled, queries, dim: ix.head_dim, first, scores });
    });
    Selected::Blocks { blocks: best(&scores, budget), ratio: ix.ratio, tail: blocks * ix.ratio..visible }
}

/// The `budget` best of more than `budget` scores, ascending by index.
fn best(scores: &[f32], budget: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.select_nth_unstable_by(budget - 1, best_first(scores));
    order.truncate(budget);
    order.sort_unstable();
    order
}

/// `score_b = sum_h max(0, q_h . key_b)`; the factor `1 / sqrt(dim)` would not change the ranking.
struct Scores<'a> {
    pooled: &'a Cache,
    queries: &'a [f32],
    dim: usize,
    first: usize,
    scores: &'a mut [f32],
}

impl Kernel for Scores<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { pooled, queries, dim, first, scores } = self;
        let mut key = vec![0.0; dim];
        for (i, score) in scores.iter_mut().enumerate() {
            pooled.get(first + i, 0, &mut key);
            // A closure would be compiled for the baseline.
            *score = 0.0;
            for q in queries.chunks_exact(dim) {
                *score += dot_inline(q, &key).max(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few distinct scores, zeros among them: ties are the rule, and the lower block wins.
        #[test]
        fn kept_blocks_equal_a_full_sort_with_ties(scores in proptest::collection::vec((0u8..4).prop_map(f32::from), 9..200), budget in 1usize..8) {
            let mut order: Vec<u32> = (0..scores.len() as u32).collect();
            order.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
            order.truncate(budget);
            order.sort_unstable();
            prop_assert_eq!(best(&scores, budget), order);
        }

        #[test]
        fn selected_tokens_are_the_blocks_then_the_tail(blocks in proptest::collection::btree_set(0u32..50, 1..20), tail in 0usize..4) {
            let selected = Selected::Blocks { blocks: blocks.iter().copied().collect(), ratio: 4, tail: 200..200 + tail };
            let mut want: Vec<usize> = blocks.iter().flat_map(|b| *b as usize * 4..*b as usize * 4 + 4).collect();
            want.extend(200..200 + tail);
            prop_assert_eq!(selected.tokens().collect::<Vec<_>>(), want);
        }
    }
}
