//! What a reader of a stream sees (ggml-org/llama.cpp#28926): whole characters, as early as they are whole.

use cudafast_text::{SpecialTokens, Tokenizer};

use crate::fixture::{QWEN35, TINY, smallest};

const TEXTS: [&str; 6] = ["😀", "👩‍👩‍👧‍👦 family", "한국어", "é ü ß", "🏳️‍🌈🇰🇷", "日本語と𠮷"];

/// Each push may only add whole characters of the text, and all of them by the end.
fn streams_cleanly(tokenizer: &Tokenizer, text: &str) {
    let ids = tokenizer.encode(text, SpecialTokens::Literal).unwrap();
    let mut stream = tokenizer.stream();
    let mut shown = String::new();
    let mut bytes = 0;
    for id in ids {
        shown.push_str(&stream.push(id));
        bytes += tokenizer.token_bytes(id).len();
        let whole = (0..=bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        assert_eq!(shown, text[..whole], "{text:?}");
    }
    assert_eq!((shown.as_str(), stream.finish().as_str()), (text, ""));
}

#[test]
fn characters_are_never_cut() {
    let bytewise = Tokenizer::new(smallest()).unwrap();
    for text in TEXTS {
        for tokenizer in [&bytewise, &*TINY, &*QWEN35] {
            streams_cleanly(tokenizer, text);
        }
    }
}

#[test]
fn a_character_that_never_ends_is_replaced_at_the_end() {
    let tokenizer = Tokenizer::new(smallest()).unwrap();
    let ids = tokenizer.encode("a😀", SpecialTokens::Literal).unwrap();
    let mut stream = tokenizer.stream();
    let shown: String = ids[..4].iter().map(|&id| stream.push(id)).collect();
    assert_eq!((shown.as_str(), stream.finish().as_str(), stream.finish().as_str()), ("a", "\u{fffd}", ""));
}

#[test]
fn a_broken_character_is_replaced_as_soon_as_it_is_broken() {
    let tokenizer = Tokenizer::new(smallest()).unwrap();
    let byte = |wanted: u8| (0..256).find(|&id| tokenizer.token_bytes(id) == [wanted]).unwrap();
    let mut stream = tokenizer.stream();
    let shown = [0xF0, 0x9F, b'a', 0x80, 0xED, 0xA0].map(|b| stream.push(byte(b)));
    assert_eq!(shown, ["", "", "\u{fffd}a", "\u{fffd}", "", "\u{fffd}\u{fffd}"]);
}

#[test]
fn control_tokens_can_be_hidden_and_others_cannot() {
    let ids = TINY.encode("<think>\nok</think><|im_end|>\n", SpecialTokens::Parse).unwrap();
    let text = |mut stream: cudafast_text::StreamDecoder| ids.iter().map(|&id| stream.push(id)).collect::<String>();
    assert_eq!(text(TINY.stream()), "<think>\nok</think><|im_end|>\n");
    assert_eq!(text(TINY.stream().hiding_special()), "<think>\nok</think>\n");
}
