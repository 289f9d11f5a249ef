//! Attention of decode and verify rows (`kernels/attention.cu`, qwen4exp.md 5).

use cudafast_model::{AttentionParams, IndexerParams};
use cudafast_quant::GROUP;

use super::{Q8Rows, attention_prefill, check};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Entries of a token list that a block takes.
pub(super) const TILE: usize = 32;
/// Most splits: the combination keeps a weight for each in shared memory.
const MAX_SPLITS: usize = 4096;
/// Widest head of any kernel here.
pub(super) const MAX_DIM: usize = 256;
/// Head dim and query heads a key head that have a kernel of their own; others run plain.
const GROUPS: [(usize, usize); 3] = [(256, 12), (128, 2), (128, 4)];

/// The suffix of the kernel for these sizes, if there is one.
pub(super) fn group_symbol(shape: &AttentionParams) -> Option<String> {
    let group = (shape.head_dim, shape.heads / shape.kv_heads.max(1));
    GROUPS.contains(&group).then(|| format!("{}_{}", group.0, group.1))
}

/// Longest token list of a query that sees at most `visible` tokens.
fn longest(visible: usize, indexer: &IndexerParams) -> usize {
    visible.min(indexer.budget_blocks() * indexer.ratio + indexer.ratio - 1)
}

fn splits(visible: usize, indexer: &IndexerParams) -> usize {
    longest(visible, indexer).div_ceil(TILE)
}

/// Floats of scratch of [`decode`].
pub(crate) fn scratch(rows: usize, visible: usize, shape: &AttentionParams, indexer: &IndexerParams) -> usize {
    match group_symbol(shape) {
        Some(_) => rows * splits(visible, indexer) * shape.heads * (shape.head_dim + 2),
        None => 0,
    }
}

/// `table: [positions, 2, half]`, cosines then sines of each position: once, before anything else. `inv_freq: [half]`.
pub(crate) fn rope_table(
    stream: &Stream,
    kernels: &Kernels,
    inv_freq: DeviceSlice<'_, f64>,
    table: DeviceSlice<'_, f32>,
) -> Result<(), CudaError> {
    const OP: &str = "attention.rope_table";
    let half = inv_freq.len();
    check::multiple(OP, "table", table.len(), (2 * half).max(1))?;
    check::within(OP, "table", table.len(), 1..=1 << 31)?;
    let positions = table.len() / (2 * half);
    let function = kernels.get("attention", "attention_rope")?;
    let args = Args::new().slice(inv_freq).slice(table).value(positions as i32).value(half as i32);
    // SAFETY: the sizes passed are those of the slices; the parameters are the kernel's.
    unsafe { stream.launch(&function, Grid::of((positions * half).div_ceil(128) as u32, 128), args) }
}

/// Arguments of [`prepare`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepare<'a> {
    /// Position words (kernels/seq.cuh).
    pub(crate) at: DeviceSlice<'a, u32>,
    /// `attn_q x`, `[T, nh, 2, hd]`.
    pub(crate) query_gate: DeviceSlice<'a, f32>,
    /// `attn_k x`, `[T, nkv * hd]`.
    pub(crate) k: DeviceSlice<'a, f32>,
    /// `attn_v x`, `[T, nkv * hd]`.
    pub(crate) v: DeviceSlice<'a, f32>,
    /// `indexer.q_proj x`, `[T, ih, id]`.
    pub(crate) index_q: DeviceSlice<'a, f32>,
    /// `indexer.k_proj x`, `[T, id]`.
    pub(crate) index_k: DeviceSlice<'a, f32>,
    /// `[hd]`.
    pub(crate) q_norm: DeviceSlice<'a, f32>,
    /// `[hd]`.
    pub(crate) k_norm: DeviceSlice<'a, f32>,
    /// `[id]`.
    pub(crate) index_q_norm: DeviceSlice<'a, f32>,
    /// `[id]`.
    pub(crate) index_k_norm: DeviceSlice<'a, f32>,
    /// Of [`rope_table`], as many positions as the caches have.
    pub(crate) rope: DeviceSlice<'a, f32>,
    /// bf16 `[ctx, nkv * hd]`.
    pub(crate) k_cache: DeviceSlice<'a, u16>,
    /// bf16 `[ctx, nkv * hd]`.
    pub(crate) v_cache: DeviceSlice<'a, u16>,
    /// bf16 `[ctx, id]`.
    pub(crate) raw_cache: DeviceSlice<'a, u16>,
    /// bf16 `[ctx / ratio, id]`.
    pub(crate) pooled_cache: DeviceSlice<'a, u16>,
    /// Queries, normed and rotated, `[T, nh, hd]`.
    pub(crate) q: DeviceSlice<'a, f32>,
    /// Index queries, normed and rotated, `[T, ih, id]`.
    pub(crate) index_q_out: DeviceSlice<'a, f32>,
    /// Sizes.
    pub(crate) shape: &'a AttentionParams,
    /// Sizes.
    pub(crate) indexer: &'a IndexerParams,
    /// Of the norms.
    pub(crate) eps: f32,
}

/// Norm, rope and cache write of each row, and the pooled key of each block that a row completes.
pub(crate) fn prepare(stream: &Stream, kernels: &Kernels, of: Prepare<'_>) -> Result<(), CudaError> {
    const OP: &str = "attention.prepare";
    let (shape, indexer) = (of.shape, of.indexer);
    let (kv, half) = (shape.kv_heads * shape.head_dim, shape.rotary_dims / 2);
    let index = indexer.heads * indexer.head_dim;
    check::len(OP, "position words", of.at.len(), 4)?;
    check::multiple(OP, "raw index keys of rows", of.index_k.len(), indexer.head_dim)?;
    let rows = of.index_k.len() / indexer.head_dim;
    check::within(OP, "rows", rows, 1..=65_535)?;
    check::within(OP, "rotary channels", shape.rotary_dims, 0..=shape.head_dim.min(indexer.head_dim))?;
    check::len(OP, "queries and gates", of.query_gate.len(), rows * shape.heads * 2 * shape.head_dim)?;
    check::len(OP, "keys", of.k.len(), rows * kv)?;
    check::len(OP, "values", of.v.len(), rows * kv)?;
    check::len(OP, "index queries", of.index_q.len(), rows * index)?;
    for (what, gain) in [("q_norm", of.q_norm), ("k_norm", of.k_norm)] {
        check::len(OP, what, gain.len(), shape.head_dim)?;
    }
    for (what, gain) in [("index q_norm", of.index_q_norm), ("index k_norm", of.index_k_norm)] {
        check::len(OP, what, gain.len(), indexer.head_dim)?;
    }
    check::multiple(OP, "key cache", of.k_cache.len(), kv)?;
    let positions = of.k_cache.len() / kv;
    check::within(OP, "cached positions", positions, rows..=1 << 30)?;
    check::len(OP, "value cache", of.v_cache.len(), of.k_cache.len())?;
    check::len(OP, "raw key cache", of.raw_cache.len(), positions * indexer.head_dim)?;
    check::len(OP, "pooled key cache", of.pooled_cache.len(), positions / indexer.ratio * indexer.head_dim)?;
    check::least(OP, "rope table", of.rope.len(), positions * 2 * half)?;
    check::len(OP, "queries out", of.q.len(), rows * shape.heads * shape.head_dim)?;
    check::len(OP, "index queries out", of.index_q_out.len(), rows * index)?;
    let items = shape.heads + 2 * shape.kv_heads + indexer.heads + 2;
    let function = kernels.get("attention", "attention_prepare")?;
    let grid = Grid { blocks: [items.div_ceil(4) as u32, rows as u32, 1], threads: 128, shared: 0 };
    let args = Args::new()
        .slice(of.query_gate)
        .slice(of.k)
        .slice(of.v)
        .slice(of.index_q)
        .slice(of.index_k)
        .slice(of.q_norm)
        .slice(of.k_norm)
        .slice(of.index_q_norm)
        .slice(of.index_k_norm)
        .slice(of.rope)
        .slice(of.at)
        .slice(of.k_cache)
        .slice(of.v_cache)
        .slice(of.raw_cache)
        .slice(of.pooled_cache)
        .slice(of.q)
        .slice(of.index_q_out)
        .value(shape.heads as i32)
        .value(shape.kv_heads as i32)
        .value(shape.head_dim as i32)
        .value(indexer.heads as i32)
        .value(indexer.head_dim as i32)
        .value(half as i32)
        .value(indexer.ratio as i32)
        .value(of.eps);
    // SAFETY: lengths were checked; the caller keeps position + T within the caches, as the session's context says.
    unsafe { stream.launch(&function, grid, args) }
}

/// Arguments of [`decode`] and of [`attention_prefill::attend`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attend<'a> {
    /// Position words (kernels/seq.cuh).
    pub(crate) at: DeviceSlice<'a, u32>,
    /// Of [`prepare`], `[T, nh, hd]`.
    pub(crate) q: DeviceSlice<'a, f32>,
    /// `attn_q x`, `[T, nh, 2, hd]`: the gates.
    pub(crate) query_gate: DeviceSlice<'a, f32>,
    /// bf16 `[ctx, nkv * hd]`.
    pub(crate) keys: DeviceSlice<'a, u16>,
    /// bf16 `[ctx, nkv * hd]`.
    pub(crate) values: DeviceSlice<'a, u16>,
    /// `[T, budget blocks]` of `select`; not read where a row sees few tokens.
    pub(crate) blocks: DeviceSlice<'a, i32>,
    /// Gated outputs, `[T, nh, hd]`.
    pub(crate) o: DeviceSlice<'a, f32>,
    /// Their codes, where 32 divides `hd`.
    pub(crate) codes: Option<Q8Rows<'a>>,
    /// Sizes.
    pub(crate) shape: &'a AttentionParams,
    /// Sizes.
    pub(crate) indexer: &'a IndexerParams,
}

impl Attend<'_> {
    /// Checks the lengths and returns the rows.
    pub(super) fn check(&self, op: &'static str, most: usize) -> Result<usize, CudaError> {
        let (shape, indexer) = (self.shape, self.indexer);
        let width = shape.heads * shape.head_dim;
        check::len(op, "position words", self.at.len(), 4)?;
        check::within(op, "head dim", shape.head_dim, 1..=MAX_DIM)?;
        check::within(op, "key heads", shape.kv_heads, 1..=shape.heads.min(65_535))?;
        check::multiple(op, "query heads", shape.heads, shape.kv_heads)?;
        check::multiple(op, "queries", self.q.len(), width)?;
        let rows = self.q.len() / width;
        check::within(op, "rows", rows, 1..=most)?;
        check::len(op, "queries and gates", self.query_gate.len(), 2 * rows * width)?;
        check::multiple(op, "key cache", self.keys.len(), shape.kv_heads * shape.head_dim)?;
        check::len(op, "value cache", self.values.len(), self.keys.len())?;
        check::aligned(op, "key cache", self.keys.address(), 16)?;
        check::aligned(op, "value cache", self.values.address(), 16)?;
        check::len(op, "blocks", self.blocks.len(), rows * indexer.budget_blocks())?;
        check::len(op, "outputs", self.o.len(), rows * width)?;
        if let Some(codes) = self.codes {
            check::multiple(op, "head dim", shape.head_dim, GROUP)?;
            check::len(op, "columns of int8 rows", codes.cols, width)?;
            codes.check(op, rows)?;
        }
        Ok(rows)
    }
}

/// Attention of a round's rows, each over its own list, which `visible` tokens bound; `scratch` of at least [`scratch`].
pub(crate) fn decode(
    stream: &Stream,
    kernels: &Kernels,
    of: Attend<'_>,
    visible: usize,
    scratch: DeviceSlice<'_, f32>,
) -> Result<(), CudaError> {
    const OP: &str = "attention.decode";
    let rows = of.check(OP, super::MAX_ROWS)?;
    let (shape, indexer) = (of.shape, of.indexer);
    let Some(group) = group_symbol(shape) else {
        return attention_prefill::attend(stream, kernels, of);
    };
    check::least(OP, "scratch", scratch.len(), self::scratch(rows, visible, shape, indexer))?;
    check::aligned(OP, "scratch", scratch.address(), 8)?;
    let splits = splits(visible, indexer);
    check::within(OP, "splits", splits, 1..=MAX_SPLITS)?;
    let (parts, heads) = (rows * splits * shape.heads, shape.heads);
    let (o, stats) = (scratch.part(0, parts * shape.head_dim), scratch.part(parts * shape.head_dim, 2 * parts));
    let (ratio, budget) = (indexer.ratio as i32, indexer.budget_blocks() as i32);
    let function = kernels.get("attention", &format!("attention_split_{group}"))?;
    let grid = Grid { blocks: [splits as u32, shape.kv_heads as u32, rows as u32], threads: 256, shared: 0 };
    let args = Args::new()
        .slice(of.q)
        .slice(of.keys)
        .slice(of.values)
        .slice(of.blocks)
        .slice(of.at)
        .slice(o)
        .slice(stats)
        .value(shape.kv_heads as i32)
        .value(ratio)
        .value(budget);
    // SAFETY: lengths and alignment were checked; listed blocks lie below the row's position, as `select` wrote them.
    unsafe { stream.launch(&function, grid, args) }?;
    let function = kernels.get("attention", "attention_combine")?;
    let grid = Grid { blocks: [heads as u32, rows as u32, 1], threads: 256, shared: 4 * splits as u32 };
    let args = Args::new()
        .slice(o)
        .slice(stats)
        .slice(of.query_gate)
        .slice(of.at)
        .slice(of.o)
        .optional(of.codes.map(|codes| codes.q))
        .optional(of.codes.map(|codes| codes.d))
        .value(splits as i32)
        .value(shape.head_dim as i32)
        .value(ratio)
        .value(budget);
    // SAFETY: as above.
    unsafe { stream.launch(&function, grid, args) }
}
