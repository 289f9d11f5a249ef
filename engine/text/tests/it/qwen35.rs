//! The published vocabulary of 151,936 tokens. Its merges are as many bytes again, and each makes the token of the same
//! number behind the 256 bytes: the file in testdata has, in their place, where each of these tokens is cut in two.
//! The program's tests take this file too.

use std::{fs::File, io::Read, path::Path};

use cudafast_gguf::{Array, ShardSet, Value, Writer};

const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";

/// The file as published.
pub(crate) fn gguf() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tokenizer/ggml-vocab-qwen35.cut.gguf.gz");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    let cut = ShardSet::from_vec("ggml-vocab-qwen35.cut.gguf", bytes).unwrap();
    let metadata = cut.metadata();
    let tokens = metadata.str_array(TOKENS).unwrap();
    let merge = |(token, &at): (&str, &u8)| {
        let (left, right) = token.split_at(at.into());
        format!("{left} {right}")
    };
    let whole = metadata.iter().fold(Writer::new(), |writer, (key, value)| match value {
        Value::Array(Array::U8(cuts)) if key == MERGES => {
            writer.kv(key, tokens.iter().skip(256).zip(cuts).map(merge).collect::<Vec<_>>())
        }
        _ => writer.kv(key, value.clone()),
    });
    whole.to_vec().unwrap()
}
