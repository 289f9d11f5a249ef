//! Typed, bound tensors. Checked once when bound, trusted after.

use cudafast_gguf::TensorData;
use cudafast_quant::Format;

/// A borrowed `[rows, cols]` row-major matrix of one format.
#[derive(Clone, Copy)]
pub struct MatrixRef<'a> {
    /// Number format of the bytes.
    pub format: &'static Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs, in elements.
    pub cols: usize,
    /// `rows * row_bytes` bytes.
    pub bytes: &'a [u8],
}

/// A `[rows, cols]` row-major matrix as shipped: `y[r] = sum_c W[r, c] x[c]`.
#[derive(Clone)]
pub struct Matrix {
    /// Name in the file.
    pub name: String,
    /// Number format of the bytes.
    pub format: &'static Format,
    /// Outputs.
    pub rows: usize,
    /// Inputs, in elements.
    pub cols: usize,
    /// `rows * row_bytes` bytes.
    pub data: TensorData,
}

/// `[experts, rows, cols]`: one contiguous slab per expert.
#[derive(Clone)]
pub struct Experts {
    /// Name in the file.
    pub name: String,
    /// Number format of the bytes.
    pub format: &'static Format,
    /// Number of slabs.
    pub experts: usize,
    /// Outputs of one expert.
    pub rows: usize,
    /// Inputs of one expert, in elements.
    pub cols: usize,
    /// All slabs.
    pub data: TensorData,
}

/// An F32 tensor used as numbers: norm gains, `ssm_a`, convolution taps.
#[derive(Clone)]
pub struct Vector {
    /// Name in the file.
    pub name: String,
    /// The bytes, 4-byte aligned.
    pub data: TensorData,
}

/// `hc_read` without inject (the final mixer, the draft head's mixer): qwen4exp.md 2.
#[derive(Clone)]
pub struct HyperRead {
    /// Gain `[W]`.
    pub norm: Vector,
    /// `[LR, W]`.
    pub down: Matrix,
    /// `[W, LR]`.
    pub up: Matrix,
}

/// A full hyper-connection: read and inject.
#[derive(Clone)]
pub struct HyperConnection {
    /// The read half.
    pub read: HyperRead,
    /// `[C, W]`.
    pub inject: Matrix,
}

/// Gated delta net tensors (qwen4exp.md 4).
#[derive(Clone)]
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
#[derive(Clone)]
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
#[derive(Clone)]
pub enum Mixer {
    /// Gated delta net.
    Gdn(GdnWeights),
    /// Sparse attention.
    Attention(AttentionWeights),
}

/// n-gram injection tensors of the one PLE layer (qwen4exp.md 6); the table is [`Weights::ngram_table`].
#[derive(Clone)]
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
#[derive(Clone)]
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
#[derive(Clone)]
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
#[derive(Clone)]
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

/// The multi-token-prediction head, bound against its target (qwen4exp.md 9).
#[derive(Clone)]
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
}
