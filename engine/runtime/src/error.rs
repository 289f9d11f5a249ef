//! What the runtime refuses.

use crate::backend::{BackendError, TokenId};

/// Why a session could not do what was asked. Unless said otherwise the session is as it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A sampling setting is out of range.
    #[error("{flag} {found}: expected {wanted}")]
    InvalidSampling {
        /// The command-line flag.
        flag: &'static str,
        /// What was given.
        found: f32,
        /// What is allowed.
        wanted: &'static str,
    },
    /// A bias past what a request may add.
    #[error("--logit-bias {id}={found}: expected a number from -100 to 100")]
    InvalidBias {
        /// The token.
        id: TokenId,
        /// What was given.
        found: f32,
    },
    /// A bias on what is never chosen.
    #[error("--logit-bias {id}: this id stands for no token; ids are below {vocab}, see `cudafast tokenize`")]
    UnknownBiasId {
        /// The id.
        id: TokenId,
        /// Vocabulary size.
        vocab: usize,
    },
    /// A stop string that cannot be one.
    #[error("--stop: cannot be used")]
    StopString {
        /// What is wrong with it.
        source: cudafast_text::Error,
    },
    /// More alternatives than a request may ask for.
    #[error("--logprobs {found}: expected 0..={max}")]
    InvalidLogprobs {
        /// What was given.
        found: usize,
        /// The most.
        max: usize,
    },
    /// A draft depth no round can have.
    #[error("--depth {found}: expected 0..={max}")]
    InvalidDepth {
        /// What was given.
        found: usize,
        /// The deepest.
        max: usize,
    },
    /// Drafting without a draft head.
    #[error("--depth {depth} needs a draft head and none is loaded; give one with --mtp-model, or use --depth 0")]
    NoDraftHead {
        /// What was asked for.
        depth: usize,
    },
    /// The prompt alone does not fit.
    #[error("the prompt has {prompt} tokens, the context holds {limit}; {}", longer(*limit, *trained))]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens the session was opened for.
        limit: usize,
        /// The trained context.
        trained: usize,
    },
    /// There is no row to choose a first token from.
    #[error("the prompt has no tokens; give at least one")]
    EmptyPrompt,
    /// A context no session can have.
    #[error("--ctx-tokens {found}: expected 1..={trained}, the context the model was trained for")]
    InvalidContext {
        /// What was given.
        found: usize,
        /// The trained context.
        trained: usize,
    },
    /// The tokenizer makes ids the model has no row for.
    #[error("{label}: the tokenizer has {tokens} tokens, the model {vocab}; the file is damaged, fetch it again")]
    VocabularyMismatch {
        /// The model's file.
        label: String,
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the model.
        vocab: usize,
    },
    /// A round that made no progress, which would otherwise be repeated for ever. Reset the session.
    #[error(
        "the round at position {position} committed {committed} tokens but the state moved to {moved_to}; this is a defect of the backend, please report it"
    )]
    Stalled {
        /// Where the round began.
        position: usize,
        /// What it says it did.
        committed: usize,
        /// Where the state stands.
        moved_to: usize,
    },
    /// A key of the vocabulary is missing or of another type.
    #[error(transparent)]
    Key(#[from] cudafast_model::Error),
    /// The vocabulary is not one that can be used.
    #[error("{label}: the vocabulary cannot be used")]
    Vocabulary {
        /// The model's file.
        label: String,
        /// What is wrong with it.
        source: cudafast_text::Error,
    },
    /// A token type that is no small integer.
    #[error(
        "{label}: `tokenizer.ggml.token_type[{index}]` = {found}, expected a 32-bit integer; convert the model again"
    )]
    TokenType {
        /// The model's file.
        label: String,
        /// Index of the token.
        index: usize,
        /// What the file says.
        found: i64,
    },
    /// The chat template does not compile, or cannot render this conversation.
    #[error("{label}: the chat template cannot be used; `cudafast run` needs none")]
    Template {
        /// The model's file.
        label: String,
        /// What is wrong with it.
        source: cudafast_text::Error,
    },
    /// A conversation for a model that has no template.
    #[error("{label}: has no `tokenizer.chat_template`; use `cudafast run` without --chat, or a model made for chat")]
    NoTemplate {
        /// The model's file.
        label: String,
    },
    /// A text that cannot be tokenised, or ids that stand for nothing.
    #[error("the prompt cannot be tokenised")]
    Prompt {
        /// What is wrong with it.
        source: cudafast_text::Error,
    },
    /// The backend's own refusal; its documentation says what state that leaves.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// What helps where a context holds too little.
fn longer(limit: usize, trained: usize) -> &'static str {
    if limit < trained { "shorten it or raise --ctx-tokens" } else { "shorten it, the model was trained for no more" }
}
