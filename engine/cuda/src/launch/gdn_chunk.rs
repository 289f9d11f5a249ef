//! Gated delta net, chunked (`kernels/gdn_chunk.cu`, qwen4exp.md 4): prefill.

use cudafast_model::GdnParams;

use super::{
    check,
    gdn::{FAST_DIM, Layer, cut_rows, rows_floats},
};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Rows of a chunk; chunks are cut at absolute multiples.
const CHUNK: usize = 64;
/// Shared floats of `gdn_gram` and `gdn_chunk`, by the layouts at their heads.
const GRAM_SHARED: usize = 2 * CHUNK * (FAST_DIM + 4);
const CHUNK_SHARED: usize = CHUNK * (FAST_DIM + 4) + 2 * CHUNK * (CHUNK + 4) + FAST_DIM * 32 + CHUNK * 33 + 2 * CHUNK;
/// Most rows of a call: a row is a grid's y.
const MOST_ROWS: usize = 65_535;

/// Chunks that `rows` rows can touch, wherever they start.
fn chunks(rows: usize) -> usize {
    rows.div_ceil(CHUNK) + 1
}

/// Floats of scratch of [`chunk`].
pub(crate) fn scratch(rows: usize, shape: &GdnParams) -> usize {
    rows_floats(rows, shape).next_multiple_of(4) + chunks(rows) * shape.key_heads * 2 * CHUNK * CHUNK
}

/// Any number of rows from a settled state: no kept rows are folded, nothing is logged, the ring keeps the last inputs.
pub(crate) fn chunk(
    stream: &Stream,
    kernels: &Kernels,
    of: Layer<'_>,
    scratch: DeviceSlice<'_, f32>,
) -> Result<(), CudaError> {
    const OP: &str = "gdn.chunk";
    let rows = of.check(OP, MOST_ROWS)?;
    let shape = of.shape;
    check::least(OP, "scratch", scratch.len(), self::scratch(rows, shape))?;
    check::aligned(OP, "scratch", scratch.address(), 16)?;
    let before = cut_rows(scratch, rows, shape);
    let [y, g, rate] = before;
    of.rows_before(stream, kernels, y, g, rate, rows)?;
    of.keep_inputs(stream, kernels, rows)?;
    if shape.head_dim != FAST_DIM {
        of.plain(stream, kernels, before, of.s, None, rows)?;
        return of.finish(stream, kernels, rows);
    }
    let first = rows_floats(rows, shape).next_multiple_of(4);
    let gram = scratch.part(first, chunks(rows) * shape.key_heads * 2 * CHUNK * CHUNK);
    let function = kernels.get("gdn_chunk", "gdn_gram")?;
    let grid = Grid {
        blocks: [chunks(rows) as u32, shape.key_heads as u32, 1],
        threads: 256,
        shared: (GRAM_SHARED * size_of::<f32>()) as u32,
    };
    let args = Args::new()
        .slice(y)
        .slice(of.at)
        .slice(gram)
        .value(rows as i32)
        .value(shape.key_heads as i32)
        .value(shape.qkv_channels() as i32);
    // SAFETY: lengths and alignment were checked, the scratch holds every chunk the rows can touch; the parameters are the
    // kernel's.
    unsafe { stream.launch(&function, grid, args) }?;
    let function = kernels.get("gdn_chunk", "gdn_chunk")?;
    let grid = Grid {
        blocks: [(FAST_DIM / 32) as u32, shape.value_heads as u32, 1],
        threads: 256,
        shared: (CHUNK_SHARED * size_of::<f32>()) as u32,
    };
    let args = Args::new()
        .slice(y)
        .slice(g)
        .slice(rate)
        .slice(gram)
        .slice(of.at)
        .slice(of.s)
        .slice(of.core)
        .value(rows as i32)
        .value(chunks(rows) as i32)
        .value(shape.key_heads as i32)
        .value(shape.value_heads as i32);
    // SAFETY: as above.
    unsafe { stream.launch(&function, grid, args) }?;
    of.finish(stream, kernels, rows)
}
