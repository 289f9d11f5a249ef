//! Vocabularies to test with: the two files of the repository, and the smallest that passes the checks.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use cudafast_gguf::{Metadata, ShardSet};
use cudafast_text::{Tokenizer, Vocab};
use serde_json::Value;

pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The tiny model's file, for its tokenizer and its chat template.
pub(crate) static TINY_FILE: LazyLock<ShardSet> =
    LazyLock::new(|| ShardSet::open(&repository("models/tiny/tiny-story-UD-Q4_K_XL.gguf")).unwrap());

pub(crate) static TINY: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(vocab_of(TINY_FILE.metadata())).unwrap());

/// 151,936 tokens and the pattern of the real model.
pub(crate) static QWEN35: LazyLock<Tokenizer> = LazyLock::new(|| {
    let file = ShardSet::from_vec("ggml-vocab-qwen35.gguf", crate::qwen35::gguf()).unwrap();
    Tokenizer::new(vocab_of(file.metadata())).unwrap()
});

pub(crate) fn vocab_of(metadata: &Metadata) -> Vocab {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let strings = |name: &str| metadata.str_array(&key(name)).unwrap().iter().map(str::to_owned).collect();
    let id = |name: &str| metadata.u64_opt(&key(name)).unwrap().map(|id| u32::try_from(id).unwrap());
    Vocab {
        tokens: strings("tokens"),
        token_types: metadata
            .i64_array(&key("token_type"))
            .unwrap()
            .into_iter()
            .map(|t| i32::try_from(t).unwrap())
            .collect(),
        merges: strings("merges"),
        pre: metadata.str(&key("pre")).unwrap().into(),
        model: metadata.str(&key("model")).unwrap().into(),
        eos: id("eos_token_id"),
        bos: id("bos_token_id"),
        add_bos: metadata.bool_opt(&key("add_bos_token")).unwrap().unwrap_or(false),
    }
}

pub(crate) fn json(path: &str) -> Value {
    serde_json::from_slice(&fs::read(repository(path)).unwrap()).unwrap()
}

/// The 256 bytes, one merge `a b`, and after them: 257 `<end>` (control), 258 `<think>` (user-defined), 259 unused.
pub(crate) fn smallest() -> Vocab {
    // The alphabet of byte-level BPE, from its published definition.
    let printable = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0x100..).take(68);
    let mut tokens: Vec<String> =
        (0..256).filter(printable).chain(others).map(|c| char::from_u32(c).unwrap().to_string()).collect();
    tokens.extend(["ab", "<end>", "<think>", "<nothing>"].map(String::from));
    let mut token_types = vec![1; 257];
    token_types.extend([3, 4, 5]);
    Vocab {
        tokens,
        token_types,
        merges: vec!["a b".into()],
        pre: "qwen35".into(),
        model: "gpt2".into(),
        eos: Some(257),
        bos: None,
        add_bos: false,
    }
}
