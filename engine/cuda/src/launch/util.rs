//! Rows in and out (`kernels/util.cu`).

use bytemuck::{Pod, Zeroable};
use cudafast_quant::GROUP;

use super::{DeviceMatrix, Q8Rows, check, format_symbol};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// `x: f32[T, cols]` as int8 rows, the bits of [`cudafast_quant::ActRows`]. `T` follows from the length.
pub(crate) fn quantise_rows(
    stream: &Stream,
    kernels: &Kernels,
    x: DeviceSlice<'_, f32>,
    out: Q8Rows<'_>,
) -> Result<(), CudaError> {
    const OP: &str = "quantise_rows";
    check::multiple(OP, "values", x.len(), out.cols)?;
    out.check(OP, x.len() / out.cols)?;
    let groups = x.len() / GROUP;
    let function = kernels.get("util", "util_quantise_rows")?;
    let grid = Grid::of(groups.div_ceil(8).min(1 << 16) as u32, 256);
    let args = Args::new().slice(x).slice(out.q).slice(out.d).value(groups as i64);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, grid, args) }
}

/// Which rows of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ids<'a> {
    /// Tokens.
    Narrow(DeviceSlice<'a, u32>),
    /// Rows of the n-gram table.
    Wide(DeviceSlice<'a, u64>),
}

/// Arguments of [`rows_by_id`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowsById<'a> {
    /// The table. Its bytes may be mapped host memory.
    pub(crate) table: DeviceMatrix<'a>,
    /// Rows; one past the table reads as NaN.
    pub(crate) ids: Ids<'a>,
    /// How often each row is written, one behind the other.
    pub(crate) copies: usize,
    /// `[ids, copies, cols]`.
    pub(crate) out: DeviceSlice<'a, f32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RowsArgs {
    table: u64,
    ids32: u64,
    ids64: u64,
    out: u64,
    table_rows: u64,
    ids: i32,
    cols: i32,
    row_bytes: i32,
    copies: i32,
}

/// Rows of a table as f32, with the bits of [`cudafast_quant::Format::decode`].
pub(crate) fn rows_by_id(stream: &Stream, kernels: &Kernels, of: RowsById<'_>) -> Result<(), CudaError> {
    const OP: &str = "rows_by_id";
    of.table.check(OP)?;
    let (ids32, ids64, ids) = match of.ids {
        Ids::Narrow(ids) => (ids.address(), 0, ids.len()),
        Ids::Wide(ids) => (0, ids.address(), ids.len()),
    };
    check::within(OP, "ids", ids, 1..=1 << 20)?;
    check::within(OP, "copies", of.copies, 1..=64)?;
    check::len(OP, "output", of.out.len(), ids * of.copies * of.table.cols)?;
    let args = RowsArgs {
        table: of.table.bytes.address(),
        ids32,
        ids64,
        out: of.out.address(),
        table_rows: of.table.rows as u64,
        ids: ids as i32,
        cols: of.table.cols as i32,
        row_bytes: of.table.row_bytes() as i32,
        copies: of.copies as i32,
    };
    let function = kernels.get("util", &format!("util_rows_{}", format_symbol(of.table.format)))?;
    let threads = if of.table.is_plain() { ids * of.table.cols } else { ids * (of.table.cols / GROUP) };
    let grid = Grid::of(threads.div_ceil(128) as u32, 128);
    // SAFETY: lengths were checked; an id past the table reads its row 0; `args` is the kernel's one parameter.
    unsafe { stream.launch(&function, grid, Args::new().value(args)) }
}

/// Arguments of [`argmax`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argmax<'a> {
    /// `[T, cols]`.
    pub(crate) x: DeviceSlice<'a, f32>,
    /// Values a row.
    pub(crate) cols: usize,
    /// Scratch of `T * SLICES`.
    pub(crate) keys: DeviceSlice<'a, u64>,
    /// `[T]`: the lowest id of the largest value; `cols` when a value is NaN.
    pub(crate) id: DeviceSlice<'a, u32>,
}

impl Argmax<'_> {
    /// Slices a row is cut into.
    pub(crate) const SLICES: usize = 64;
}

/// The largest value of each row.
pub(crate) fn argmax(stream: &Stream, kernels: &Kernels, of: Argmax<'_>) -> Result<(), CudaError> {
    const OP: &str = "argmax";
    let rows = of.id.len();
    check::within(OP, "rows", rows, 1..=65_535)?;
    check::within(OP, "columns", of.cols, 1..=1 << 30)?;
    check::len(OP, "values", of.x.len(), rows * of.cols)?;
    check::len(OP, "scratch", of.keys.len(), rows * Argmax::SLICES)?;
    let slices = kernels.get("util", "util_argmax_slices")?;
    let grid = Grid { blocks: [Argmax::SLICES as u32, rows as u32, 1], threads: 256, shared: 0 };
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&slices, grid, Args::new().slice(of.x).slice(of.keys).value(of.cols as i32)) }?;
    let last = kernels.get("util", "util_argmax")?;
    let args = Args::new().slice(of.keys).slice(of.id).value(Argmax::SLICES as i32).value(of.cols as i32);
    // SAFETY: as above.
    unsafe { stream.launch(&last, Grid::of(rows as u32, 256), args) }
}

/// Ends the context as a real fault would: a drill.
pub(crate) fn inject_fault(stream: &Stream, kernels: &Kernels) -> Result<(), CudaError> {
    // SAFETY: it takes no parameters and touches no memory.
    unsafe { stream.launch(&kernels.get("util", "util_fault")?, Grid::of(1, 1), Args::new()) }
}
