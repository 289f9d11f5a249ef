//! Products of many rows (`kernels/gemm.cu`): prefill, dense and by expert. Any count of rows.

use bytemuck::{Pod, Zeroable};
use cudafast_quant::GROUP;

use super::moe::{DownArgs, UpArgs};
use super::{DeviceExperts, DeviceMatrix, Input, Product, check, format_symbol, quantise_rows};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Rows of a tile.
const TILE_ROWS: usize = 64;
/// Outputs of a tile of a block format, and of a plain one.
const TILE_OUT: usize = 128;
const TILE_OUT_PLAIN: usize = 64;
/// `struct Stage` twice: codes of 128 outputs and 64 rows by 144 bytes, then scales and offsets of four groups.
const SHARED_BYTES: usize = 2 * ((128 + 64) * 144 + 4 * (4 * 4 * 128 + 3 * 4 * 64));

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct GemmArgs {
    w: u64,
    q: u64,
    d: u64,
    out: u64,
    slab_bytes: i64,
    list: u64,
    starts: u64,
    tiles: u64,
    rows: i32,
    outs: i32,
    groups: i32,
    row_bytes: i32,
    share: i32,
    second: i32,
}

/// The pairs of each expert, as [`router::group`](super::router::group) lists them, and room for their tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pairs<'a> {
    /// `[pairs]`.
    pub(crate) list: DeviceSlice<'a, i32>,
    /// `[E + 1]`.
    pub(crate) starts: DeviceSlice<'a, i32>,
    /// Scratch of [`tiles`] values.
    pub(crate) tiles: DeviceSlice<'a, u32>,
}

/// Most tiles of `pairs` pairs of `experts` experts, and their count.
pub(crate) fn tiles(pairs: usize, experts: usize) -> usize {
    1 + pairs / TILE_ROWS + experts.min(pairs)
}

/// `out[t][r] = matrix[r] . input[t]`: as [`matvec`](super::matvec()), in the fold order of `kernels/gemm.cu`.
pub(crate) fn product(
    stream: &Stream,
    kernels: &Kernels,
    input: Input<'_>,
    products: &[Product<'_>],
) -> Result<(), CudaError> {
    const OP: &str = "gemm.product";
    check::within(OP, "rows", input.rows, 1..=1 << 24)?;
    for Product { matrix, out } in products {
        matrix.check(OP)?;
        check::within(OP, "rows of a matrix", matrix.rows, 1..=1 << 22)?;
        check::len(OP, "output", out.len(), input.rows * matrix.rows)?;
        let mut args = GemmArgs::zeroed();
        (args.rows, args.share) = (input.rows as i32, 1);
        launch(stream, kernels, OP, *matrix, input, *out, input.rows.div_ceil(TILE_ROWS), args)?;
    }
    Ok(())
}

/// Fills in what both kinds have in common. The caller set the rest of `args`, and checked `out` and the matrix.
#[expect(clippy::too_many_arguments, reason = "one launch, private to this file")]
fn launch(
    stream: &Stream,
    kernels: &Kernels,
    op: &'static str,
    matrix: DeviceMatrix<'_>,
    input: Input<'_>,
    out: DeviceSlice<'_, f32>,
    tiles: usize,
    mut args: GemmArgs,
) -> Result<(), CudaError> {
    (args.w, args.out) = (matrix.bytes.address(), out.address());
    (args.outs, args.row_bytes) = (matrix.rows as i32, matrix.row_bytes() as i32);
    let function = kernels.get("gemm", &format!("gemm_{}", format_symbol(matrix.format)))?;
    if matrix.is_plain() {
        let x = input.checked_floats(op, matrix.cols)?;
        args.groups = matrix.cols as i32;
        let grid =
            Grid { blocks: [tiles as u32, matrix.rows.div_ceil(TILE_OUT_PLAIN) as u32, 1], threads: 256, shared: 0 };
        // SAFETY: sizes and alignment were checked by the caller and above; the parameters are the kernel's.
        return unsafe { stream.launch(&function, grid, Args::new().value(args).slice(x)) };
    }
    let q8 = input.checked_q8(op, matrix.cols)?;
    (args.q, args.d) = (q8.q.address(), q8.d.address());
    args.groups = (matrix.cols / GROUP) as i32;
    let blocks = [tiles as u32, matrix.rows.div_ceil(TILE_OUT) as u32, 1];
    let grid = Grid { blocks, threads: 256, shared: SHARED_BYTES as u32 };
    // SAFETY: as above.
    unsafe { stream.launch(&function, grid, Args::new().value(args)) }
}

/// One slab, to size a launch by; the kernel goes to the others by `slab_bytes`.
fn slab<'a>(experts: &DeviceExperts<'a>) -> DeviceMatrix<'a> {
    let all = experts.stacked();
    DeviceMatrix { rows: experts.rows, bytes: all.bytes.part(0, experts.rows * all.row_bytes()), ..all }
}

fn grouped(pairs: Pairs<'_>, experts: &DeviceExperts<'_>, share: usize, second: bool) -> GemmArgs {
    let mut args = GemmArgs::zeroed();
    args.slab_bytes = (experts.rows * experts.stacked().row_bytes()) as i64;
    (args.list, args.starts, args.tiles) = (pairs.list.address(), pairs.starts.address(), pairs.tiles.address());
    (args.share, args.second) = (share as i32, i32::from(second));
    args
}

fn check_pairs(op: &'static str, pairs: Pairs<'_>, count: usize, experts: usize) -> Result<(), CudaError> {
    check::within(op, "experts", experts, 1..=1 << 16)?;
    check::within(op, "pairs", count, 1..=1 << 22)?;
    check::len(op, "list of pairs", pairs.list.len(), count)?;
    check::len(op, "starts of experts", pairs.starts.len(), experts + 1)?;
    check::len(op, "scratch for tiles", pairs.tiles.len(), tiles(count, experts))
}

/// [`moe::up`](super::moe::up) for many rows: expert by expert. Writes the tiles, which [`experts_down`] reads again.
pub(crate) fn experts_up(
    stream: &Stream,
    kernels: &Kernels,
    of: UpArgs<'_>,
    pairs: Pairs<'_>,
) -> Result<(), CudaError> {
    const OP: &str = "gemm.experts_up";
    let UpArgs { x, gate, up, mid, used, .. } = of;
    let count = x.rows * used;
    check_pairs(OP, pairs, count, gate.experts)?;
    gate.stacked().check(OP)?;
    up.stacked().check(OP)?;
    for (what, found, expected) in [
        ("rows of up", up.rows, gate.rows),
        ("columns of up", up.cols, gate.cols),
        ("experts of up", up.experts, gate.experts),
        ("mid", mid.len(), count * gate.rows),
    ] {
        check::len(OP, what, found, expected)?;
    }
    let function = kernels.get("gemm", "gemm_tiles")?;
    let args = Args::new().slice(pairs.starts).slice(pairs.tiles).value(gate.experts as i32);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, Grid::of(1, 1024), args) }?;
    for (experts, second) in [(gate, false), (up, true)] {
        let most = tiles(count, experts.experts) - 1;
        launch(stream, kernels, OP, slab(&experts), x, mid, most, grouped(pairs, &experts, used, second))?;
    }
    Ok(())
}

/// [`moe::down`](super::moe::down) for many rows, after [`experts_up`] of the same pairs. `y` is scratch `[T, K, H]`.
pub(crate) fn experts_down(
    stream: &Stream,
    kernels: &Kernels,
    of: DownArgs<'_>,
    pairs: Pairs<'_>,
    y: DeviceSlice<'_, f32>,
) -> Result<(), CudaError> {
    const OP: &str = "gemm.experts_down";
    let DownArgs { mid, weights, down, shared, shared_gate, out, used, .. } = of;
    check::within(OP, "experts of a row", used, 1..=64)?;
    check::multiple(OP, "rows of mid", mid.rows, used)?;
    let rows = mid.rows / used;
    check_pairs(OP, pairs, mid.rows, down.experts)?;
    down.stacked().check(OP)?;
    for (what, found, expected) in [
        ("weights", weights.len(), mid.rows),
        ("shared", shared.len(), rows * down.rows),
        ("shared gate", shared_gate.len(), rows),
        ("output", out.len(), rows * down.rows),
        ("scratch", y.len(), mid.rows * down.rows),
    ] {
        check::len(OP, what, found, expected)?;
    }
    if !down.stacked().is_plain() {
        quantise_rows(stream, kernels, mid.checked_floats(OP, down.cols)?, mid.checked_q8(OP, down.cols)?)?;
    }
    let most = tiles(mid.rows, down.experts) - 1;
    launch(stream, kernels, OP, slab(&down), mid, y, most, grouped(pairs, &down, 1, false))?;
    let args = Args::new()
        .slice(y)
        .slice(weights)
        .slice(shared)
        .slice(shared_gate)
        .slice(out)
        .value(used as i32)
        .value(down.rows as i32)
        .value(out.len() as i64);
    let grid = Grid::of(out.len().div_ceil(256).min(1 << 16) as u32, 256);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&kernels.get("gemm", "gemm_combine")?, grid, args) }
}
