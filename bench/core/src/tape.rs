//! Tapes: a timed stream alone, without cases (benchd.md 4.1).

use serde::Deserialize;

use crate::fields;
use crate::golden::ModelShape;
use crate::json;

/// What a document turns out to be, by the keys it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    /// Has `cases`.
    Golden,
    /// Has `seed_tokens`, `reference_seed_token` and `rows`.
    Tape,
}

/// Why a tape is refused.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// Neither kind of document.
    #[error("unrecognized document: a golden has `cases`, a tape has `seed_tokens`, `reference_seed_token` and `rows`")]
    Unrecognized,
    /// Not JSON, another shape, an unknown or repeated key.
    #[error("tape could not be decoded; record it again")]
    Decode(#[source] serde_json::Error),
    /// A list with nothing in it.
    #[error("tape: `{key}` is empty; record at least one token")]
    Empty {
        /// Which.
        key: &'static str,
    },
    /// The reference contradicted itself while recording.
    #[error("tape: reference_self_consistent is false, an operator's fault; record it again on a quiet machine")]
    NotSelfConsistent,
    /// `emitted_tokens` is not what the rows say.
    #[error("tape: emitted_tokens is not the chain of the rows, first at index {at}; record both in one run")]
    Emitted {
        /// Where they part.
        at: usize,
    },
    /// The two best are two.
    #[error("tape: rows[{index}]: top2_tokens and top2_logits have two entries each; record it again")]
    NotTwo {
        /// Which row.
        index: usize,
    },
    /// A token the model does not have.
    #[error("tape: {field} is outside configured vocab range 0..<{vocab}")]
    OutsideVocab {
        /// Where it stands.
        field: String,
        /// The track's vocabulary.
        vocab: i64,
    },
}

/// Tells a golden from a tape without reading either.
pub fn kind(bytes: &[u8]) -> Result<DocumentKind, TapeError> {
    let value = fields::parse(bytes).map_err(TapeError::Decode)?;
    let has = |key: &str| value.get(key).is_some();
    if ["seed_tokens", "reference_seed_token", "rows"].into_iter().all(has) {
        Ok(DocumentKind::Tape)
    } else if has("cases") {
        Ok(DocumentKind::Golden)
    } else {
        Err(TapeError::Unrecognized)
    }
}

/// A stream as an oracle for the timed leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tape {
    /// The prompt.
    pub seed_tokens: Vec<i64>,
    /// Follows it: `expected_decode_seed_token`.
    pub seed_token: i64,
    /// Follow that: `expected_decode_tokens`.
    pub decode_tokens: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    seed_tokens: Vec<i64>,
    reference_seed_token: i64,
    #[serde(deserialize_with = "json::objects")]
    rows: Vec<Row>,
    #[serde(default)]
    reference_self_consistent: Option<bool>,
    #[serde(default)]
    emitted_tokens: Option<Vec<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    sequential_argmax: i64,
    #[serde(default)]
    top2_tokens: Option<Vec<i64>>,
    #[serde(default)]
    top2_logits: Option<Vec<f64>>,
    /// Allowed, of no use here.
    #[serde(default, rename = "top1_logit")]
    _top1_logit: Option<f64>,
}

impl Tape {
    /// Reads a tape.
    pub fn load(bytes: &[u8], shape: &ModelShape) -> Result<Self, TapeError> {
        let document: Document = json::document(bytes).map_err(TapeError::Decode)?;
        let decode_tokens: Vec<i64> = document.rows.iter().map(|row| row.sequential_argmax).collect();
        for (key, empty) in [("seed_tokens", document.seed_tokens.is_empty()), ("rows", decode_tokens.is_empty())] {
            if empty {
                return Err(TapeError::Empty { key });
            }
        }
        if document.reference_self_consistent == Some(false) {
            return Err(TapeError::NotSelfConsistent);
        }
        if let Some(emitted) = &document.emitted_tokens
            && *emitted != decode_tokens
        {
            let parted = emitted.iter().zip(&decode_tokens).position(|(a, b)| a != b);
            let at = parted.unwrap_or(emitted.len().min(decode_tokens.len()));
            return Err(TapeError::Emitted { at });
        }
        let in_vocab = |field: &str, tokens: &[i64]| match tokens
            .iter()
            .position(|token| !(0..shape.vocab_size).contains(token))
        {
            Some(index) => Err(TapeError::OutsideVocab { field: format!("{field}[{index}]"), vocab: shape.vocab_size }),
            None => Ok(()),
        };
        in_vocab("seed_tokens", &document.seed_tokens)?;
        in_vocab("reference_seed_token", &[document.reference_seed_token])?;
        in_vocab("rows.sequential_argmax", &decode_tokens)?;
        for (index, row) in document.rows.iter().enumerate() {
            in_vocab(&format!("rows[{index}].top2_tokens"), row.top2_tokens.as_deref().unwrap_or_default())?;
            let lengths = [row.top2_tokens.as_ref().map(Vec::len), row.top2_logits.as_ref().map(Vec::len)];
            if lengths.into_iter().flatten().any(|length| length != 2) {
                return Err(TapeError::NotTwo { index });
            }
        }
        Ok(Self { seed_tokens: document.seed_tokens, seed_token: document.reference_seed_token, decode_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shape;

    fn load(text: &str) -> Result<Tape, String> {
        Tape::load(text.as_bytes(), &shape(3, 100)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_tape_becomes_an_oracle() {
        let text = r#"{"seed_tokens":[1,2],"reference_seed_token":3,"rows":[{"sequential_argmax":4,"top2_tokens":[4,5],
            "top2_logits":[2.5,1.0],"top1_logit":2.5},{"sequential_argmax":6}],"reference_self_consistent":true,
            "emitted_tokens":[4,6]}"#;
        let want = Tape { seed_tokens: vec![1, 2], seed_token: 3, decode_tokens: vec![4, 6] };
        assert_eq!(load(text), Ok(want));
        assert_eq!(kind(text.as_bytes()).unwrap(), DocumentKind::Tape);
        assert_eq!(kind(br#"{"cases":[]}"#).unwrap(), DocumentKind::Golden);
        assert!(matches!(kind(br#"{"rows":[]}"#), Err(TapeError::Unrecognized)));
        assert!(matches!(kind(br#"[]"#), Err(TapeError::Unrecognized)));
        assert!(matches!(kind(br#"{"cases":1,"cases":2}"#), Err(TapeError::Decode(_))));
    }

    #[test]
    fn each_rule_of_a_tape_refuses_by_itself() {
        let row = r#""rows":[{"sequential_argmax":4}]"#;
        for (text, want) in [
            (format!(r#"{{"seed_tokens":[],"reference_seed_token":3,{row}}}"#), "`seed_tokens` is empty"),
            (r#"{"seed_tokens":[1],"reference_seed_token":3,"rows":[]}"#.into(), "`rows` is empty"),
            (
                format!(r#"{{"seed_tokens":[1],"reference_seed_token":3,{row},"reference_self_consistent":false}}"#),
                "reference_self_consistent is false",
            ),
            (format!(r#"{{"seed_tokens":[1],"reference_seed_token":3,{row},"emitted_tokens":[5]}}"#), "at index 0"),
            (format!(r#"{{"seed_tokens":[1],"reference_seed_token":3,{row},"emitted_tokens":[4,4]}}"#), "at index 1"),
            (format!(r#"{{"seed_tokens":[1,100],"reference_seed_token":3,{row}}}"#), "seed_tokens[1] is outside"),
            (format!(r#"{{"seed_tokens":[1],"reference_seed_token":-1,{row}}}"#), "reference_seed_token[0] is outside"),
            (format!(r#"{{"seed_tokens":[1],"reference_seed_token":3,{row},"x":1}}"#), "could not be decoded"),
            (r#"{"seed_tokens":[1],"reference_seed_token":3,"rows":[[4]]}"#.into(), "could not be decoded"),
            (
                r#"{"seed_tokens":[1],"reference_seed_token":3,"rows":[{"sequential_argmax":4,"top2_tokens":[4]}]}"#
                    .into(),
                "rows[0]: top2_tokens",
            ),
        ] {
            let refused = load(&text).unwrap_err();
            assert!(refused.contains(want), "{text}: {refused}");
        }
    }
}
