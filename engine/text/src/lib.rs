//! Text in and out of a model: byte-level BPE, streaming detokenisation, chat templates. No files, no model knowledge.
//!
//! Start at [`Tokenizer::new`] with a [`Vocab`] read from a file's metadata; [`StreamDecoder`] turns sampled ids back into
//! text without ever cutting a character; [`StopMatcher`] ends it at a stop string; [`ChatTemplate::render`] turns a conversation into a prompt.
//!
//! Guarantees: no Unicode normalisation, so every string comes back byte for byte; a vocabulary that could lose a byte is
//! refused; unused ids are neither produced nor shown; tokenising is linear in the text up to a logarithm; a template's
//! steps, output and recursion are bounded ([`ChatTemplate`] names what is not). Rules: gguf-qwen4exp.md 6.

mod bytes;
mod error;
mod message;
mod methods;
mod python;
mod split;
mod stop;
mod stream;
mod template;
mod tojson;
mod tokenizer;
mod vocab;

pub use crate::{
    error::Error,
    stop::{Released, StopMatcher},
    stream::StreamDecoder,
    template::{ChatTemplate, RenderOptions},
    tokenizer::{SpecialTokens, Tokenizer},
    vocab::Vocab,
};
