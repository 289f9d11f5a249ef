//! What every backend refuses before it runs anything, and in the same words.

use crate::backend::{BackendError, MAX_DEPTH, TokenId};

/// Refuses ids that no embedding row stands for: the first of them.
pub fn tokens(tokens: &[TokenId], vocab: usize) -> Result<(), BackendError> {
    match tokens.iter().find(|id| **id as usize >= vocab) {
        Some(id) => Err(BackendError::TokenOutsideVocabulary { id: *id, vocab }),
        None => Ok(()),
    }
}

/// Refuses a depth outside `0..=MAX_DEPTH`, and any but 0 where no draft head is loaded.
pub fn depth(call: &'static str, depth: usize, has_head: bool) -> Result<(), BackendError> {
    if depth > MAX_DEPTH {
        return Err(BackendError::Misuse { call, why: format!("depth {depth} is outside 0..={MAX_DEPTH}") });
    }
    if depth > 0 && !has_head {
        return Err(BackendError::Misuse { call, why: format!("depth {depth} needs a draft head, none is loaded") });
    }
    Ok(())
}

/// Refuses rows with a value that is no number. `logits: [T][vocab]`, the first row at `position`; names the first such row.
pub fn finite(logits: &[f32], vocab: usize, position: usize) -> Result<(), BackendError> {
    match logits.iter().position(|v| !v.is_finite()) {
        Some(i) => Err(BackendError::NotFinite { position: position + i / vocab }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_id_outside_the_vocabulary_is_named() {
        assert!(tokens(&[0, 9], 10).is_ok());
        let refused = tokens(&[3, 11, 10], 10);
        assert!(matches!(refused, Err(BackendError::TokenOutsideVocabulary { id: 11, vocab: 10 })), "{refused:?}");
    }

    #[test]
    fn depth_zero_needs_no_head_and_seven_is_too_deep_with_one() {
        assert!(depth("round", 0, false).is_ok() && depth("round", MAX_DEPTH, true).is_ok());
        for (asked, head) in [(1, false), (MAX_DEPTH + 1, true)] {
            assert!(matches!(depth("round", asked, head), Err(BackendError::Misuse { call: "round", .. })));
        }
    }

    #[test]
    fn the_row_of_the_first_value_that_is_no_number_is_named() {
        assert!(finite(&[0.0, f32::MAX], 2, 5).is_ok());
        for value in [f32::NAN, f32::INFINITY] {
            let refused = finite(&[0.0, 1.0, value, value], 2, 5);
            assert!(matches!(refused, Err(BackendError::NotFinite { position: 6 })), "{refused:?}");
        }
    }
}
