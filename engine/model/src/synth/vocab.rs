//! A vocabulary of any size: the 256 bytes, words of letters made by merges, the special tokens, padding.
//!
//! Words are all strings of lower-case letters, with and without a blank in front, in order of length: every merge is a
//! word and one more letter. What a model of the published vocabulary writes is therefore letters, but for one token in
//! a thousand.

use cudafast_gguf::StrArray;

/// A token's type numbers (gguf-qwen4exp.md 2).
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Places in [`SPECIAL`].
pub(super) const END_OF_TEXT: usize = 0;
pub(super) const IM_END: usize = 2;
pub(super) const IMAGE_PAD: usize = 12;

/// The added tokens in the order of their ids (gguf-qwen4exp.md 6), and whether a reader sees them.
const SPECIAL: [(&str, i32); 33] = [
    ("<|endoftext|>", CONTROL),
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<|object_ref_start|>", CONTROL),
    ("<|object_ref_end|>", CONTROL),
    ("<|box_start|>", CONTROL),
    ("<|box_end|>", CONTROL),
    ("<|quad_start|>", CONTROL),
    ("<|quad_end|>", CONTROL),
    ("<|vision_start|>", CONTROL),
    ("<|vision_end|>", CONTROL),
    ("<|vision_pad|>", CONTROL),
    ("<|image_pad|>", CONTROL),
    ("<|video_pad|>", CONTROL),
    ("<tool_call>", USER_DEFINED),
    ("</tool_call>", USER_DEFINED),
    ("<|fim_prefix|>", CONTROL),
    ("<|fim_middle|>", CONTROL),
    ("<|fim_suffix|>", CONTROL),
    ("<|fim_pad|>", CONTROL),
    ("<|repo_name|>", CONTROL),
    ("<|file_sep|>", CONTROL),
    ("<tool_response>", USER_DEFINED),
    ("</tool_response>", USER_DEFINED),
    ("<think>", USER_DEFINED),
    ("</think>", USER_DEFINED),
    ("<|audio_start|>", CONTROL),
    ("<|audio_end|>", CONTROL),
    ("<tts_pad>", CONTROL),
    ("<tts_text_bos>", CONTROL),
    ("<tts_text_eod>", CONTROL),
    ("<tts_text_bos_single>", CONTROL),
    ("<|audio_pad|>", CONTROL),
];

const BYTES: usize = 256;
/// The smallest vocabulary.
pub(super) const LEAST: usize = BYTES + SPECIAL.len();
/// Padding ids of the published vocabulary; small ones have an eighth of what they can spare.
const PADDING: usize = 243;

/// What goes into a file's keys.
pub(super) struct SynthVocab {
    pub(super) tokens: StrArray,
    pub(super) types: Vec<i32>,
    pub(super) merges: StrArray,
}

/// The id of a special token in a vocabulary of `tokens`.
pub(super) fn special(tokens: usize, which: usize) -> u32 {
    (tokens - padding(tokens) - SPECIAL.len() + which) as u32 // at most MAX_VOCAB
}

fn padding(tokens: usize) -> usize {
    (tokens.saturating_sub(LEAST) / 8).min(PADDING)
}

pub(super) fn vocab(tokens: usize) -> SynthVocab {
    let mut made = SynthVocab { tokens: StrArray::default(), types: Vec::new(), merges: StrArray::default() };
    let add = |made: &mut SynthVocab, token: &str, kind| {
        made.tokens.push(token);
        made.types.push(kind);
    };
    for byte in 0..=255 {
        add(&mut made, spelled(byte).encode_utf8(&mut [0; 4]), NORMAL);
    }
    let end = special(tokens, 0) as usize;
    let mut words: Vec<String> = ('a'..='z').chain(['Ġ']).map(String::from).collect();
    let mut from = 0;
    'words: loop {
        let until = words.len();
        for at in from..until {
            for letter in 'a'..='z' {
                if made.types.len() == end {
                    break 'words;
                }
                let word = format!("{}{letter}", words[at]);
                made.merges.push(&format!("{} {letter}", words[at]));
                add(&mut made, &word, NORMAL);
                words.push(word);
            }
        }
        from = until;
    }
    for (token, kind) in SPECIAL {
        add(&mut made, token, kind);
    }
    for id in made.types.len()..tokens {
        add(&mut made, &format!("[PAD{id}]"), UNUSED);
    }
    made
}

/// The character that byte-level BPE writes a byte as: printable Latin-1 as itself, the other 68 bytes from U+0100 on.
fn spelled(byte: u8) -> char {
    let itself = |byte: &u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    if itself(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !itself(b)).count() as u32; // at most 67
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}
