//! Inputs of the draft head's projection (`kernels/head.cu`, qwen4exp.md 9).

use cudafast_quant::GROUP;

use super::{Q8Rows, check};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Arguments of [`join`]. `C` streams of `H` channels, `W = C * H`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Join<'a> {
    /// The target's residual, or the head's own, `[T, W]`.
    pub(crate) residual: DeviceSlice<'a, f32>,
    /// Embeddings of the tokens after, `[T, H]`.
    pub(crate) embedding: DeviceSlice<'a, f32>,
    /// `[H]`.
    pub(crate) enorm: DeviceSlice<'a, f32>,
    /// `[W]`.
    pub(crate) hnorm: DeviceSlice<'a, f32>,
    /// `[T, C, 2H]`, the embedding half first.
    pub(crate) joined: DeviceSlice<'a, f32>,
    /// The same as int8, `T * C` rows, where 32 divides `H`.
    pub(crate) codes: Option<Q8Rows<'a>>,
    /// One mean square over all of a residual instead of one a stream.
    pub(crate) single: bool,
    /// `H`.
    pub(crate) hidden: usize,
    /// `C`.
    pub(crate) streams: usize,
    /// Of the norms.
    pub(crate) eps: f32,
}

/// Both norms, side by side.
pub(crate) fn join(stream: &Stream, kernels: &Kernels, of: Join<'_>) -> Result<(), CudaError> {
    const OP: &str = "head.join";
    check::multiple(OP, "embedding values", of.embedding.len(), of.hidden)?;
    let (rows, wide) = (of.embedding.len() / of.hidden, of.hidden * of.streams);
    check::within(OP, "rows", rows, 1..=65_535)?;
    check::within(OP, "streams", of.streams, 1..=64)?;
    check::len(OP, "residual values", of.residual.len(), rows * wide)?;
    check::len(OP, "enorm", of.enorm.len(), of.hidden)?;
    check::len(OP, "hnorm", of.hnorm.len(), wide)?;
    check::len(OP, "joined values", of.joined.len(), 2 * rows * wide)?;
    if let Some(codes) = of.codes {
        check::multiple(OP, "hidden channels", of.hidden, GROUP)?;
        check::len(OP, "columns of int8 rows", codes.cols, 2 * of.hidden)?;
        codes.check(OP, rows * of.streams)?;
    }
    let function = kernels.get("head", "head_join")?;
    let args = Args::new()
        .slice(of.residual)
        .slice(of.embedding)
        .slice(of.enorm)
        .slice(of.hnorm)
        .slice(of.joined)
        .optional(of.codes.map(|codes| codes.q))
        .optional(of.codes.map(|codes| codes.d))
        .value(of.hidden as i32)
        .value(i32::from(of.single))
        .value(of.eps);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe {
        stream.launch(&function, Grid { blocks: [of.streams as u32, rows as u32, 1], threads: 256, shared: 0 }, args)
    }
}
