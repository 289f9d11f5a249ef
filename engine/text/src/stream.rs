//! Ids to text as they arrive, whole characters only.

use crate::Tokenizer;

/// Turns a stream of ids into text. Tokens are bytes and may end inside a character; what is not yet a character waits.
///
/// Law: the pushes and [`StreamDecoder::finish`] put together are [`Tokenizer::decode`] of all ids (without the control
/// tokens, if hidden). Bytes become U+FFFD as soon as, and only when, nothing that follows could make them a character.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    /// The start of a character, at most three bytes.
    pending: Vec<u8>,
    hide_special: bool,
}

impl StreamDecoder {
    pub(crate) fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::with_capacity(64), hide_special: false }
    }

    /// Leaves control tokens ([`Tokenizer::is_special`]) out of the text.
    #[must_use]
    pub fn hiding_special(mut self) -> Self {
        self.hide_special = true;
        self
    }

    /// The characters that `id` completes, often none. Ids that stand for nothing add nothing.
    pub fn push(&mut self, id: u32) -> String {
        if self.hide_special && self.tokenizer.is_special(id) {
            return String::new();
        }
        self.pending.extend_from_slice(self.tokenizer.token_bytes(id));
        let waiting = unfinished_len(&self.pending);
        let rest = self.pending.split_off(self.pending.len() - waiting);
        let complete = std::mem::replace(&mut self.pending, rest);
        String::from_utf8(complete).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// What is left when no more ids come: empty, or one U+FFFD for a character that was begun. The decoder is as new.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }
}

/// How many bytes at the end are the proper start of a character.
fn unfinished_len(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    // Only a character's first byte can begin the tail; a valid start is at most three bytes long.
    (0..tail.len())
        .find(|&at| matches!(std::str::from_utf8(&tail[at..]), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none()))
        .map_or(0, |at| tail.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_start_of_a_character_waits() {
        for (bytes, waiting) in [
            (&b""[..], 0),
            (b"abc", 0),
            ("한".as_bytes(), 0),
            (b"a\xED", 1),
            (b"a\xED\x95", 2),
            (b"a\xED\xA0", 0), // a surrogate: can no longer become valid
            (b"\xF0\x9F\xA6", 3),
            (b"\xF0\x9F\xF0", 1),
            (b"\xF5", 0),
            (b"\x80\x80", 0),
            (b"\xC3\xA9\xC3", 1),
            (b"\xE2\x82a", 0),
        ] {
            assert_eq!(unfinished_len(bytes), waiting, "{bytes:x?}");
        }
    }
}
