//! Products of up to eight rows with matrices as shipped (`kernels/matvec.cu`).

use bytemuck::{Pod, Zeroable};
use cudafast_quant::{Format, GROUP};

use super::{DeviceMatrix, MAX_ROWS, Q8Rows, check, format_symbol};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

const OP: &str = "matvec";
/// Groups of a chunk: 2560 columns.
pub(super) const CHUNK_GROUPS: usize = 80;
/// Matrices of one launch.
const MATRICES: usize = 6;
/// What a pair of groups takes in shared memory.
pub(super) const PAIR_BYTES: usize = 80;
/// A warp's ring.
pub(super) const SLOTS: usize = 2;
/// Bytes in flight beyond which a slot gains nothing (h200-probes.md B: panels of 10,880 bytes).
const SLOT_BYTES: usize = 10_880;
/// Above this much shared memory a block keeps the next kernel's from starting early (h200-probes.md B).
const BLOCK_BYTES: usize = 110 << 10;

/// Formats with kernels that read through shared memory; every other takes the plain one.
const RING_FORMATS: [&str; 4] = ["Q8_0", "Q4_K", "Q5_K", "Q5_1"];

/// What is multiplied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    /// Rows, at most [`MAX_ROWS`].
    pub(crate) rows: usize,
    /// For block formats.
    pub(crate) q8: Option<Q8Rows<'a>>,
    /// `[T, cols]`, for F32, F16 and BF16 matrices.
    pub(crate) floats: Option<DeviceSlice<'a, f32>>,
}

impl<'a> Input<'a> {
    /// Rows `first..first + rows`.
    pub(crate) fn part(self, first: usize, rows: usize) -> Self {
        let of = |len: usize| len / self.rows;
        let q8 = self.q8.map(|q8| Q8Rows {
            q: q8.q.part(first * q8.cols, rows * q8.cols),
            d: q8.d.part(first * of(q8.d.len()), rows * of(q8.d.len())),
            cols: q8.cols,
        });
        let floats = self.floats.map(|x| x.part(first * of(x.len()), rows * of(x.len())));
        Self { rows, q8, floats }
    }

    /// The int8 rows, if they are there and fit.
    pub(super) fn checked_q8(&self, op: &'static str, cols: usize) -> Result<Q8Rows<'a>, CudaError> {
        let Some(q8) = self.q8 else { return Err(missing(op, "int8 rows")) };
        check::len(op, "columns of int8 rows", q8.cols, cols)?;
        q8.check(op, self.rows)?;
        Ok(q8)
    }

    /// The f32 rows, if they are there and fit.
    pub(super) fn checked_floats(&self, op: &'static str, cols: usize) -> Result<DeviceSlice<'a, f32>, CudaError> {
        let Some(x) = self.floats else { return Err(missing(op, "f32 rows")) };
        check::len(op, "f32 rows", x.len(), self.rows * cols)?;
        check::aligned(op, "f32 rows", x.address(), 16)?;
        Ok(x)
    }
}

fn missing(op: &'static str, what: &'static str) -> CudaError {
    CudaError::Argument { op, what, found: "none".into(), expected: "some, for this matrix's format".into() }
}

/// One matrix and where its product goes: `[T, rows]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product<'a> {
    /// The matrix.
    pub(crate) matrix: DeviceMatrix<'a>,
    /// `[T, rows]`.
    pub(crate) out: DeviceSlice<'a, f32>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RingArgs {
    w: [u64; MATRICES],
    out: [u64; MATRICES],
    rows: [i32; MATRICES],
    first: [i32; MATRICES + 1],
    // The pointers behind are 8-byte aligned.
    _pad: i32,
    q: u64,
    d: u64,
    matrices: i32,
    t: i32,
    groups: i32,
    row_bytes: i32,
    partials: i32,
    row_groups: i32,
    split: i32,
    slot_bytes: i32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AnyArgs {
    w: u64,
    out: u64,
    q: u64,
    d: u64,
    rows: i32,
    t: i32,
    groups: i32,
    row_bytes: i32,
    partials: i32,
    _pad: i32,
}

/// `out[t][r] = matrix[r] . input[t]` for every product; the fold order is that of `kernels/matvec.cu`, so a row's bits
/// depend neither on the rows beside it nor on the matrices launched with it. One launch a format.
pub(crate) fn matvec(
    stream: &Stream,
    kernels: &Kernels,
    input: Input<'_>,
    products: &[Product<'_>],
) -> Result<(), CudaError> {
    check::within(OP, "rows", input.rows, 1..=MAX_ROWS)?;
    for product in products {
        product.matrix.check(OP)?;
        check::within(OP, "rows of a matrix", product.matrix.rows, 1..=1 << 24)?;
        check::len(OP, "output", product.out.len(), input.rows * product.matrix.rows)?;
    }
    let mut ids: Vec<u32> = products.iter().map(|p| p.matrix.format.ggml_id).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let of_format: Vec<_> = products.iter().filter(|p| p.matrix.format.ggml_id == id).copied().collect();
        let Some(first) = of_format.first() else { continue };
        if first.matrix.is_plain() {
            for product in &of_format {
                float(stream, kernels, input, product)?;
            }
            continue;
        }
        let q8 = input.checked_q8(OP, first.matrix.cols)?;
        for product in &of_format {
            check::len(OP, "columns of a matrix", product.matrix.cols, q8.cols)?;
        }
        for some in of_format.chunks(MATRICES) {
            blocks(stream, kernels, input.rows, q8, some)?;
        }
    }
    Ok(())
}

/// log2 of the partials of a row.
pub(super) fn partials(groups: usize) -> u32 {
    let pairs = groups.min(CHUNK_GROUPS).div_ceil(2);
    pairs.ilog2().min(3)
}

fn blocks(
    stream: &Stream,
    kernels: &Kernels,
    t: usize,
    q8: Q8Rows<'_>,
    products: &[Product<'_>],
) -> Result<(), CudaError> {
    let Some(first) = products.first() else { return Ok(()) };
    let format = first.matrix.format;
    match RingPlan::of(stream, format, t, q8.cols, products) {
        Some(plan) => ring(stream, kernels, format, t, q8, products, plan),
        None => products.iter().try_for_each(|product| any(stream, kernels, t, q8, product)),
    }
}

/// How the ring kernel is spread, if it can take the matrices at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RingPlan {
    tile: usize,
    warps: usize,
    blocks: usize,
    row_groups: usize,
    split: bool,
    slot_bytes: usize,
    shared_bytes: usize,
}

impl RingPlan {
    fn of(stream: &Stream, format: &Format, t: usize, cols: usize, products: &[Product<'_>]) -> Option<Self> {
        let info = stream.context().info();
        let rows: Vec<usize> = products.iter().map(|p| p.matrix.rows).collect();
        Self::new(info.multiprocessors as usize, info.shared_bytes as usize, format, t, cols, &rows)
    }

    fn new(sms: usize, shared_limit: usize, format: &Format, t: usize, cols: usize, rows: &[usize]) -> Option<Self> {
        let groups = cols / GROUP;
        if !RING_FORMATS.contains(&format.name) || !groups.is_multiple_of(2) {
            return None;
        }
        let row_bytes = format.row_bytes(cols)?;
        let chunk_bytes = CHUNK_GROUPS * GROUP / format.block_elems * format.block_bytes;
        let chunks = groups.div_ceil(CHUNK_GROUPS);
        let group_rows = 32 >> partials(groups);
        // Bulk copies take multiples of 16 bytes from multiples of 16: of whole row groups, or of a row's every chunk.
        let whole = match chunks {
            1 => {
                (group_rows * row_bytes).is_multiple_of(16)
                    && row_bytes.is_multiple_of(4)
                    && rows.iter().all(|&r| (r % group_rows * row_bytes).is_multiple_of(16))
            }
            _ => row_bytes.is_multiple_of(16) && chunk_bytes.is_multiple_of(16),
        };
        if !whole {
            return None;
        }
        let groups_in_all: usize = rows.iter().map(|&r| r.div_ceil(group_rows)).sum();
        let split = chunks > 1 && chunks <= 8 && groups_in_all < 2 * sms;
        let warps = if split { chunks.max(4) } else { 4 };
        let slot_row = if chunks == 1 { row_bytes } else { chunk_bytes };
        let fit = (SLOT_BYTES / (group_rows * slot_row)).max(1);
        let row_groups = if chunks > 1 { 1 } else { fit.min((groups_in_all / (sms * warps)).max(1)) };
        let units: usize = rows.iter().map(|&r| r.div_ceil(group_rows * row_groups)).sum();
        let tile = t.next_power_of_two();
        let slot_bytes = row_groups * group_rows * slot_row;
        let sums = if split { warps * 32 * tile * 4 } else { 0 };
        let shared_of =
            |warps: usize| SLOTS * warps * slot_bytes + tile * groups / 2 * PAIR_BYTES + sums + warps * SLOTS * 8;
        // A smaller card, or many wide rows: fewer warps before none.
        let warps = if split {
            Some(warps)
        } else {
            [4, 2, 1].into_iter().find(|&w| shared_of(w) <= shared_limit.min(BLOCK_BYTES.max(shared_of(1))))
        }?;
        let shared_bytes = shared_of(warps);
        if shared_bytes > shared_limit {
            return None;
        }
        let a_block = if split { 1 } else { warps };
        // Two blocks a multiprocessor where there is work for them many times over, as in the output head.
        let most = if units > 32 * sms * a_block && 2 * shared_bytes + 2048 <= shared_limit { 2 * sms } else { sms };
        Some(Self {
            tile,
            warps,
            blocks: units.div_ceil(a_block).min(most),
            row_groups,
            split,
            slot_bytes,
            shared_bytes,
        })
    }
}

fn ring(
    stream: &Stream,
    kernels: &Kernels,
    format: &Format,
    t: usize,
    q8: Q8Rows<'_>,
    products: &[Product<'_>],
    plan: RingPlan,
) -> Result<(), CudaError> {
    let groups = q8.cols / GROUP;
    let rows_a_unit = (32 >> partials(groups)) * plan.row_groups;
    let mut args = RingArgs::zeroed();
    for (i, product) in products.iter().enumerate() {
        args.w[i] = product.matrix.bytes.address();
        args.out[i] = product.out.address();
        args.rows[i] = product.matrix.rows as i32;
        args.first[i + 1] = args.first[i] + product.matrix.rows.div_ceil(rows_a_unit) as i32;
        args.row_bytes = product.matrix.row_bytes() as i32;
    }
    (args.q, args.d) = (q8.q.address(), q8.d.address());
    args.matrices = products.len() as i32;
    args.t = t as i32;
    args.groups = groups as i32;
    args.partials = partials(groups) as i32;
    args.row_groups = plan.row_groups as i32;
    args.split = i32::from(plan.split);
    args.slot_bytes = plan.slot_bytes as i32;
    let function = kernels.get("matvec", &format!("matvec_ring_{}_r{}", format_symbol(format), plan.tile))?;
    let grid = Grid::of(plan.blocks as u32, 32 * plan.warps as u32).shared(plan.shared_bytes as u32);
    // SAFETY: sizes and alignment were checked by `matvec` and `RingPlan`; `args` is the kernel's one parameter.
    unsafe { stream.launch(&function, grid, Args::new().value(args)) }
}

fn any(stream: &Stream, kernels: &Kernels, t: usize, q8: Q8Rows<'_>, product: &Product<'_>) -> Result<(), CudaError> {
    let Product { matrix, out } = product;
    let groups = q8.cols / GROUP;
    let args = AnyArgs {
        w: matrix.bytes.address(),
        out: out.address(),
        q: q8.q.address(),
        d: q8.d.address(),
        rows: matrix.rows as i32,
        t: t as i32,
        groups: groups as i32,
        row_bytes: matrix.row_bytes() as i32,
        partials: partials(groups) as i32,
        _pad: 0,
    };
    let function = kernels.get("matvec", &format!("matvec_any_{}", format_symbol(matrix.format)))?;
    let rows_a_block = 4 * (32 >> partials(groups));
    let grid = Grid::of(matrix.rows.div_ceil(rows_a_block) as u32, 128);
    // SAFETY: sizes and alignment were checked by `matvec`; `args` is the kernel's one parameter.
    unsafe { stream.launch(&function, grid, Args::new().value(args)) }
}

fn float(stream: &Stream, kernels: &Kernels, input: Input<'_>, product: &Product<'_>) -> Result<(), CudaError> {
    let Product { matrix, out } = product;
    let x = input.checked_floats(OP, matrix.cols)?;
    let symbol = format!("matvec_float_{}_r{}", format_symbol(matrix.format), input.rows.next_power_of_two());
    let chunks = matrix.cols.div_ceil(CHUNK_GROUPS * GROUP);
    let blocks = if (2..=4).contains(&chunks) { matrix.rows } else { matrix.rows.div_ceil(4) };
    let args = Args::new()
        .slice(matrix.bytes)
        .slice(*out)
        .slice(x)
        .value(matrix.rows as i32)
        .value(matrix.cols as i32)
        .value(input.rows as i32);
    // SAFETY: sizes and alignment were checked here and by `matvec`; the parameters are the kernel's.
    unsafe { stream.launch(&kernels.get("matvec", &symbol)?, Grid::of(blocks as u32, 128), args) }
}

#[cfg(test)]
mod tests {
    use cudafast_quant::format_by_name;

    use super::*;

    fn plan(format: &str, t: usize, cols: usize, rows: &[usize]) -> Option<RingPlan> {
        RingPlan::new(132, 227 << 10, format_by_name(format).unwrap(), t, cols, rows)
    }

    #[test]
    fn the_shapes_of_the_model_go_through_shared_memory_on_a_card_of_hopper() {
        for t in 1..=8 {
            for (format, cols, rows) in [
                ("Q8_0", 2560, &[10240, 6144][..]),
                ("Q8_0", 2560, &[248_320]),
                ("Q8_0", 6144, &[2560]),
                ("Q8_0", 10240, &[320]),
                ("Q8_0", 320, &[10240]),
                ("Q8_0", 640, &[2560]),
                ("Q8_0", 5120, &[2560]),
            ] {
                let plan = plan(format, t, cols, rows).unwrap();
                assert!(plan.blocks >= 80 && plan.warps >= 2, "{format} {cols} T={t}: {plan:?}");
            }
        }
    }

    #[test]
    fn what_bulk_copies_cannot_take_is_left_to_the_plain_kernel() {
        assert_eq!(plan("Q8_0", 1, 32, &[64]), None, "an odd count of groups");
        assert_eq!(plan("Q8_0", 1, 64, &[3]), None, "a last group of three rows of 68 bytes");
        assert_eq!(plan("IQ4_NL", 1, 2560, &[64]), None);
        assert!(plan("Q8_0", 1, 2560, &[2]).is_some(), "rows of 2720 bytes are whole sixteens");
    }

    #[test]
    fn partials_follow_the_columns_alone() {
        let p = |cols| 1 << partials(cols / GROUP);
        assert_eq!([32, 64, 128, 256, 320, 512, 640, 2560, 10240].map(p), [1, 1, 2, 4, 4, 8, 8, 8, 8]);
    }
}
