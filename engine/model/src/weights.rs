//! The typed, bound tensors of a model. Checked once when bound, trusted after.

use cudafast_gguf::TensorData;

use crate::matrix::{Experts, Matrix, Vector};

/// `hc_read` without inject (the final mixer, the draft head's mixer): qwen4exp.md 2.
#[derive(Clone, Debug)]
pub struct HyperRead {
    /// Gain `[W]`.
    pub norm: Vector,
    /// `[LR, W]`.
    pub down: Matrix,
    /// `[W, LR]`.
    pub up: Matrix,
}

/// A full hyper-connection: read and inject.
#[derive(Clone, Debug)]
pub struct HyperConnection {
    /// The read half.
    pub read: HyperRead,
    /// `[C, W]`.
    pub inject: Matrix,
}

/// Gated delta net tensors (qwen4exp.md 4).
#[derive(Clone, Debug)]
pub struct GdnWeights {
    /// `[qkv channels, H]`.
    pub qkv: Matrix,
    /// `[inner, H]`.
    pub gate: Matrix,
    /// `[value heads, H]`, F32.
    pub alpha: Matrix,
    /// `[value heads, H]`, F32.
    pub beta: Matrix,
    /// `[qkv channels][taps]`, oldest tap first.
    pub conv: Vector,
    /// `[value heads]`.
    pub dt_bias: Vector,
    /// `[value heads]`, negative.
    pub a: Vector,
    /// `[head dim]`.
    pub norm: Vector,
    /// `[H, inner]`.
    pub out: Matrix,
}

/// Sparse attention tensors (qwen4exp.md 5).
#[derive(Clone, Debug)]
pub struct AttentionWeights {
    /// `[heads * 2 * head dim, H]`: per head, query channels then gate channels.
    pub q: Matrix,
    /// `[kv heads * head dim, H]`.
    pub k: Matrix,
    /// `[kv heads * head dim, H]`.
    pub v: Matrix,
    /// `[H, heads * head dim]`.
    pub out: Matrix,
    /// `[head dim]`.
    pub q_norm: Vector,
    /// `[head dim]`.
    pub k_norm: Vector,
    /// `[index heads * index dim, H]`.
    pub index_q: Matrix,
    /// `[index dim, H]`.
    pub index_k: Matrix,
    /// `[index dim]`.
    pub index_q_norm: Vector,
    /// `[index dim]`.
    pub index_k_norm: Vector,
}

/// How a layer mixes tokens.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Gated delta net.
    Gdn(GdnWeights),
    /// Sparse attention.
    Attention(AttentionWeights),
}

/// n-gram injection tensors of the one PLE layer (qwen4exp.md 6); the table is [`Weights::ngram_table`].
#[derive(Clone, Debug)]
pub struct NgramWeights {
    /// `[W, P]`.
    pub key: Matrix,
    /// `[H, P]`.
    pub value: Matrix,
    /// `[W]`.
    pub norm_key: Vector,
    /// `[W]`.
    pub norm_query: Vector,
    /// `[W]`.
    pub norm_conv: Vector,
    /// `[W][taps]`, oldest tap first.
    pub conv: Vector,
}

/// Expert layer tensors (qwen4exp.md 7).
#[derive(Clone, Debug)]
pub struct MoeWeights {
    /// `[E, H]`, F32.
    pub router: Matrix,
    /// `[E][FF, H]`.
    pub gate: Experts,
    /// `[E][FF, H]`.
    pub up: Experts,
    /// `[E][H, FF]`.
    pub down: Experts,
    /// `[FS, H]`.
    pub shared_gate: Matrix,
    /// `[FS, H]`.
    pub shared_up: Matrix,
    /// `[H, FS]`.
    pub shared_down: Matrix,
    /// `[1, H]`, F32: the scalar gate of the shared expert.
    pub shared_router: Matrix,
}

/// One block of the stack.
#[derive(Clone, Debug)]
pub struct Layer {
    /// n-gram injection at the top of the block, on one layer only.
    pub ngram: Option<NgramWeights>,
    /// Hyper-connection around the mixer.
    pub hc_mixer: HyperConnection,
    /// Token mixer.
    pub mixer: Mixer,
    /// Hyper-connection around the experts.
    pub hc_ffn: HyperConnection,
    /// Experts.
    pub moe: MoeWeights,
}

/// The target model, bound.
#[derive(Clone, Debug)]
pub struct Weights {
    /// `[V, H]`.
    pub token_embd: Matrix,
    /// `[V, H]`.
    pub output: Matrix,
    /// The final mixer: it is the final norm.
    pub output_hc: HyperRead,
    /// `[table rows, row width]`.
    pub ngram_table: Matrix,
    /// The stack.
    pub layers: Vec<Layer>,
}

impl HyperRead {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a TensorData)) {
        let Self { norm, down, up } = self;
        each(&[norm], &[down, up], visit);
    }
}

impl HyperConnection {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a TensorData)) {
        let Self { read, inject } = self;
        read.visit(visit);
        each(&[], &[inject], visit);
    }
}

impl Mixer {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a TensorData)) {
        match self {
            Self::Gdn(GdnWeights { qkv, gate, alpha, beta, conv, dt_bias, a, norm, out }) => {
                each(&[conv, dt_bias, a, norm], &[qkv, gate, alpha, beta, out], visit);
            }
            Self::Attention(AttentionWeights {
                q,
                k,
                v,
                out,
                q_norm,
                k_norm,
                index_q,
                index_k,
                index_q_norm,
                index_k_norm,
            }) => {
                each(&[q_norm, k_norm, index_q_norm, index_k_norm], &[q, k, v, out, index_q, index_k], visit);
            }
        }
    }
}

impl MoeWeights {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a TensorData)) {
        let Self { router, gate, up, down, shared_gate, shared_up, shared_down, shared_router } = self;
        each(&[], &[router, shared_router, shared_gate, shared_up, shared_down], visit);
        for slab in [gate, up, down] {
            visit(&slab.name, &slab.data);
        }
    }
}

impl Layer {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a TensorData)) {
        let Self { ngram, hc_mixer, mixer, hc_ffn, moe } = self;
        if let Some(NgramWeights { key, value, norm_key, norm_query, norm_conv, conv }) = ngram {
            each(&[norm_key, norm_query, norm_conv, conv], &[key, value], visit);
        }
        hc_mixer.visit(visit);
        mixer.visit(visit);
        hc_ffn.visit(visit);
        moe.visit(visit);
    }
}

fn each<'a>(vectors: &[&'a Vector], matrices: &[&'a Matrix], visit: &mut dyn FnMut(&'a str, &'a TensorData)) {
    vectors.iter().for_each(|v| visit(&v.name, &v.data));
    matrices.iter().for_each(|m| visit(&m.name, &m.data));
}

impl Weights {
    /// Names and bytes of all tensors, each once, in no particular order.
    pub fn tensors(&self) -> Vec<(&str, &TensorData)> {
        let Self { token_embd, output, output_hc, ngram_table, layers } = self;
        let mut tensors = Vec::new();
        let mut visit = |name, data| tensors.push((name, data));
        each(&[], &[token_embd, output, ngram_table], &mut visit);
        output_hc.visit(&mut visit);
        layers.iter().for_each(|layer| layer.visit(&mut visit));
        tensors
    }
}

/// The multi-token-prediction head, bound against its target (qwen4exp.md 9).
#[derive(Clone, Debug)]
pub struct DraftHead {
    /// An attention block without n-gram injection.
    pub block: Layer,
    /// `[H, 2H]`: embedding half first.
    pub eh_proj: Matrix,
    /// `[H]`.
    pub enorm: Vector,
    /// `[W]`.
    pub hnorm: Vector,
    /// The head's mixer.
    pub hc_head: HyperRead,
    /// `[V, H]`: the target's, or its own in a self-contained file.
    pub token_embd: Matrix,
    /// `[V, H]`: the target's, or its own in a self-contained file.
    pub output: Matrix,
    /// Whether `token_embd` and `output` are the target's. A self-contained file brings its own.
    pub shares_target: bool,
}

impl DraftHead {
    /// Names and bytes of the tensors that the head adds to its target, each once, in no particular order.
    pub fn tensors(&self) -> Vec<(&str, &TensorData)> {
        let Self { block, eh_proj, enorm, hnorm, hc_head, token_embd, output, shares_target } = self;
        let mut tensors = Vec::new();
        let mut visit = |name, data| tensors.push((name, data));
        block.visit(&mut visit);
        each(&[enorm, hnorm], &[eh_proj], &mut visit);
        hc_head.visit(&mut visit);
        if !shares_target {
            each(&[], &[token_embd, output], &mut visit);
        }
        tensors
    }
}
