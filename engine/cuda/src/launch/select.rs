//! Which blocks a query attends (`kernels/select.cu`, qwen4exp.md 5).

use cudafast_model::IndexerParams;

use super::check;
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Index dim of the fast kernel.
const FAST_DIM: usize = 128;
/// Queries that are scored at once: it bounds the scratch.
const ROWS: usize = 64;
/// Queries that share loaded keys.
const SHARED_ROWS: usize = 8;

/// Floats of scratch of [`select`].
pub(crate) fn scratch(rows: usize, visible: usize, indexer: &IndexerParams) -> usize {
    let blocks = visible / indexer.ratio;
    if blocks <= indexer.budget_blocks() { 0 } else { rows.min(ROWS) * blocks }
}

/// Arguments of [`select`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Select<'a> {
    /// Position words (kernels/seq.cuh).
    pub(crate) at: DeviceSlice<'a, u32>,
    /// Index queries of `attention::prepare`, `[T, ih, id]`.
    pub(crate) queries: DeviceSlice<'a, f32>,
    /// bf16 `[ctx / ratio, id]`.
    pub(crate) pooled: DeviceSlice<'a, u16>,
    /// `[T, budget blocks]`, ascending; left alone where a row sees no more blocks than that.
    pub(crate) blocks: DeviceSlice<'a, i32>,
    /// At least [`scratch`].
    pub(crate) scratch: DeviceSlice<'a, f32>,
    /// Bounds position + T over the life of the launch.
    pub(crate) visible: usize,
    /// Sizes.
    pub(crate) indexer: &'a IndexerParams,
}

/// The best blocks of each row, for rows that see more than the budget. Nothing is launched where none can.
pub(crate) fn select(stream: &Stream, kernels: &Kernels, of: Select<'_>) -> Result<(), CudaError> {
    const OP: &str = "select";
    let indexer = of.indexer;
    let (width, budget) = (indexer.heads * indexer.head_dim, indexer.budget_blocks());
    check::len(OP, "position words", of.at.len(), 4)?;
    check::multiple(OP, "index queries", of.queries.len(), width)?;
    let rows = of.queries.len() / width;
    check::within(OP, "index heads", indexer.heads, 1..=32)?;
    check::within(OP, "visible tokens", of.visible, 1..=1 << 30)?;
    check::len(OP, "blocks", of.blocks.len(), rows * budget)?;
    let stride = of.visible / indexer.ratio;
    if stride <= budget {
        return Ok(());
    }
    check::within(OP, "pooled keys", stride * indexer.head_dim, 1..=of.pooled.len())?;
    check::least(OP, "scratch", of.scratch.len(), scratch(rows, of.visible, indexer))?;
    check::aligned(OP, "pooled keys", of.pooled.address(), 16)?;
    let (ratio, budget) = (indexer.ratio as i32, budget as i32);
    let best = kernels.get("select", "select_best")?;
    for first in (0..rows).step_by(ROWS) {
        let count = ROWS.min(rows - first);
        let args = Args::new().slice(of.queries).slice(of.pooled).slice(of.at).slice(of.scratch).value(first as i32);
        let (symbol, grid, args) = if indexer.head_dim == FAST_DIM {
            let blocks = [stride.div_ceil(128) as u32, count.div_ceil(SHARED_ROWS) as u32, 1];
            let shared = (SHARED_ROWS * width * size_of::<f32>()) as u32;
            let args = args.value(count as i32).value(stride as i32).value(indexer.heads as i32);
            ("select_scores", Grid { blocks, threads: 256, shared }, args)
        } else {
            let blocks = [stride.div_ceil(8) as u32, count as u32, 1];
            let args = args.value(stride as i32).value(indexer.heads as i32).value(indexer.head_dim as i32);
            ("select_scores_plain", Grid { blocks, threads: 256, shared: 0 }, args)
        };
        let scores = kernels.get("select", symbol)?;
        // SAFETY: lengths and alignment were checked; the caller keeps position + T within `visible`.
        unsafe { stream.launch(&scores, grid, args.value(ratio).value(budget)) }?;
        let grid = Grid::of(count as u32, 1024).shared((2 * stride.div_ceil(32) * size_of::<u32>()) as u32);
        let args = Args::new()
            .slice(of.scratch)
            .slice(of.at)
            .slice(of.blocks)
            .value(first as i32)
            .value(stride as i32)
            .value(ratio)
            .value(budget);
        // SAFETY: as above.
        unsafe { stream.launch(&best, grid, args) }?;
    }
    Ok(())
}
