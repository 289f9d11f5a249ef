//! A session's state at one position, in the shapes of qwen4exp.md 8 on every backend.

use crate::backend::TokenId;

/// Cache values as stored: 16-bit (BF16 bits) by default, 32-bit under the f32 debug switch.
#[derive(Debug, Clone, PartialEq)]
pub enum CacheRows {
    /// BF16 bit patterns.
    Bf16(Vec<u16>),
    /// Plain f32.
    F32(Vec<f32>),
}

/// Caches of one attention layer.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionState {
    /// `[tokens][kv heads * head dim]`, rotated keys.
    pub k: CacheRows,
    /// `[tokens][kv heads * head dim]`.
    pub v: CacheRows,
    /// `[tokens][index dim]`, raw: no norm, no rope.
    pub index_raw: CacheRows,
    /// `[tokens / ratio][index dim]`, pooled, normed, rotated.
    pub index_pooled: CacheRows,
}

/// State of one gated delta net layer.
#[derive(Debug, Clone, PartialEq)]
pub struct GdnState {
    /// `[value heads][key dim][value dim]`.
    pub s: Vec<f32>,
    /// `[conv_kernel - 1][qkv channels]`, oldest first.
    pub conv: Vec<f32>,
}

/// State of one layer.
#[derive(Debug, Clone, PartialEq)]
pub enum LayerState {
    /// Gated delta net.
    Gdn(GdnState),
    /// Attention.
    Attention(AttentionState),
}

/// Everything a session carries between tokens, copied to host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Tokens in the state; the n-gram history is the last ones.
    pub tokens: Vec<TokenId>,
    /// One entry per layer.
    pub layers: Vec<LayerState>,
    /// `[conv_history][W]` normed rows of the n-gram convolution, oldest first.
    pub ngram_conv: Vec<f32>,
    /// `[W]`: the residual row of the last token, which the draft head joins with the next token. Empty at position 0.
    pub residual: Vec<f32>,
    /// `[V]`: logits of the last token. Empty at position 0.
    pub logits: Vec<f32>,
    /// The draft head's cache, where one is loaded: rows `0..position - 1`.
    pub head: Option<AttentionState>,
}
