//! Text to ids and back.

use std::{fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{Model as _, models::bpe::BPE};

use crate::{
    Error, StreamDecoder, Vocab, bytes,
    split::PreSplit,
    vocab::{CheckedVocab, TokenKind},
};

/// Whether the text of a special token means that token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialTokens {
    /// `<|im_end|>` becomes its id: for prompts rendered by a template.
    Parse,
    /// `<|im_end|>` becomes the ids of its characters: for text of a user, who must not be able to end a turn.
    Literal,
}

/// Byte-level BPE over one vocabulary. A clone shares everything; may be used from several threads at once.
///
/// Text is cut at special tokens (longest match, with [`SpecialTokens::Parse`]), then by the pre-split pattern, and each
/// piece is merged. Nothing is normalised: decoding gives back the bytes that were encoded.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    kinds: Vec<TokenKind>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    added: Vec<(String, u32)>,
    added_search: AhoCorasick,
    /// Of the control tokens alone.
    control_search: AhoCorasick,
    split: PreSplit,
    bpe: BPE,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
}

impl Tokenizer {
    /// Checks the vocabulary and builds the tables. Takes about half a second for 250,000 tokens.
    pub fn new(vocab: Vocab) -> Result<Self, Error> {
        let split = PreSplit::new(&vocab.pre)?;
        let checked = CheckedVocab::new(&vocab)?;
        let search = |tokens: Vec<&str>| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens)
                .map_err(|source| Error::Backend { doing: "indexing the special tokens", source: source.into() })
        };
        let added_search = search(checked.added.iter().map(|(text, _)| &text[..]).collect())?;
        let is_control = |id: u32| checked.kinds.get(id as usize) == Some(&TokenKind::Control);
        let control = checked.added.iter().filter(|(_, id)| is_control(*id));
        let control_search = search(control.map(|(text, _)| &text[..]).collect())?;
        let bpe = BPE::builder()
            .vocab_and_merges(checked.normal, checked.merges)
            .build()
            .map_err(|source| Error::Backend { doing: "building the merge table", source })?;
        let inner = Inner {
            kinds: checked.kinds,
            bytes: checked.bytes,
            ends: checked.ends,
            added: checked.added,
            added_search,
            control_search,
            split,
            bpe,
            bos: vocab.bos,
            eos: vocab.eos,
            add_bos: vocab.add_bos,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The ids of `text`. They begin with the begin token only where the vocabulary asks for it
    /// ([`Vocab::add_bos`]) and a parsed text does not bring its own.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        match special {
            SpecialTokens::Literal => self.inner.encode_ordinary(text, &mut String::new(), &mut ids)?,
            SpecialTokens::Parse => self.inner.encode_parsed(text, None, &mut ids)?,
        }
        Ok(self.with_bos(ids))
    }

    /// Whether the text of a control token ([`Tokenizer::is_special`]) is somewhere in `text`.
    pub fn spells_control(&self, text: &str) -> bool {
        self.inner.control_search.is_match(text)
    }

    /// `text` with `mark` behind the first character of everything in it that spells a control token. `mark` may be in
    /// neither the text nor a token.
    pub fn mark_control(&self, text: &str, mark: char) -> String {
        let mut marked = String::with_capacity(text.len() + mark.len_utf8());
        let mut at = 0;
        // Searched again from the next character on, as one token's text may begin inside another's.
        while let Some(found) = self.inner.control_search.find(&text[at..]) {
            let first = at + found.start();
            let end = first + text[first..].chars().next().map_or(1, char::len_utf8);
            marked.push_str(&text[at..end]);
            marked.push(mark);
            at = end;
        }
        marked.push_str(&text[at..]);
        marked
    }

    /// As [`encode`](Self::encode) with [`SpecialTokens::Parse`], for a text with parts from
    /// [`mark_control`](Self::mark_control): marks are left out, and what was marked is the characters it is written with.
    pub fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        self.inner.encode_parsed(text, Some(mark), &mut ids)?;
        Ok(self.with_bos(ids))
    }

    fn with_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        let inner = &*self.inner;
        if let (true, Some(bos)) = (inner.add_bos, inner.bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// The bytes of one token, possibly part of a character. Empty for an unused id and for one outside the vocabulary;
    /// [`Tokenizer::check_ids`] tells these apart from tokens.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        let index = id as usize;
        let Some(&end) = self.inner.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).map_or(0, |before| self.inner.ends[before]);
        &self.inner.bytes[start..end]
    }

    /// The text of `ids`, special tokens included. Bytes that are not UTF-8 become U+FFFD, nothing else is lost.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.token_bytes(id)).copied().collect();
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Refuses the first id that stands for no text: outside the vocabulary, or unused.
    pub fn check_ids(&self, ids: &[u32]) -> Result<(), Error> {
        match ids.iter().position(|&id| self.is_unused(id)) {
            Some(index) => Err(Error::UnknownId { id: ids[index], index, tokens: self.vocab_len() }),
            None => Ok(()),
        }
    }

    /// A decoder for ids that arrive one by one.
    pub fn stream(&self) -> StreamDecoder {
        StreamDecoder::new(self.clone())
    }

    /// How many ids there are, unused ones included.
    pub fn vocab_len(&self) -> usize {
        self.inner.kinds.len()
    }

    /// Whether the id is a control token: structure that a reader need not see. `<think>` and `<tool_call>` are
    /// user-defined tokens in this family's files and are not special in this sense.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.kinds.get(id as usize) == Some(&TokenKind::Control)
    }

    /// Whether the id stands for nothing (padding, or outside the vocabulary): a sampler must never choose it.
    pub fn is_unused(&self, id: u32) -> bool {
        self.inner.kinds.get(id as usize).is_none_or(|kind| *kind == TokenKind::Unused)
    }

    /// The begin token, where the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.inner.bos
    }

    /// The end-of-turn token, where the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.inner.eos
    }
}

impl Inner {
    /// Appends the ids of text with special tokens. One of a single character with `mark` behind it is that character.
    fn encode_parsed(&self, text: &str, mark: Option<char>, ids: &mut Vec<u32>) -> Result<(), Error> {
        let mut spelled = String::new();
        let mut ordinary = |text: &str, ids: &mut Vec<u32>| match mark {
            Some(mark) if text.contains(mark) => self.encode_ordinary(&text.replace(mark, ""), &mut spelled, ids),
            _ => self.encode_ordinary(text, &mut spelled, ids),
        };
        let mut at = 0;
        for found in self.added_search.find_iter(text) {
            let marked = mark.is_some_and(|mark| text[found.end()..].starts_with(mark));
            if marked && text[found.range()].chars().nth(1).is_none() {
                continue;
            }
            ordinary(&text[at..found.start()], ids)?;
            ids.push(self.added[found.pattern().as_usize()].1);
            at = found.end();
        }
        ordinary(&text[at..], ids)
    }

    /// Appends the ids of text without special tokens. `spelled` is scratch.
    fn encode_ordinary(&self, text: &str, spelled: &mut String, ids: &mut Vec<u32>) -> Result<(), Error> {
        for piece in self.split.pieces(text) {
            spelled.clear();
            bytes::spell(piece, spelled);
            let tokens =
                self.bpe.tokenize(spelled).map_err(|source| Error::Backend { doing: "merging byte pairs", source })?;
            ids.extend(tokens.iter().map(|token| token.id));
        }
        Ok(())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_len", &self.vocab_len())
            .field("special", &self.inner.added.len())
            .field("bos", &self.inner.bos)
            .field("eos", &self.inner.eos)
            .finish_non_exhaustive()
    }
}
