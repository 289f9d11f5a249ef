//! The routed experts of a few rows (`kernels/moe.cu`). Any count of rows: more than eight run in eights.

use bytemuck::{Pod, Zeroable};
use cudafast_quant::GROUP;

use super::matvec::{CHUNK_GROUPS, PAIR_BYTES, SLOTS, partials};
use super::{DeviceExperts, Input, MAX_ROWS, Q8Rows, check, format_symbol, quantise_rows};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Warps of a block of the ring kernels.
const WARPS: usize = 8;
/// Bytes of a slot of `moe_down`: enough in flight to fill the memory's pipe with eight warps (h200-probes.md D).
const DOWN_SLOT_BYTES: usize = 4096;
const UP_RING: [&str; 4] = ["Q4_K", "Q5_K", "Q8_0", "PQ2_0"];
const DOWN_RING: [&str; 2] = ["Q5_1", "Q8_0"];

/// Arguments of [`swiglu`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct SwigluArgs<'a> {
    /// `[T, FF]`.
    pub(crate) gate: DeviceSlice<'a, f32>,
    /// `[T, FF]`.
    pub(crate) up: DeviceSlice<'a, f32>,
    /// `[T, FF]`: `silu(gate) * up`.
    pub(crate) mid: DeviceSlice<'a, f32>,
    /// The same as int8 rows.
    pub(crate) q8: Option<Q8Rows<'a>>,
}

/// `mid = silu(gate) * up`, of the shared expert.
pub(crate) fn swiglu(stream: &Stream, kernels: &Kernels, of: SwigluArgs<'_>) -> Result<(), CudaError> {
    const OP: &str = "swiglu";
    check::multiple(OP, "values", of.mid.len(), GROUP)?;
    check::len(OP, "gate", of.gate.len(), of.mid.len())?;
    check::len(OP, "up", of.up.len(), of.mid.len())?;
    if let Some(q8) = of.q8 {
        check::multiple(OP, "values", of.mid.len(), q8.cols)?;
        q8.check(OP, of.mid.len() / q8.cols)?;
    }
    let groups = of.mid.len() / GROUP;
    let args = Args::new()
        .slice(of.gate)
        .slice(of.up)
        .slice(of.mid)
        .optional(of.q8.map(|q8| q8.q))
        .optional(of.q8.map(|q8| q8.d))
        .value(groups as i64);
    let grid = Grid::of(groups.div_ceil(8).min(1 << 16) as u32, 256);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&kernels.get("moe", "moe_swiglu")?, grid, args) }
}

/// Arguments of [`up`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpArgs<'a> {
    /// `T` rows. Int8 rows for block formats, f32 for plain ones.
    pub(crate) x: Input<'a>,
    /// `[T, K]`, experts in rank order.
    pub(crate) ids: DeviceSlice<'a, i32>,
    /// `[E][FF, H]`.
    pub(crate) gate: DeviceExperts<'a>,
    /// `[E][FF, H]`.
    pub(crate) up: DeviceExperts<'a>,
    /// `[T, K, FF]`: `silu(gate) * up`.
    pub(crate) mid: DeviceSlice<'a, f32>,
    /// `K`.
    pub(crate) used: usize,
}

/// Arguments of [`down`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct DownArgs<'a> {
    /// `T * K` rows of FF: the f32 rows are read; the int8 rows are scratch, written where a kernel needs them.
    pub(crate) mid: Input<'a>,
    /// `[T, K]`, experts in rank order.
    pub(crate) ids: DeviceSlice<'a, i32>,
    /// `[T, K]`.
    pub(crate) weights: DeviceSlice<'a, f32>,
    /// `[E][H, FF]`.
    pub(crate) down: DeviceExperts<'a>,
    /// `[T, H]`: the shared expert's output.
    pub(crate) shared: DeviceSlice<'a, f32>,
    /// `[T]`: its gate before the sigmoid.
    pub(crate) shared_gate: DeviceSlice<'a, f32>,
    /// `[T, H]`.
    pub(crate) out: DeviceSlice<'a, f32>,
    /// `K`.
    pub(crate) used: usize,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawUp {
    gate: u64,
    up: u64,
    ids: u64,
    q: u64,
    d: u64,
    mid: u64,
    t: i32,
    used: i32,
    rows: i32,
    groups: i32,
    row_bytes: i32,
    partials: i32,
    slot_bytes: i32,
    _pad: i32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawDown {
    down: u64,
    ids: u64,
    weights: u64,
    mid: u64,
    shared: u64,
    shared_gate: u64,
    out: u64,
    t: i32,
    used: i32,
    rows: i32,
    groups: i32,
    row_bytes: i32,
    partials: i32,
    ranks: i32,
    slot_bytes: i32,
    early: i32,
    _pad: i32,
}

/// Whether a slot of `rows` consecutive rows can come by bulk copies (whole sixteens, from whole sixteens).
fn whole(format: &str, formats: &[&str], experts: &DeviceExperts<'_>, rows: usize) -> bool {
    let row_bytes = experts.stacked().row_bytes();
    let groups = experts.cols / GROUP;
    formats.contains(&format)
        && groups <= CHUNK_GROUPS
        && groups.is_multiple_of(2)
        && rows > 0
        && experts.rows.is_multiple_of(rows)
        && (rows * row_bytes).is_multiple_of(16)
        && row_bytes.is_multiple_of(4)
}

/// `mid = silu(gate x) * (up x)` for the experts of every row.
pub(crate) fn up(stream: &Stream, kernels: &Kernels, of: UpArgs<'_>) -> Result<(), CudaError> {
    queue_up(stream, kernels, of).map(|_| ())
}

/// `out = sum of the experts' down products by weight, in rank order, + sigmoid(shared_gate) * shared`.
pub(crate) fn down(stream: &Stream, kernels: &Kernels, of: DownArgs<'_>) -> Result<(), CudaError> {
    queue_down(stream, kernels, of, false)
}

/// [`up`] and then [`down`]. Where the last launch of the first lets its follower start only behind its own wait, the
/// second reads the ids, and with them its first weights, while the first still runs.
pub(crate) fn experts(stream: &Stream, kernels: &Kernels, up: UpArgs<'_>, down: DownArgs<'_>) -> Result<(), CudaError> {
    let waited = queue_up(stream, kernels, up)?;
    queue_down(stream, kernels, down, waited && up.ids.address() == down.ids.address())
}

/// Whether all that ran before this is done once the next launch starts.
fn queue_up(stream: &Stream, kernels: &Kernels, of: UpArgs<'_>) -> Result<bool, CudaError> {
    const OP: &str = "moe.up";
    let UpArgs { x, ids, gate, up, mid, used } = of;
    check::within(OP, "experts of a row", used, 1..=64)?;
    check::within(OP, "rows", x.rows, 1..=1 << 20)?;
    gate.stacked().check(OP)?;
    up.stacked().check(OP)?;
    for (what, found, expected) in [
        ("rows of up", up.rows, gate.rows),
        ("columns of up", up.cols, gate.cols),
        ("experts of up", up.experts, gate.experts),
        ("ids", ids.len(), x.rows * used),
        ("mid", mid.len(), x.rows * used * gate.rows),
    ] {
        check::len(OP, what, found, expected)?;
    }
    if x.rows > MAX_ROWS {
        let mut waited = false;
        for first in (0..x.rows).step_by(MAX_ROWS) {
            let rows = MAX_ROWS.min(x.rows - first);
            let (ids, mid) =
                (ids.part(first * used, rows * used), mid.part(first * used * gate.rows, rows * used * gate.rows));
            waited = queue_up(stream, kernels, UpArgs { x: x.part(first, rows), ids, mid, ..of })?;
        }
        return Ok(waited);
    }
    let needs_q8 = !(gate.stacked().is_plain() && up.stacked().is_plain());
    let q8 = if needs_q8 { Some(x.checked_q8(OP, gate.cols)?) } else { None };
    let groups = gate.cols / GROUP;
    let mut raw = RawUp::zeroed();
    (raw.gate, raw.up, raw.ids, raw.mid) = (gate.bytes.address(), up.bytes.address(), ids.address(), mid.address());
    if let Some(q8) = q8 {
        (raw.q, raw.d) = (q8.q.address(), q8.d.address());
    }
    (raw.t, raw.used, raw.rows) = (x.rows as i32, used as i32, gate.rows as i32);
    let half_rows = 16 >> partials(groups.max(1));
    let ring = gate.format.ggml_id == up.format.ggml_id && whole(gate.format.name, &UP_RING, &gate, half_rows);
    let info = stream.context().info();
    if ring {
        (raw.groups, raw.partials) = (groups as i32, partials(groups) as i32);
        raw.row_bytes = gate.stacked().row_bytes() as i32;
        let slot = 2 * half_rows * gate.stacked().row_bytes();
        raw.slot_bytes = slot as i32;
        let shared = WARPS * SLOTS * (slot + 8) + x.rows * groups / 2 * PAIR_BYTES;
        if shared <= info.shared_bytes as usize {
            let units = x.rows * used * (gate.rows / half_rows);
            let grid = Grid::of(info.multiprocessors.min(units as u32), 32 * WARPS as u32).shared(shared as u32);
            let function = kernels.get("moe", &format!("moe_up_ring_{}", format_symbol(gate.format)))?;
            // SAFETY: sizes and alignment were checked above; `raw` is the kernel's one parameter.
            unsafe { stream.launch(&function, grid, Args::new().value(raw)) }?;
            return Ok(true);
        }
    }
    for (second, experts) in [(0_i32, gate), (1, up)] {
        raw.row_bytes = experts.stacked().row_bytes() as i32;
        let symbol = format_symbol(experts.format);
        let pairs = (x.rows * used) as u32;
        if experts.stacked().is_plain() {
            raw.groups = experts.cols as i32;
            let x = x.checked_floats(OP, experts.cols)?;
            let grid = Grid { blocks: [experts.rows.div_ceil(4) as u32, pairs, 1], threads: 128, shared: 0 };
            let function = kernels.get("moe", &format!("moe_up_float_{symbol}"))?;
            // SAFETY: sizes and alignment were checked above; the parameters are the kernel's.
            unsafe { stream.launch(&function, grid, Args::new().value(raw).slice(x).value(second)) }?;
        } else {
            (raw.groups, raw.partials) = (groups as i32, partials(groups) as i32);
            let rows_a_block = 4 * (32 >> partials(groups));
            let grid = Grid { blocks: [experts.rows.div_ceil(rows_a_block) as u32, pairs, 1], threads: 128, shared: 0 };
            let function = kernels.get("moe", &format!("moe_up_any_{symbol}"))?;
            // SAFETY: as above.
            unsafe { stream.launch(&function, grid, Args::new().value(raw).value(second)) }?;
        }
    }
    Ok(false)
}

/// `early`: the ids may be read before the launch before this is done.
fn queue_down(stream: &Stream, kernels: &Kernels, of: DownArgs<'_>, early: bool) -> Result<(), CudaError> {
    const OP: &str = "moe.down";
    let DownArgs { mid, ids, weights, down, shared, shared_gate, out, used } = of;
    check::within(OP, "experts of a row", used, 1..=64)?;
    check::multiple(OP, "rows of mid", mid.rows, used)?;
    let rows = mid.rows / used;
    down.stacked().check(OP)?;
    for (what, found, expected) in [
        ("ids", ids.len(), mid.rows),
        ("weights", weights.len(), mid.rows),
        ("shared", shared.len(), rows * down.rows),
        ("shared gate", shared_gate.len(), rows),
        ("output", out.len(), rows * down.rows),
    ] {
        check::len(OP, what, found, expected)?;
    }
    let floats = mid.checked_floats(OP, down.cols)?;
    if rows > MAX_ROWS {
        for first in (0..rows).step_by(MAX_ROWS) {
            let n = MAX_ROWS.min(rows - first);
            let part = DownArgs {
                mid: mid.part(first * used, n * used),
                ids: ids.part(first * used, n * used),
                weights: weights.part(first * used, n * used),
                shared: shared.part(first * down.rows, n * down.rows),
                shared_gate: shared_gate.part(first, n),
                out: out.part(first * down.rows, n * down.rows),
                ..of
            };
            queue_down(stream, kernels, part, early && first == 0)?;
        }
        return Ok(());
    }
    let groups = down.cols / GROUP;
    let mut raw = RawDown::zeroed();
    (raw.down, raw.ids, raw.weights) = (down.bytes.address(), ids.address(), weights.address());
    (raw.mid, raw.out) = (floats.address(), out.address());
    (raw.shared, raw.shared_gate) = (shared.address(), shared_gate.address());
    (raw.t, raw.used, raw.rows) = (rows as i32, used as i32, down.rows as i32);
    raw.row_bytes = down.stacked().row_bytes() as i32;
    let symbol = format_symbol(down.format);
    if down.stacked().is_plain() {
        raw.groups = down.cols as i32;
        let grid = Grid { blocks: [down.rows.div_ceil(4) as u32, rows as u32, 1], threads: 128, shared: 0 };
        let function = kernels.get("moe", &format!("moe_down_float_{symbol}"))?;
        // SAFETY: sizes and alignment were checked above; `raw` is the kernel's one parameter.
        return unsafe { stream.launch(&function, grid, Args::new().value(raw)) };
    }
    check::multiple(OP, "columns of down", down.cols, GROUP)?;
    (raw.groups, raw.partials) = (groups as i32, partials(groups) as i32);
    let group_rows = 32 >> partials(groups);
    if whole(down.format.name, &DOWN_RING, &down, group_rows) {
        let info = stream.context().info();
        let panel = group_rows * down.stacked().row_bytes();
        let ranks = (1..=used).rev().find(|r| used.is_multiple_of(*r) && r * panel <= DOWN_SLOT_BYTES).unwrap_or(1);
        let units = rows * (down.rows / group_rows);
        let blocks = (info.multiprocessors as usize).min(units);
        // A block's range touches at most so many rows of the input.
        let tokens = rows.min(units.div_ceil(blocks).div_ceil(down.rows / group_rows) + 1);
        let shared_bytes = WARPS * SLOTS * (ranks * panel + 8) + tokens * used * groups / 2 * PAIR_BYTES;
        if shared_bytes <= info.shared_bytes as usize {
            (raw.ranks, raw.slot_bytes, raw.early) = (ranks as i32, (ranks * panel) as i32, i32::from(early));
            let grid = Grid::of(blocks as u32, 32 * WARPS as u32).shared(shared_bytes as u32);
            let function = kernels.get("moe", &format!("moe_down_ring_{symbol}"))?;
            // SAFETY: as above.
            return unsafe { stream.launch(&function, grid, Args::new().value(raw)) };
        }
    }
    let Some(q8) = mid.q8 else {
        let expected = "scratch, for this format".into();
        return Err(CudaError::Argument { op: OP, what: "int8 rows of mid", found: "none".into(), expected });
    };
    quantise_rows(stream, kernels, floats, q8)?;
    let rows_a_block = 4 * group_rows;
    let grid = Grid { blocks: [down.rows.div_ceil(rows_a_block) as u32, rows as u32, 1], threads: 128, shared: 0 };
    let function = kernels.get("moe", &format!("moe_down_any_{symbol}"))?;
    // SAFETY: as above; `quantise_rows` checked the int8 rows.
    unsafe { stream.launch(&function, grid, Args::new().value(raw).slice(q8.q).slice(q8.d)) }
}
