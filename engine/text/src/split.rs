//! Cutting text into the pieces inside which byte pairs may merge.
//!
//! The published patterns end in `\s+(?!\S)|\s+`. Look-ahead needs a backtracking engine, whose step limit would cut long
//! runs differently; the same pieces come from a linear-time engine with the plain `\s+` and one correction, see
//! [`PreSplit::pieces`].

use regex::Regex;

use crate::Error;

/// `tokenizer.ggml.pre` and its pattern up to, but without, the final `\s+(?!\S)|\s+`.
const PATTERNS: [(&str, &str); 2] = [
    ("qwen2", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"),
    (
        "qwen35",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+",
    ),
];

/// One of the known pre-tokenisers.
#[derive(Debug)]
pub(crate) struct PreSplit {
    regex: Regex,
}

impl PreSplit {
    pub(crate) fn new(pre: &str) -> Result<Self, Error> {
        let Some((_, pattern)) = PATTERNS.iter().find(|(name, _)| *name == pre) else {
            let known = PATTERNS.map(|(name, _)| name).join(", ");
            return Err(Error::UnknownPreTokenizer { pre: pre.into(), known });
        };
        let regex = Regex::new(&format!(r"{pattern}|\s+"))
            .map_err(|source| Error::Backend { doing: "building the pre-split pattern", source: source.into() })?;
        Ok(Self { regex })
    }

    /// The pieces of `text`, in order; together they are `text`.
    ///
    /// A match that ends in white space other than a line break can only come from `\s+`, which took the whole run. If
    /// something follows the run, `\s+(?!\S)` leaves the run's last character to the next piece (often the blank in front
    /// of a word), and a run of one character falls through to the last alternative and stays whole.
    pub(crate) fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = self.regex.find_at(text, at)?;
            let piece = &text[at..found.end()];
            let last = piece.chars().next_back()?;
            let keep = if last.is_whitespace()
                && !matches!(last, '\r' | '\n')
                && found.end() < text.len()
                && piece.len() > last.len_utf8()
            {
                piece.len() - last.len_utf8()
            } else {
                piece.len()
            };
            at += keep;
            Some(&piece[..keep])
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        PreSplit::new(pre).unwrap().pieces(text).collect()
    }

    #[test]
    fn the_last_blank_of_a_run_goes_with_the_next_word() {
        assert_eq!(pieces("qwen35", "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("qwen35", "a b"), ["a", " b"]);
        assert_eq!(pieces("qwen35", "a   1"), ["a", "  ", " ", "1"]);
        assert_eq!(pieces("qwen35", "a 1"), ["a", " ", "1"]);
        assert_eq!(pieces("qwen35", "a   "), ["a", "   "]);
        assert_eq!(pieces("qwen35", "\t\t\tx"), ["\t\t", "\tx"]);
        assert_eq!(pieces("qwen35", "  \u{3000}!"), ["  ", "\u{3000}", "!"]);
    }

    #[test]
    fn line_breaks_end_their_run() {
        assert_eq!(pieces("qwen35", "a \n \r\n  b"), ["a", " \n \r\n", " ", " b"]);
        assert_eq!(pieces("qwen35", "x!\n\ny"), ["x", "!\n\n", "y"]);
    }

    #[test]
    fn marks_stay_with_letters_in_qwen35_only() {
        assert_eq!(pieces("qwen35", "e\u{301}te"), ["e\u{301}te"]);
        assert_eq!(pieces("qwen2", "e\u{301}te"), ["e", "\u{301}te"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = PreSplit::new("llama-bpe").unwrap_err().to_string();
        assert!(error.contains("`llama-bpe`") && error.contains("qwen2, qwen35"), "{error}");
    }

    proptest! {
        #[test]
        fn pieces_are_the_text_and_never_empty(text in "(?s).{0,60}|[ \t\r\n\u{3000}a1!']{0,60}") {
            for pre in ["qwen2", "qwen35"] {
                let found = pieces(pre, &text);
                prop_assert!(found.iter().all(|piece| !piece.is_empty()));
                prop_assert_eq!(found.concat(), text.as_str());
            }
        }
    }
}
