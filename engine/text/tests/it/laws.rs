//! Laws of encoding and decoding, for any text and any ids.

use cudafast_text::{
    SpecialTokens::{Literal, Parse},
    Tokenizer,
};
use proptest::prelude::*;

use crate::fixture::{QWEN35, TINY, smallest};

/// Any text, with special tokens of both vocabularies sprinkled in.
fn text() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec!["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "<|im_start|"]);
    let part = prop_oneof![4 => "(?s).{0,20}".prop_map(String::from), 1 => special.prop_map(String::from)];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn decoding_gives_the_text_back_byte_for_byte(text in text()) {
        for tokenizer in [&*TINY, &*QWEN35] {
            for special in [Parse, Literal] {
                let ids = tokenizer.encode(&text, special).unwrap();
                prop_assert_eq!(tokenizer.decode(&ids), text.as_str());
                tokenizer.check_ids(&ids).unwrap();
            }
        }
    }

    #[test]
    fn literal_text_never_holds_a_special_token(text in text()) {
        for id in TINY.encode(&text, Literal).unwrap() {
            prop_assert!(id < 4091, "{id}");
        }
    }

    /// Whatever comes around it, and however it is split: marked text is text.
    #[test]
    fn marked_text_holds_no_control_token_and_decodes_to_itself(text in text(), at in any::<prop::sample::Index>()) {
        let marked = TINY.mark_control(&text, '\u{e000}');
        prop_assert_eq!(marked != text, TINY.spells_control(&text));
        prop_assert_eq!(marked.replace('\u{e000}', ""), text.as_str());
        let mut cut = at.index(marked.len() + 1);
        while !marked.is_char_boundary(cut) { cut -= 1 }
        let whole = format!("<|im_start|>user\n{marked}<|im_end|>{}<|im_end|>{}", &marked[..cut], &marked[cut..]);
        let ids = TINY.encode_marked(&whole, '\u{e000}').unwrap();
        prop_assert_eq!(TINY.decode(&ids), whole.replace('\u{e000}', ""));
        prop_assert_eq!(ids.iter().filter(|id| TINY.is_special(**id)).count(), 3);
    }

    #[test]
    fn text_without_special_tokens_parses_as_itself(text in "[^<]{0,60}") {
        prop_assert_eq!(TINY.encode(&text, Parse).unwrap(), TINY.encode(&text, Literal).unwrap());
    }

    #[test]
    fn a_special_token_cuts_the_text_in_two(before in "[^<|]{0,20}", after in "[^<|]{0,20}") {
        let whole = TINY.encode(&format!("{before}<|im_end|>{after}"), Parse).unwrap();
        let parts = [TINY.encode(&before, Parse).unwrap(), vec![4093], TINY.encode(&after, Parse).unwrap()].concat();
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn pieces_stream_into_the_decoded_whole(ids in prop::collection::vec(0..5000_u32, 0..60)) {
        let mut stream = TINY.stream();
        let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        streamed.push_str(&stream.finish());
        prop_assert_eq!(streamed, TINY.decode(&ids));
    }

    /// The first 256 ids are single bytes, so every way of being invalid comes up.
    #[test]
    fn bytes_stream_into_their_lossy_text(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xFF_u8], 0..40)) {
        let tokenizer = Tokenizer::new(smallest()).unwrap();
        let ids: Vec<u32> = bytes.iter().map(|byte| (0..256).find(|&id| tokenizer.token_bytes(id) == [*byte]).unwrap()).collect();
        let mut stream = tokenizer.stream();
        let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        streamed.push_str(&stream.finish());
        prop_assert_eq!(streamed.as_str(), &*String::from_utf8_lossy(&bytes));
        prop_assert_eq!(tokenizer.decode(&ids), streamed);
    }

    #[test]
    fn hidden_tokens_leave_the_text_of_the_others(ids in prop::collection::vec(4000..4096_u32, 0..40)) {
        let mut stream = TINY.stream().hiding_special();
        let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        streamed.push_str(&stream.finish());
        let shown: Vec<u32> = ids.into_iter().filter(|&id| !TINY.is_special(id)).collect();
        prop_assert_eq!(streamed, TINY.decode(&shown));
    }
}

#[test]
fn combined_and_separate_accents_stay_what_they_are() {
    for text in ["\u{e9}", "e\u{301}", "\u{212b}", "\u{ac00}", "\u{1100}\u{1161}"] {
        assert_eq!(QWEN35.decode(&QWEN35.encode(text, Parse).unwrap()), text);
    }
    assert_ne!(QWEN35.encode("\u{e9}", Parse).unwrap(), QWEN35.encode("e\u{301}", Parse).unwrap());
}

#[test]
fn the_longest_special_token_wins() {
    let mut vocab = smallest();
    vocab.tokens.extend(["<end><think>".into(), "<e".into()]);
    vocab.token_types.extend([4, 4]);
    let tokenizer = Tokenizer::new(vocab).unwrap();
    assert_eq!(tokenizer.encode("<end><think><end><e", Parse).unwrap(), [260, 257, 261]);
}

#[test]
fn the_begin_token_comes_once_and_only_where_it_is_asked_for() {
    let plain = Tokenizer::new(smallest()).unwrap();
    assert_eq!(plain.encode("ab", Parse).unwrap(), [256]);
    let mut vocab = smallest();
    (vocab.bos, vocab.add_bos) = (Some(258), true);
    let adding = Tokenizer::new(vocab).unwrap();
    assert_eq!(adding.encode("ab", Parse).unwrap(), [258, 256]);
    assert_eq!(adding.encode("<think>ab", Parse).unwrap(), [258, 256]);
    assert_eq!(adding.encode("", Literal).unwrap(), [258]);
    assert_eq!((adding.bos(), adding.eos()), (Some(258), Some(257)));
}

#[test]
fn tokens_are_known_by_text_kind_and_bytes() {
    let tokenizer = Tokenizer::new(smallest()).unwrap();
    assert_eq!(["ab", "<end>", "<think>"].map(|t| tokenizer.encode(t, Parse).unwrap()), [[256], [257], [258]]);
    assert_eq!(
        tokenizer.encode(" ", Parse).unwrap().iter().map(|&id| tokenizer.token_bytes(id)).collect::<Vec<_>>(),
        [b" "]
    );
    assert_eq!([256, 257, 258, 259, 260].map(|id| tokenizer.is_special(id)), [false, true, false, false, false]);
    assert_eq!([256, 257, 258, 259, 260].map(|id| tokenizer.is_unused(id)), [false, false, false, true, true]);
    assert_eq!([257, 259, u32::MAX].map(|id| tokenizer.token_bytes(id)), [&b"<end>"[..], b"", b""]);
    assert_eq!(tokenizer.decode(&[256, 259, 257, u32::MAX]), "ab<end>");
    let error = tokenizer.check_ids(&[256, 259]).unwrap_err().to_string();
    assert_eq!(error, "token id 259 at index 1 stands for no text; the vocabulary has 260 ids, some of them unused");
    assert!(tokenizer.encode("<nothing>", Parse).unwrap().len() > 1);
}
