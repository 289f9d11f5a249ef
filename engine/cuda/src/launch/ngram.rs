//! Hashed n-gram embedding (`kernels/ngram.cu`, qwen4exp.md 6). `C` streams of `H` channels, `W = C * H`.

use cudafast_model::NgramParams;

use super::check;
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Rows of the ring of normed rows.
pub(crate) const RING: usize = 16;

/// What [`ids`] reads: multipliers, head sizes, head offsets.
pub(crate) fn params(shape: &NgramParams) -> Vec<u64> {
    [&shape.multipliers[..], &shape.head_sizes, &shape.head_offsets].concat()
}

/// Table rows of each token's n-grams, `ids: [T, heads]`. `window: [ngram - 1 + T]`, oldest first, `u32::MAX` before the start;
/// `params` of [`params`].
pub(crate) fn ids(
    stream: &Stream,
    kernels: &Kernels,
    window: DeviceSlice<'_, u32>,
    params: DeviceSlice<'_, u64>,
    ids: DeviceSlice<'_, u64>,
    shape: &NgramParams,
) -> Result<(), CudaError> {
    const OP: &str = "ngram.ids";
    let heads = shape.heads();
    check::within(OP, "heads", heads, 1..=1024)?;
    check::multiple(OP, "ids", ids.len(), heads)?;
    let rows = ids.len() / heads;
    check::len(OP, "window", window.len(), shape.ngram - 1 + rows)?;
    check::len(OP, "params", params.len(), shape.ngram + 2 * heads)?;
    let function = kernels.get("ngram", "ngram_ids")?;
    let args = Args::new()
        .slice(window)
        .slice(params)
        .slice(ids)
        .value(shape.ngram as i32)
        .value(heads as i32)
        .value(shape.eos);
    // SAFETY: lengths were checked; the parameters are the kernel's; head sizes are primes, so nothing is divided by zero.
    unsafe { stream.launch(&function, Grid::of(rows as u32, heads.next_multiple_of(32) as u32), args) }
}

/// Arguments of [`inject`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inject<'a> {
    /// Position words (kernels/seq.cuh).
    pub(crate) at: DeviceSlice<'a, u32>,
    /// `[T, W]`, in place.
    pub(crate) x: DeviceSlice<'a, f32>,
    /// `ple_key e`, `[T, W]`.
    pub(crate) key: DeviceSlice<'a, f32>,
    /// `ple_value e`, `[T, H]`.
    pub(crate) value: DeviceSlice<'a, f32>,
    /// `[W]`.
    pub(crate) norm_key: DeviceSlice<'a, f32>,
    /// `[W]`.
    pub(crate) norm_query: DeviceSlice<'a, f32>,
    /// `[W]`.
    pub(crate) norm_conv: DeviceSlice<'a, f32>,
    /// Taps `[W, kernel]`.
    pub(crate) conv: DeviceSlice<'a, f32>,
    /// Normed rows by position, `[16, W]`.
    pub(crate) ring: DeviceSlice<'a, f32>,
    /// At least `2 * T * W`.
    pub(crate) scratch: DeviceSlice<'a, f32>,
    /// `H`.
    pub(crate) hidden: usize,
    /// `C`.
    pub(crate) streams: usize,
    /// Taps and dilation.
    pub(crate) shape: &'a NgramParams,
    /// Of the norms.
    pub(crate) eps: f32,
}

/// `X += gated + silu(conv(gated, normed))`, any number of rows; the ring keeps the last.
pub(crate) fn inject(stream: &Stream, kernels: &Kernels, of: Inject<'_>) -> Result<(), CudaError> {
    const OP: &str = "ngram.inject";
    let (wide, kernel, dilation) = (of.hidden * of.streams, of.shape.conv_kernel, of.shape.ngram);
    check::within(OP, "streams", of.streams, 1..=64)?;
    check::multiple(OP, "residual values", of.x.len(), wide)?;
    let rows = of.x.len() / wide;
    check::within(OP, "rows", rows, 1..=65_535)?;
    check::within(OP, "rows of history", of.shape.conv_history(), 0..=RING - 7)?;
    check::len(OP, "position words", of.at.len(), 4)?;
    check::len(OP, "keys", of.key.len(), rows * wide)?;
    check::len(OP, "values", of.value.len(), rows * of.hidden)?;
    for (what, gain) in [("norm_key", of.norm_key), ("norm_query", of.norm_query), ("norm_conv", of.norm_conv)] {
        check::len(OP, what, gain.len(), wide)?;
    }
    check::len(OP, "taps", of.conv.len(), wide * kernel)?;
    check::len(OP, "ring", of.ring.len(), RING * wide)?;
    check::least(OP, "scratch", of.scratch.len(), 2 * rows * wide)?;
    let (gated, normed) = (of.scratch.part(0, rows * wide), of.scratch.part(rows * wide, rows * wide));
    let function = kernels.get("ngram", "ngram_gate")?;
    let args = Args::new()
        .slice(of.x)
        .slice(of.key)
        .slice(of.value)
        .slice(of.norm_key)
        .slice(of.norm_query)
        .slice(of.norm_conv)
        .slice(gated)
        .slice(normed)
        .value(of.hidden as i32)
        .value(of.eps);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe {
        stream.launch(&function, Grid { blocks: [of.streams as u32, rows as u32, 1], threads: 256, shared: 0 }, args)
    }?;
    let grid = |rows: usize| Grid { blocks: [wide.div_ceil(256) as u32, rows as u32, 1], threads: 256, shared: 0 };
    let function = kernels.get("ngram", "ngram_mix")?;
    let args = Args::new()
        .slice(of.x)
        .slice(gated)
        .slice(normed)
        .slice(of.ring)
        .slice(of.conv)
        .slice(of.at)
        .value(wide as i32)
        .value(kernel as i32)
        .value(dilation as i32);
    // SAFETY: as above.
    unsafe { stream.launch(&function, grid(rows), args) }?;
    let function = kernels.get("ngram", "ngram_ring")?;
    let args = Args::new().slice(normed).slice(of.ring).slice(of.at).value(rows as i32).value(wide as i32);
    // SAFETY: as above.
    unsafe { stream.launch(&function, grid(rows.min(RING)), args) }
}
