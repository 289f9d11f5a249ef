//! Hyper-connections (`kernels/hyper.cu`, qwen4exp.md 2). `C` streams of `H` channels, `W = C * H`; f32 rows unless named.

use cudafast_quant::GROUP;

use super::{Q8Rows, check};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Channels of a stream that a block of `hyper_write` takes.
const CHANNELS: usize = 64;
/// Most streams.
const MAX_STREAMS: usize = 8;

/// Floats that [`write()`] leaves for its last block.
pub(crate) fn parts(rows: usize, hidden: usize, streams: usize) -> usize {
    rows * hidden.div_ceil(CHANNELS) * streams * (1 + streams)
}

/// Arguments of [`write()`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    /// `[T, W]`, in place.
    pub(crate) x: DeviceSlice<'a, f32>,
    /// Inject weights `[T, C]` and what is written `[T, H]`; `None` only norms.
    pub(crate) add: Option<(DeviceSlice<'a, f32>, DeviceSlice<'a, f32>)>,
    /// Gain `[W]` of the norm that reads next.
    pub(crate) gain: DeviceSlice<'a, f32>,
    /// Inject rows `[C, W]` of the mixer that reads next; the last has none.
    pub(crate) next_inject: Option<DeviceSlice<'a, f32>>,
    /// The normed rows as int8, where 32 divides `H`.
    pub(crate) codes: Option<Q8Rows<'a>>,
    /// Scratch of at least [`parts`].
    pub(crate) parts: DeviceSlice<'a, f32>,
    /// `[T]`, zeros at first; zeros again after.
    pub(crate) tickets: DeviceSlice<'a, u32>,
    /// `[T, C]`: one over the root mean square of each stream.
    pub(crate) rinv: DeviceSlice<'a, f32>,
    /// `[T, C]`: inject weights of the mixer that reads next, where `next_inject` is given.
    pub(crate) inj_next: DeviceSlice<'a, f32>,
    /// The normed rows as floats, `[T, W]`.
    pub(crate) normed: Option<DeviceSlice<'a, f32>>,
    /// `H`.
    pub(crate) hidden: usize,
    /// `C`.
    pub(crate) streams: usize,
    /// Under the root.
    pub(crate) eps: f32,
}

/// `X[s] += inj[s] * out`, then the norm that reads next, quantised, and its inject weights.
pub(crate) fn write(stream: &Stream, kernels: &Kernels, of: Write<'_>) -> Result<(), CudaError> {
    const OP: &str = "hyper.write";
    check::within(OP, "streams", of.streams, 1..=MAX_STREAMS)?;
    check::within(OP, "hidden channels", of.hidden, 1..=1 << 20)?;
    let wide = of.hidden * of.streams;
    check::multiple(OP, "residual values", of.x.len(), wide)?;
    let rows = of.x.len() / wide;
    check::within(OP, "rows", rows, 1..=65_535)?;
    if let Some((inj, out)) = of.add {
        check::len(OP, "inject weights", inj.len(), rows * of.streams)?;
        check::len(OP, "written rows", out.len(), rows * of.hidden)?;
    }
    check::len(OP, "gains", of.gain.len(), wide)?;
    if let Some(inject) = of.next_inject {
        check::len(OP, "inject matrix", inject.len(), of.streams * wide)?;
    }
    if let Some(codes) = of.codes {
        check::multiple(OP, "hidden channels", of.hidden, GROUP)?;
        check::len(OP, "columns of int8 rows", codes.cols, wide)?;
        codes.check(OP, rows)?;
    }
    check::least(OP, "parts", of.parts.len(), parts(rows, of.hidden, of.streams))?;
    check::least(OP, "tickets", of.tickets.len(), rows)?;
    check::len(OP, "inverse norms", of.rinv.len(), rows * of.streams)?;
    check::len(OP, "next inject weights", of.inj_next.len(), rows * of.streams)?;
    if let Some(normed) = of.normed {
        check::len(OP, "normed rows", normed.len(), rows * wide)?;
    }
    let function = kernels.get("hyper", "hyper_write")?;
    let blocks = [of.hidden.div_ceil(CHANNELS) as u32, rows as u32, 1];
    let grid = Grid { blocks, threads: (CHANNELS * of.streams) as u32, shared: 0 };
    let args = Args::new()
        .slice(of.x)
        .optional(of.add.map(|add| add.0))
        .optional(of.add.map(|add| add.1))
        .slice(of.gain)
        .optional(of.next_inject)
        .optional(of.codes.map(|codes| codes.q))
        .optional(of.codes.map(|codes| codes.d))
        .slice(of.parts)
        .slice(of.tickets)
        .slice(of.rinv)
        .slice(of.inj_next)
        .optional(of.normed)
        .value(of.hidden as i32)
        .value(of.streams as i32)
        .value(of.eps);
    // SAFETY: lengths were checked; the parameters are the kernel's; tickets are zero because only this kernel, which
    // leaves them so, and the caller's first fill write them.
    unsafe { stream.launch(&function, grid, args) }
}

/// `low = silu(low / C)` in place, and its codes. `low: [T, rank]`.
pub(crate) fn low(
    stream: &Stream,
    kernels: &Kernels,
    low: DeviceSlice<'_, f32>,
    codes: Option<Q8Rows<'_>>,
    streams: usize,
) -> Result<(), CudaError> {
    const OP: &str = "hyper.low";
    check::within(OP, "values", low.len(), 1..=1 << 30)?;
    if let Some(codes) = codes {
        check::multiple(OP, "values", low.len(), codes.cols)?;
        codes.check(OP, low.len() / codes.cols)?;
    }
    let function = kernels.get("hyper", "hyper_low")?;
    let args = Args::new()
        .slice(low)
        .optional(codes.map(|codes| codes.q))
        .optional(codes.map(|codes| codes.d))
        .value(low.len() as i32)
        .value(streams as i32);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, Grid::of(low.len().div_ceil(256) as u32, 256), args) }
}

/// `inject = 2 sigmoid(inject / C)` in place, `[T, C]`: for an inject matrix that ran as a product.
pub(crate) fn inject(
    stream: &Stream,
    kernels: &Kernels,
    inject: DeviceSlice<'_, f32>,
    streams: usize,
) -> Result<(), CudaError> {
    check::within("hyper.inject", "values", inject.len(), 1..=1 << 30)?;
    let function = kernels.get("hyper", "hyper_inject")?;
    let args = Args::new().slice(inject).value(inject.len() as i32).value(streams as i32);
    // SAFETY: the length is passed; the parameters are the kernel's.
    unsafe { stream.launch(&function, Grid::of(inject.len().div_ceil(256) as u32, 256), args) }
}

/// Arguments of [`mix`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix<'a> {
    /// The up projection `[T, W]`, before its sigmoid.
    pub(crate) gate: DeviceSlice<'a, f32>,
    /// `[T, W]`.
    pub(crate) x: DeviceSlice<'a, f32>,
    /// `[T, C]`, of [`write()`].
    pub(crate) rinv: DeviceSlice<'a, f32>,
    /// `[W]`.
    pub(crate) gain: DeviceSlice<'a, f32>,
    /// `[T, H]`.
    pub(crate) mixed: DeviceSlice<'a, f32>,
    /// Its codes, where 32 divides `H`.
    pub(crate) codes: Option<Q8Rows<'a>>,
    /// `H`.
    pub(crate) hidden: usize,
    /// `C`.
    pub(crate) streams: usize,
}

/// The mean over the streams of the gated, normed residual.
pub(crate) fn mix(stream: &Stream, kernels: &Kernels, of: Mix<'_>) -> Result<(), CudaError> {
    const OP: &str = "hyper.mix";
    check::multiple(OP, "mixed values", of.mixed.len(), of.hidden)?;
    let (rows, wide) = (of.mixed.len() / of.hidden, of.hidden * of.streams);
    check::within(OP, "rows", rows, 1..=65_535)?;
    check::len(OP, "gates", of.gate.len(), rows * wide)?;
    check::len(OP, "residual values", of.x.len(), rows * wide)?;
    check::len(OP, "inverse norms", of.rinv.len(), rows * of.streams)?;
    check::len(OP, "gains", of.gain.len(), wide)?;
    if let Some(codes) = of.codes {
        check::len(OP, "columns of int8 rows", codes.cols, of.hidden)?;
        codes.check(OP, rows)?;
    }
    let function = kernels.get("hyper", "hyper_mix")?;
    let grid = Grid { blocks: [of.hidden.div_ceil(128) as u32, rows as u32, 1], threads: 128, shared: 0 };
    let args = Args::new()
        .slice(of.gate)
        .slice(of.x)
        .slice(of.rinv)
        .slice(of.gain)
        .slice(of.mixed)
        .optional(of.codes.map(|codes| codes.q))
        .optional(of.codes.map(|codes| codes.d))
        .value(of.hidden as i32)
        .value(of.streams as i32);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, grid, args) }
}
