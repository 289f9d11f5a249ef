//! The vocabulary as a file gives it, and what must hold of it.

use std::collections::HashMap;

use tokenizers::models::bpe;

use crate::{
    Error,
    bytes::{ALPHABET, byte_of},
};

/// A vocabulary as stored in GGUF metadata (`tokenizer.ggml.*`); the caller reads the file, [`Tokenizer::new`] judges it.
///
/// [`Tokenizer::new`]: crate::Tokenizer::new
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vocab {
    /// `tokens`: the text of each id. Normal tokens are written in the byte alphabet (`Ġ` is a blank), others literally.
    pub tokens: Vec<String>,
    /// `token_type`, one per token: 1 normal, 3 control, 4 user-defined, 5 unused.
    pub token_types: Vec<i32>,
    /// `merges`: `"left right"` in the byte alphabet, the first is applied first.
    pub merges: Vec<String>,
    /// `pre`: which pre-split pattern, `qwen35` or `qwen2`.
    pub pre: String,
    /// `model`: the kind of tokenizer, `gpt2` (byte-level BPE).
    pub model: String,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `add_bos_token`: whether a prompt begins with `bos`. False where the file has no such key.
    pub add_bos: bool,
}

/// What an id is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Made by merging bytes.
    Normal,
    /// Structure (`<|im_end|>`): matched literally, hidden from readers on request.
    Control,
    /// Matched literally, shown (`<think>`).
    UserDefined,
    /// Padding up to a round size: never produced, never shown.
    Unused,
}

/// A vocabulary that passed every check: ids fit u32, each byte has a token, each merge makes a token.
pub(crate) struct CheckedVocab {
    pub(crate) kinds: Vec<TokenKind>,
    /// The bytes of all tokens, one after the other; those of `id` end at `ends[id]`.
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
    /// Control and user-defined tokens.
    pub(crate) added: Vec<(String, u32)>,
    pub(crate) normal: bpe::Vocab,
    pub(crate) merges: bpe::Merges,
}

impl CheckedVocab {
    pub(crate) fn new(vocab: &Vocab) -> Result<Self, Error> {
        if vocab.model != "gpt2" {
            return Err(Error::UnsupportedModel { model: vocab.model.clone() });
        }
        if vocab.token_types.len() != vocab.tokens.len() {
            return Err(Error::TypeCount { types: vocab.token_types.len(), tokens: vocab.tokens.len() });
        }
        let mut checked = Self {
            kinds: Vec::with_capacity(vocab.tokens.len()),
            bytes: Vec::new(),
            ends: Vec::with_capacity(vocab.tokens.len()),
            added: Vec::new(),
            normal: bpe::Vocab::default(),
            merges: Vec::with_capacity(vocab.merges.len()),
        };
        checked.add_tokens(vocab)?;
        checked.check_bytes()?;
        checked.add_merges(&vocab.merges)?;
        checked.check_end("tokenizer.ggml.bos_token_id", vocab.bos)?;
        checked.check_end("tokenizer.ggml.eos_token_id", vocab.eos)?;
        if vocab.add_bos && vocab.bos.is_none() {
            return Err(Error::NoBos);
        }
        Ok(checked)
    }

    fn add_tokens(&mut self, vocab: &Vocab) -> Result<(), Error> {
        let mut first_use: HashMap<&str, u32> = HashMap::with_capacity(vocab.tokens.len());
        for (index, (token, &kind)) in vocab.tokens.iter().zip(&vocab.token_types).enumerate() {
            let id = u32::try_from(index).map_err(|_| Error::TooManyTokens { tokens: vocab.tokens.len() })?;
            let kind = match kind {
                1 => TokenKind::Normal,
                // Converters fill up to the embedding's rows with `[PAD<id>]`; older ones call that user-defined.
                3 | 4 if is_padding(token, id) => TokenKind::Unused,
                3 => TokenKind::Control,
                4 => TokenKind::UserDefined,
                5 => TokenKind::Unused,
                found => return Err(Error::TokenType { id, token: token.clone(), found }),
            };
            self.kinds.push(kind);
            if kind != TokenKind::Unused {
                if token.is_empty() {
                    return Err(Error::EmptyToken { id });
                }
                if let Some(first) = first_use.insert(token, id) {
                    return Err(Error::DuplicateToken { id, first, token: token.clone() });
                }
            }
            match kind {
                TokenKind::Normal => {
                    for c in token.chars() {
                        let byte = byte_of(c).ok_or_else(|| Error::NotBytes { id, token: token.clone(), found: c })?;
                        self.bytes.push(byte);
                    }
                    self.normal.insert(token.clone(), id);
                }
                TokenKind::Control | TokenKind::UserDefined => {
                    self.bytes.extend_from_slice(token.as_bytes());
                    self.added.push((token.clone(), id));
                }
                TokenKind::Unused => {}
            }
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }

    /// The merging code drops a character that has no token, so each of the 256 must have one.
    fn check_bytes(&self) -> Result<(), Error> {
        for (byte, c) in (0_u8..=255).zip(ALPHABET) {
            if !self.normal.contains_key(c.encode_utf8(&mut [0; 4]) as &str) {
                return Err(Error::MissingByte { byte, wanted: c });
            }
        }
        Ok(())
    }

    fn add_merges(&mut self, merges: &[String]) -> Result<(), Error> {
        let mut first_use: HashMap<&str, usize> = HashMap::with_capacity(merges.len());
        for (index, merge) in merges.iter().enumerate() {
            let (left, right) = merge
                .split_once(' ')
                .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
                .ok_or_else(|| Error::MergeForm { index, merge: merge.clone() })?;
            let result = format!("{left}{right}");
            for part in [left, right, &result] {
                if !self.normal.contains_key(part) {
                    return Err(Error::MergeToken { index, merge: merge.clone(), part: part.into() });
                }
            }
            if let Some(first) = first_use.insert(merge, index) {
                return Err(Error::DuplicateMerge { index, first, merge: merge.clone() });
            }
            self.merges.push((left.into(), right.into()));
        }
        Ok(())
    }

    fn check_end(&self, key: &'static str, id: Option<u32>) -> Result<(), Error> {
        match id {
            Some(id) if self.kinds.get(id as usize).is_none_or(|kind| *kind == TokenKind::Unused) => {
                Err(Error::BadEndToken { key, id, tokens: self.kinds.len() })
            }
            _ => Ok(()),
        }
    }
}

fn is_padding(token: &str, id: u32) -> bool {
    token.strip_prefix("[PAD").and_then(|rest| rest.strip_suffix(']')).is_some_and(|number| number == id.to_string())
}
