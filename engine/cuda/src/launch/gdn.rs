//! Gated delta net, recurrent (`kernels/gdn.cu`, qwen4exp.md 4).

use cudafast_model::GdnParams;
use cudafast_quant::GROUP;

use super::{MAX_ROWS, Q8Rows, check};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Rows of a convolution ring.
pub(crate) const RING: usize = 16;
/// Head dim of the fast kernels.
pub(super) const FAST_DIM: usize = 128;
/// Widest head of the plain kernels: a thread a channel.
const MAX_DIM: usize = 256;
/// Most taps.
const MAX_TAPS: usize = 8;
/// Columns of 32 that a block of `gdn_step` takes. One spreads 48 heads over 192 blocks.
const COLUMN_GROUPS: usize = 1;

/// What both forms of the layer take. `channels = (2 nk + nv) dim`, `inner = nv dim`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer<'a> {
    /// Position, kept rows, parity (kernels/seq.cuh).
    pub(crate) at: DeviceSlice<'a, u32>,
    /// `attn_qkv x`, `[T, channels]`.
    pub(crate) u: DeviceSlice<'a, f32>,
    /// `attn_gate x`, `[T, inner]`.
    pub(crate) z: DeviceSlice<'a, f32>,
    /// `ssm_alpha x`, `[T, nv]`.
    pub(crate) alpha: DeviceSlice<'a, f32>,
    /// `ssm_beta x`, `[T, nv]`.
    pub(crate) beta: DeviceSlice<'a, f32>,
    /// Taps `[channels, kernel]`.
    pub(crate) conv: DeviceSlice<'a, f32>,
    /// `[nv]`.
    pub(crate) dt_bias: DeviceSlice<'a, f32>,
    /// `[nv]`.
    pub(crate) a: DeviceSlice<'a, f32>,
    /// Gain `[dim]`.
    pub(crate) norm: DeviceSlice<'a, f32>,
    /// Raw convolution inputs by position, `[16, channels]`.
    pub(crate) ring: DeviceSlice<'a, f32>,
    /// `S`, `[nv, dim, dim]`.
    pub(crate) s: DeviceSlice<'a, f32>,
    /// Outputs before the norm, `[T, inner]`.
    pub(crate) core: DeviceSlice<'a, f32>,
    /// Outputs, `[T, inner]`.
    pub(crate) gated: DeviceSlice<'a, f32>,
    /// Their codes, where 32 divides `dim`.
    pub(crate) codes: Option<Q8Rows<'a>>,
    /// Sizes.
    pub(crate) shape: &'a GdnParams,
    /// Of the output norm.
    pub(crate) eps: f32,
}

impl Layer<'_> {
    /// Checks the lengths and returns the rows.
    pub(super) fn check(&self, op: &'static str, most: usize) -> Result<usize, CudaError> {
        let shape = self.shape;
        let (channels, inner) = (shape.qkv_channels(), shape.inner());
        check::within(op, "head dim", shape.head_dim, 1..=MAX_DIM)?;
        check::within(op, "taps", shape.conv_kernel, 1..=MAX_TAPS)?;
        check::within(op, "value heads", shape.value_heads, shape.key_heads.max(1)..=65_535)?;
        check::multiple(op, "qkv values", self.u.len(), channels)?;
        let rows = self.u.len() / channels;
        check::within(op, "rows", rows, 1..=most)?;
        check::len(op, "position words", self.at.len(), 4)?;
        check::len(op, "gate values", self.z.len(), rows * inner)?;
        check::len(op, "alpha", self.alpha.len(), rows * shape.value_heads)?;
        check::len(op, "beta", self.beta.len(), rows * shape.value_heads)?;
        check::len(op, "taps", self.conv.len(), channels * shape.conv_kernel)?;
        check::len(op, "dt_bias", self.dt_bias.len(), shape.value_heads)?;
        check::len(op, "a", self.a.len(), shape.value_heads)?;
        check::len(op, "norm", self.norm.len(), shape.head_dim)?;
        check::len(op, "ring", self.ring.len(), RING * channels)?;
        check::len(op, "state", self.s.len(), inner * shape.head_dim)?;
        check::len(op, "outputs before the norm", self.core.len(), rows * inner)?;
        check::len(op, "outputs", self.gated.len(), rows * inner)?;
        for (what, address) in [("state", self.s.address()), ("outputs before the norm", self.core.address())] {
            check::aligned(op, what, address, 16)?;
        }
        if let Some(codes) = self.codes {
            check::multiple(op, "head dim", shape.head_dim, GROUP)?;
            check::len(op, "columns of int8 rows", codes.cols, inner)?;
            codes.check(op, rows)?;
        }
        Ok(rows)
    }

    /// Rows before the state into `y: [T, channels]`, log decay and rate `[T, nv]`.
    pub(super) fn rows_before(
        &self,
        stream: &Stream,
        kernels: &Kernels,
        y: DeviceSlice<'_, f32>,
        g: DeviceSlice<'_, f32>,
        rate: DeviceSlice<'_, f32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let shape = self.shape;
        let function = kernels.get("gdn", "gdn_rows")?;
        let blocks = [(2 * shape.key_heads + shape.value_heads) as u32, rows as u32, 1];
        let args = Args::new()
            .slice(self.u)
            .slice(self.alpha)
            .slice(self.beta)
            .slice(self.conv)
            .slice(self.dt_bias)
            .slice(self.a)
            .slice(self.ring)
            .slice(self.at)
            .slice(y)
            .slice(g)
            .slice(rate)
            .value(shape.key_heads as i32)
            .value(shape.value_heads as i32)
            .value(shape.head_dim as i32)
            .value(shape.conv_kernel as i32);
        // SAFETY: lengths were checked by `check` and by who cut the scratch; the parameters are the kernel's.
        unsafe { stream.launch(&function, Grid { blocks, threads: 128, shared: 0 }, args) }
    }

    /// Keeps the last rows of `u` in the ring.
    pub(super) fn keep_inputs(&self, stream: &Stream, kernels: &Kernels, rows: usize) -> Result<(), CudaError> {
        let channels = self.shape.qkv_channels();
        let function = kernels.get("gdn", "gdn_ring")?;
        let blocks = [channels.div_ceil(256) as u32, rows.min(RING) as u32, 1];
        let args = Args::new().slice(self.u).slice(self.ring).slice(self.at).value(rows as i32).value(channels as i32);
        // SAFETY: as above.
        unsafe { stream.launch(&function, Grid { blocks, threads: 256, shared: 0 }, args) }
    }

    /// One row after the other on `work`; logged where a log is given.
    pub(super) fn plain(
        &self,
        stream: &Stream,
        kernels: &Kernels,
        rows_before: [DeviceSlice<'_, f32>; 3],
        work: DeviceSlice<'_, f32>,
        log: Option<&Log<'_>>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let shape = self.shape;
        let [y, g, rate] = rows_before;
        let function = kernels.get("gdn", "gdn_plain")?;
        let threads = shape.head_dim.next_multiple_of(32) as u32;
        let grid = Grid::of(shape.value_heads as u32, threads).shared(8 * shape.head_dim as u32);
        let args = Args::new()
            .slice(y)
            .slice(g)
            .slice(rate)
            .slice(work)
            .optional(log.map(|log| log.k))
            .optional(log.map(|log| log.delta))
            .optional(log.map(|log| log.decay))
            .slice(self.at)
            .slice(self.core)
            .value(rows as i32)
            .value(shape.key_heads as i32)
            .value(shape.value_heads as i32)
            .value(shape.head_dim as i32);
        // SAFETY: as above.
        unsafe { stream.launch(&function, grid, args) }
    }

    /// Norm and gate of what stands in `core`.
    pub(super) fn finish(&self, stream: &Stream, kernels: &Kernels, rows: usize) -> Result<(), CudaError> {
        let heads = rows * self.shape.value_heads;
        let function = kernels.get("gdn", "gdn_finish")?;
        let args = Args::new()
            .slice(self.core)
            .slice(self.z)
            .slice(self.norm)
            .slice(self.gated)
            .optional(self.codes.map(|codes| codes.q))
            .optional(self.codes.map(|codes| codes.d))
            .value(heads as i32)
            .value(self.shape.head_dim as i32)
            .value(self.eps);
        // SAFETY: as above.
        unsafe { stream.launch(&function, Grid::of(heads.div_ceil(4) as u32, 128), args) }
    }
}

/// Rows of two rounds, a half a parity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log<'a> {
    /// `[2, 8, nk, dim]`.
    pub(crate) k: DeviceSlice<'a, f32>,
    /// `[2, 8, nv, dim]`.
    pub(crate) delta: DeviceSlice<'a, f32>,
    /// `[2, 8, nv]`.
    pub(crate) decay: DeviceSlice<'a, f32>,
}

impl Log<'_> {
    fn check(&self, op: &'static str, shape: &GdnParams) -> Result<(), CudaError> {
        check::len(op, "logged keys", self.k.len(), 2 * MAX_ROWS * shape.key_heads * shape.head_dim)?;
        check::len(op, "logged updates", self.delta.len(), 2 * MAX_ROWS * shape.inner())?;
        check::len(op, "logged decays", self.decay.len(), 2 * MAX_ROWS * shape.value_heads)?;
        check::aligned(op, "logged keys", self.k.address(), 16)?;
        check::aligned(op, "logged updates", self.delta.address(), 16)
    }
}

/// Floats of scratch of [`step`]: none where the fast kernel runs.
pub(crate) fn scratch(rows: usize, shape: &GdnParams) -> usize {
    if shape.head_dim == FAST_DIM { 0 } else { rows_floats(rows, shape) + shape.inner() * shape.head_dim }
}

pub(super) fn rows_floats(rows: usize, shape: &GdnParams) -> usize {
    rows * (shape.qkv_channels() + 2 * shape.value_heads)
}

/// Cuts `y`, log decay and rate off the front of a scratch.
pub(super) fn cut_rows<'a>(scratch: DeviceSlice<'a, f32>, rows: usize, shape: &GdnParams) -> [DeviceSlice<'a, f32>; 3] {
    let (y, gate) = (rows * shape.qkv_channels(), rows * shape.value_heads);
    [scratch.part(0, y), scratch.part(y, gate), scratch.part(y + gate, gate)]
}

/// The rows of a round, at most [`MAX_ROWS`]: folds what was kept of the last one, runs, logs. `tickets: [nv]`, zeros at first
/// and again after.
pub(crate) fn step(
    stream: &Stream,
    kernels: &Kernels,
    of: Layer<'_>,
    log: Log<'_>,
    scratch: DeviceSlice<'_, f32>,
    tickets: DeviceSlice<'_, u32>,
) -> Result<(), CudaError> {
    const OP: &str = "gdn.step";
    let rows = of.check(OP, MAX_ROWS)?;
    let shape = of.shape;
    log.check(OP, shape)?;
    check::least(OP, "scratch", scratch.len(), self::scratch(rows, shape))?;
    check::least(OP, "tickets", tickets.len(), shape.value_heads)?;
    if shape.head_dim != FAST_DIM {
        let work = scratch.part(rows_floats(rows, shape), of.s.len());
        // First the copy, then S itself: both start from S before the fold.
        settle(stream, kernels, of.at, of.s, log, work, shape)?;
        settle(stream, kernels, of.at, of.s, log, of.s, shape)?;
        let before = cut_rows(scratch, rows, shape);
        let [y, g, rate] = before;
        of.rows_before(stream, kernels, y, g, rate, rows)?;
        of.keep_inputs(stream, kernels, rows)?;
        of.plain(stream, kernels, before, work, Some(&log), rows)?;
        return of.finish(stream, kernels, rows);
    }
    let function = kernels.get("gdn", "gdn_step")?;
    let blocks = [(FAST_DIM / 32 / COLUMN_GROUPS) as u32, shape.value_heads as u32, 1];
    let args = Args::new()
        .slice(of.u)
        .slice(of.z)
        .slice(of.alpha)
        .slice(of.beta)
        .slice(of.conv)
        .slice(of.dt_bias)
        .slice(of.a)
        .slice(of.norm)
        .slice(of.ring)
        .slice(of.s)
        .slice(log.k)
        .slice(log.delta)
        .slice(log.decay)
        .slice(of.at)
        .slice(of.core)
        .slice(of.gated)
        .optional(of.codes.map(|codes| codes.q))
        .optional(of.codes.map(|codes| codes.d))
        .slice(tickets)
        .value(rows as i32)
        .value(shape.key_heads as i32)
        .value(shape.value_heads as i32)
        .value(shape.conv_kernel as i32)
        .value(of.eps);
    // SAFETY: lengths and alignment were checked; the parameters are the kernel's; the kernel bounds the kept rows it reads.
    unsafe { stream.launch(&function, Grid { blocks, threads: 256 * COLUMN_GROUPS as u32, shared: 0 }, args) }
}

/// `settled = S` with the kept rows of the last round folded in; `settled` may be `S`. Kept rows are to be set to 0 behind it.
pub(crate) fn settle(
    stream: &Stream,
    kernels: &Kernels,
    at: DeviceSlice<'_, u32>,
    s: DeviceSlice<'_, f32>,
    log: Log<'_>,
    settled: DeviceSlice<'_, f32>,
    shape: &GdnParams,
) -> Result<(), CudaError> {
    const OP: &str = "gdn.settle";
    log.check(OP, shape)?;
    check::len(OP, "position words", at.len(), 4)?;
    check::len(OP, "state", s.len(), shape.inner() * shape.head_dim)?;
    check::len(OP, "settled state", settled.len(), s.len())?;
    check::within(OP, "value heads", shape.value_heads, 1..=65_535)?;
    let function = kernels.get("gdn", "gdn_settle")?;
    let blocks = [shape.head_dim as u32, shape.value_heads as u32, 1];
    let args = Args::new()
        .slice(s)
        .slice(log.k)
        .slice(log.delta)
        .slice(log.decay)
        .slice(at)
        .slice(settled)
        .value(shape.key_heads as i32)
        .value(shape.value_heads as i32)
        .value(shape.head_dim as i32);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, Grid { blocks, threads: 128, shared: 0 }, args) }
}
