//! Any text comes back from its tokens byte for byte; any ids stream into what they decode to.
#![no_main]

use std::sync::LazyLock;

use cudafast_gguf::{Metadata, ShardSet};
use cudafast_text::{
    SpecialTokens::{Literal, Parse},
    Tokenizer, Vocab,
};
use libfuzzer_sys::fuzz_target;

/// Of the embedded model: small enough to be built in a moment, with control and user-defined tokens.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let file = ShardSet::open(&cudafast_tiny::tree_path(cudafast_tiny::MODEL_FILE)).unwrap();
    Tokenizer::new(vocab(file.metadata())).unwrap()
});

fn vocab(metadata: &Metadata) -> Vocab {
    let strings = |key: &str| metadata.str_array(key).unwrap().iter().map(str::to_owned).collect();
    let types = metadata.i64_array("tokenizer.ggml.token_type").unwrap();
    Vocab {
        tokens: strings("tokenizer.ggml.tokens"),
        token_types: types.into_iter().map(|kind| kind.try_into().unwrap()).collect(),
        merges: strings("tokenizer.ggml.merges"),
        pre: metadata.str("tokenizer.ggml.pre").unwrap().into(),
        model: metadata.str("tokenizer.ggml.model").unwrap().into(),
        eos: metadata.u32_opt("tokenizer.ggml.eos_token_id").unwrap(),
        bos: None,
        add_bos: false,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let tokenizer = &*TOKENIZER;

    let text = String::from_utf8_lossy(bytes);
    for special in [Parse, Literal] {
        let ids = tokenizer.encode(&text, special).unwrap();
        tokenizer.check_ids(&ids).unwrap();
        assert!(special == Parse || !ids.iter().any(|&id| tokenizer.is_special(id)));
        assert_eq!(tokenizer.decode(&ids), text);
        streams(&ids);
    }

    // The same bytes as ids, a part of them outside the vocabulary.
    let ids = bytes.as_chunks().0.iter().map(|&pair| u32::from(u16::from_le_bytes(pair) % 5000));
    streams(&ids.collect::<Vec<_>>());
});

/// The law of `StreamDecoder`, with control tokens shown and hidden.
fn streams(ids: &[u32]) {
    let tokenizer = &*TOKENIZER;
    let mut decoder = tokenizer.stream();
    let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
    text += &decoder.finish();
    assert_eq!(text, tokenizer.decode(ids));

    let mut hiding = tokenizer.stream().hiding_special();
    let mut text: String = ids.iter().map(|&id| hiding.push(id)).collect();
    text += &hiding.finish();
    let shown: Vec<u32> = ids.iter().copied().filter(|&id| !tokenizer.is_special(id)).collect();
    assert_eq!(text, tokenizer.decode(&shown));
}
