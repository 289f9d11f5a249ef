//! Ids against two independent sources: llama.cpp's published vectors for the real pattern (`.inp`, `.out`), and the tiny
//! model's `tokenizer.json` run by the library that trained it.

use std::{fs, sync::LazyLock};

use cudafast_text::SpecialTokens::{Literal, Parse};
use proptest::prelude::*;
use tokenizers::NormalizerWrapper;

use crate::fixture::{QWEN35, TINY, json, repository};

#[test]
fn every_published_case_has_its_published_ids() {
    let read = |kind: &str| {
        fs::read_to_string(repository(&format!("testdata/tokenizer/ggml-vocab-qwen35.gguf.{kind}"))).unwrap()
    };
    let (inputs, outputs) = (read("inp"), read("out"));
    // Each case ends in a line with the separator, the last one too.
    let separator = "\n__ggml_vocab_test__\n";
    let inputs: Vec<&str> = inputs.strip_suffix(separator).unwrap().split(separator).collect();
    let outputs: Vec<Vec<u32>> =
        outputs.lines().map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect()).collect();
    assert_eq!((inputs.len(), outputs.len()), (50, 50));
    for (input, wanted) in inputs.iter().zip(&outputs) {
        assert_eq!(&QWEN35.encode(input, Literal).unwrap(), wanted, "{input:?}");
        assert_eq!(&QWEN35.decode(wanted), input);
    }
}

#[test]
fn padding_of_an_old_file_is_not_produced() {
    // This file marks its 290 padding tokens as user-defined; the text of one is just text.
    assert!(QWEN35.is_unused(151_935));
    assert!(QWEN35.encode("[PAD151935]", Parse).unwrap().len() > 1);
    assert_eq!((QWEN35.vocab_len(), QWEN35.token_bytes(151_935)), (151_936, &b""[..]));
}

#[test]
fn prompts_of_the_reference_outputs_have_their_ids() {
    let reference = json("models/tiny/reference.json");
    let mut prompts = 0;
    for set in reference["sets"].as_object().unwrap().values() {
        for prompt in set["prompts"].as_array().unwrap() {
            let ids = |key: &str| -> Vec<u32> {
                prompt[key].as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
            };
            assert_eq!(
                TINY.encode(prompt["text"].as_str().unwrap(), Parse).unwrap(),
                ids("prompt"),
                "{}",
                prompt["name"]
            );
            assert_eq!(TINY.decode(&ids("generated")), prompt["generated_text"].as_str().unwrap());
            prompts += 1;
        }
    }
    assert!(prompts >= 4, "{prompts}");
}

/// The tiny model's tokenizer as trained, and without its normaliser (which this crate leaves out on purpose).
static TRAINED: LazyLock<[tokenizers::Tokenizer; 2]> = LazyLock::new(|| {
    let trained = tokenizers::Tokenizer::from_file(repository("models/tiny/tokenizer.json")).unwrap();
    let mut plain = trained.clone();
    let _ = plain.with_normalizer(None::<NormalizerWrapper>);
    [trained, plain]
});

fn trained_ids(tokenizer: &tokenizers::Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, false).unwrap().get_ids().to_vec()
}

const CORPUS: [&str; 24] = [
    "Once upon a time, there was a little fox named Jack.",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|><|im_end|><|endoftext|><|im_end",
    "I'll I'LL we'Ve they'd it'ſ o'clock ''s",
    "12345 3.14 1e-9 ½ Ⅷ ٣٤ 一二三",
    "   leading, trailing   ",
    "tabs\tand\t\tmore \t mixed\r\nlines\r\r\n\n  \n end",
    "\n\n\n  x\n \n\t\ny",
    "日本語のテキスト、と句読点。",
    "한국어 문장입니다.",
    "Привет, мир! Ünïcödé façade",
    "नमस्ते दुनिया ก็ไก่ កាន់តែពិសេស",
    "مرحبا بالعالم שלום",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇰🇷 😀😀😀 ✅",
    "e\u{301} \u{301}\u{302} a\u{20dd}b",
    "fn main() { println!(\"{}\", 1 << 2); } // ok",
    "a_b-c.d/e\\f|g~h`i^j{k}[l]",
    "\u{a0}no-break\u{3000}ideographic\u{2028}separators\u{85}",
    "\u{0}\u{1}\u{7f}\u{ad}\u{200b}\u{feff}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "=====-----*****!!!!!?????\n\n",
    "a  b   c    d",
    "https://example.org/?q=a%20b&c=d#e",
    "",
];

#[test]
fn ids_of_a_mixed_corpus_are_those_of_the_trained_tokenizer() {
    let [trained, plain] = &*TRAINED;
    for text in CORPUS {
        let ids = TINY.encode(text, Parse).unwrap();
        assert_eq!(ids, trained_ids(plain, text), "{text:?}");
        // Where normalisation has nothing to do, nothing is different at all.
        if text != "e\u{301} \u{301}\u{302} a\u{20dd}b" {
            assert_eq!(ids, trained_ids(trained, text), "{text:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn ids_are_those_of_the_trained_tokenizer(text in text()) {
        let [_, plain] = &*TRAINED;
        prop_assert_eq!(TINY.encode(&text, Parse).unwrap(), trained_ids(plain, &text));
    }
}

/// Any characters, characters where the pattern decides, and words with special tokens among them.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u{3000}",
        "'s",
        "'LL",
        "the",
        " and",
        "7",
        "½",
        "é",
        "e\u{301}",
        "한",
        "字",
        "😀",
        "\u{200d}",
        "!",
        "...",
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "</think>",
        "<|im_",
        "\0",
    ]);
    prop_oneof![
        "(?s).{0,40}",
        "[ \\t\\r\\na1'sS!é\u{301}\u{3000}]{0,40}",
        prop::collection::vec(word, 0..24).prop_map(|w| w.concat())
    ]
}
