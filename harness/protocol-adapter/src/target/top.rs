//! The largest logits of a row.

use super::Token;

/// The `k` largest of a row, descending; of equal ones the lowest id comes first (engine-protocol-v1.md 6.1).
pub fn top_of(logits: &[f32], k: usize) -> Vec<(Token, f32)> {
    let mut top: Vec<(Token, f32)> = Vec::with_capacity(k.min(logits.len()) + 1);
    for (id, &logit) in logits.iter().enumerate() {
        if top.len() == k && top.last().is_none_or(|(_, least)| logit <= *least) {
            continue;
        }
        let Ok(id) = Token::try_from(id) else { break };
        let at = top.partition_point(|(_, other)| *other >= logit);
        top.insert(at, (id, logit));
        top.truncate(k);
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_go_to_the_lowest_id() {
        assert_eq!(top_of(&[1.0, 3.0, 3.0, 2.0, 3.0], 4), [(1, 3.0), (2, 3.0), (4, 3.0), (3, 2.0)]);
        assert_eq!(top_of(&[0.0, -0.0], 1), [(0, 0.0)]);
    }

    #[test]
    fn no_more_than_the_row_has() {
        assert_eq!(top_of(&[1.0], 8), [(0, 1.0)]);
        assert_eq!(top_of(&[], 8), []);
        assert_eq!(top_of(&[1.0, 2.0], 0), []);
    }

    proptest! {
        #[test]
        fn the_top_is_the_head_of_the_sorted_row(row in prop::collection::vec(-4i8..4, 0..50), k in 0usize..12) {
            let row: Vec<f32> = row.into_iter().map(f32::from).collect();
            let mut sorted: Vec<(Token, f32)> = (0..).zip(row.iter().copied()).collect();
            sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            sorted.truncate(k);
            prop_assert_eq!(top_of(&row, k), sorted);
        }
    }
}
