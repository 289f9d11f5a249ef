//! The model's numbers (qwen4exp.md 1). How they are read and checked: the `read` module.

use crate::ngram::NgramParams;

/// What a layer mixes tokens with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Gated delta net: recurrent state, no cache.
    Gdn,
    /// Sparse (QSA) attention with an indexer.
    Attention,
}

/// Gated delta net geometry (qwen4exp.md 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GdnParams {
    /// Key (and query) heads, `nk`.
    pub key_heads: usize,
    /// Value heads, `nv`; value head `h` pairs with key head `h % key_heads`.
    pub value_heads: usize,
    /// Channels of a head, key and value alike (`dk = dv`).
    pub head_dim: usize,
    /// Taps of the causal convolution; the state keeps `conv_kernel - 1` rows.
    pub conv_kernel: usize,
}

impl GdnParams {
    /// Channels of q, k and v together: what `attn_qkv` produces and the convolution carries.
    pub fn qkv_channels(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * self.head_dim
    }
    /// Channels of all value heads.
    pub fn inner(&self) -> usize {
        self.value_heads * self.head_dim
    }
}

/// Attention geometry (qwen4exp.md 5).
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionParams {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; query head `h` reads key/value head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Rotated channels, `nrot`; the rest pass through.
    pub rotary_dims: usize,
    /// RoPE base.
    pub rope_theta: f32,
}

/// Sparse-attention indexer geometry (qwen4exp.md 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexerParams {
    /// Index query heads (there is one index key head).
    pub heads: usize,
    /// Channels of an index head.
    pub head_dim: usize,
    /// Attention budget in tokens; `budget_tokens / ratio` blocks are kept.
    pub budget_tokens: usize,
    /// Tokens of one QSA block.
    pub ratio: usize,
}

impl IndexerParams {
    /// QSA blocks a query may keep.
    pub fn budget_blocks(&self) -> usize {
        self.budget_tokens / self.ratio
    }
}

/// Expert layer geometry (qwen4exp.md 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoeParams {
    /// Routed experts, `E`.
    pub experts: usize,
    /// Experts a token uses, `K`.
    pub used: usize,
    /// Width of a routed expert, `FF`.
    pub expert_ff: usize,
    /// Width of the shared expert, `FS`.
    pub shared_ff: usize,
}

/// Everything the forward pass needs to know about sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparams {
    /// Kind of each layer, in order; its length is the layer count.
    pub layers: Vec<LayerKind>,
    /// Hidden width, `H`.
    pub hidden: usize,
    /// Residual streams, `C`.
    pub streams: usize,
    /// Low rank of the hyper-connection mixers, `LR`.
    pub hyper_rank: usize,
    /// Vocabulary, padding included, `V`.
    pub vocab: usize,
    /// Trained context, in tokens.
    pub context_tokens: usize,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
    /// Gated delta net.
    pub gdn: GdnParams,
    /// Attention.
    pub attention: AttentionParams,
    /// Indexer.
    pub indexer: IndexerParams,
    /// Experts.
    pub moe: MoeParams,
    /// n-gram embedding.
    pub ngram: NgramParams,
    /// The chat end token (`tokenizer.ggml.eos_token_id`), where the file has one.
    pub eos_token: Option<u32>,
}

impl Hyperparams {
    /// Width of the residual stream, `W = C * H`.
    pub fn wide(&self) -> usize {
        self.streams * self.hidden
    }
    /// Ids that end an answer: the chat end token and the n-gram end token (gguf-qwen4exp.md 6).
    pub fn stop_tokens(&self) -> Vec<u32> {
        let mut ids = vec![self.ngram.eos];
        ids.extend(self.eos_token.filter(|id| *id != self.ngram.eos));
        ids
    }
}
