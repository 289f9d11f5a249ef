//! One test per way a vocabulary can be wrong, each naming the token or merge.

use cudafast_text::{Error, Tokenizer, Vocab};

use crate::fixture::smallest;

fn refused(change: impl FnOnce(&mut Vocab)) -> Error {
    let mut vocab = smallest();
    change(&mut vocab);
    Tokenizer::new(vocab).unwrap_err()
}

#[track_caller]
fn says(error: &Error, wanted: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    for part in wanted {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn the_smallest_vocabulary_is_accepted() {
    assert_eq!(Tokenizer::new(smallest()).unwrap().vocab_len(), 260);
}

#[test]
fn another_kind_of_tokenizer_is_refused() {
    says(&refused(|v| v.model = "llama".into()), &["tokenizer.ggml.model", "`llama`", "`gpt2`"]);
}

#[test]
fn an_unknown_pattern_is_refused_with_the_known_names() {
    says(&refused(|v| v.pre = "deepseek\n".into()), &["tokenizer.ggml.pre", r"`deepseek\n`", "qwen2, qwen35"]);
}

#[test]
fn arrays_of_different_length_are_refused() {
    let error = refused(|v| v.token_types.truncate(200));
    assert!(matches!(error, Error::TypeCount { types: 200, tokens: 260 }), "{error}");
}

#[test]
fn an_unknown_token_type_is_refused() {
    for found in [0, 2, 6, -1, i32::MAX] {
        let error = refused(|v| v.token_types[258] = found);
        assert!(matches!(error, Error::TokenType { id: 258, found: f, .. } if f == found), "{error}");
    }
}

#[test]
fn an_empty_token_is_refused_unless_unused() {
    for id in [256, 257, 258_usize] {
        says(&refused(|v| v.tokens[id].clear()), &[&format!("token {id} is empty")]);
    }
    let mut vocab = smallest();
    vocab.tokens[259].clear();
    Tokenizer::new(vocab).unwrap();
}

#[test]
fn the_same_token_twice_is_refused_unless_unused() {
    says(&refused(|v| v.tokens[258] = "<end>".into()), &["token 258 `<end>` is also token 257"]);
    says(&refused(|v| v.tokens[258] = "ab".into()), &["token 258 `ab` is also token 256"]);
    let mut vocab = smallest();
    vocab.tokens[259] = "ab".into();
    Tokenizer::new(vocab).unwrap();
}

#[test]
fn a_normal_token_outside_the_byte_alphabet_is_refused() {
    for (token, found) in [("a b", ' '), ("日", '日'), ("a\n", '\n'), ("\u{ad}", '\u{ad}')] {
        let error = refused(|v| v.tokens[256] = token.into());
        assert!(matches!(&error, Error::NotBytes { id: 256, found: f, .. } if *f == found), "{error}");
    }
}

#[test]
fn a_vocabulary_without_one_of_the_bytes_is_refused() {
    says(&refused(|v| v.token_types[0] = 5), &["byte 0x21", "`!`"]);
}

#[test]
fn a_merge_that_is_not_two_tokens_is_refused() {
    for merge in ["ab", "", " ", "a ", " b", "a  b", "a b c"] {
        let error = refused(|v| v.merges.push(merge.into()));
        assert!(matches!(error, Error::MergeForm { index: 1, .. }), "{merge:?}: {error}");
    }
}

#[test]
fn a_merge_of_or_into_no_token_is_refused() {
    for (merge, missing) in [("xy z", "xy"), ("x yz", "yz"), ("b a", "ba"), ("< end>", "end>"), ("日 a", "日")] {
        let error = refused(|v| v.merges.push(merge.into()));
        assert!(matches!(&error, Error::MergeToken { index: 1, part, .. } if part == missing), "{merge:?}: {error}");
    }
}

#[test]
fn the_same_merge_twice_is_refused() {
    says(&refused(|v| v.merges.push("a b".into())), &["merge 1 `a b` is also merge 0"]);
}

#[test]
fn begin_and_end_tokens_outside_the_used_ones_are_refused() {
    says(&refused(|v| v.eos = Some(260)), &["tokenizer.ggml.eos_token_id is 260"]);
    says(&refused(|v| v.bos = Some(259)), &["tokenizer.ggml.bos_token_id is 259"]);
    assert!(matches!(refused(|v| v.add_bos = true), Error::NoBos));
}

#[test]
fn long_and_broken_text_is_shown_on_one_short_line() {
    let error = refused(|v| v.merges.push("\n".repeat(10_000)));
    assert!(error.to_string().len() < 400, "{error}");
    says(&error, &["merge 1 `\\n\\n", "…"]);
}

#[test]
fn an_empty_vocabulary_is_refused() {
    let empty = Vocab { model: "gpt2".into(), pre: "qwen35".into(), ..Vocab::default() };
    assert!(matches!(Tokenizer::new(empty), Err(Error::MissingByte { byte: 0, .. })));
}
