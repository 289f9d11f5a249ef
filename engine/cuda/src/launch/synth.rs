//! Blocks from a counter (`kernels/synth.cu`).

use bytemuck::{Pod, Zeroable};
use cudafast_quant::{Format, synth::Law};

use super::{check, format_symbol};
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// What [`synth`] makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Synth<'a> {
    /// Number format.
    pub(crate) format: &'static Format,
    /// Of the tensor ([`cudafast_quant::synth::tensor_key`]).
    pub(crate) key: u64,
    /// How large the values are.
    pub(crate) law: Law,
    /// Number of the first block in its tensor.
    pub(crate) first_block: u64,
    /// Whole blocks.
    pub(crate) out: DeviceSlice<'a, u8>,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SynthArgs {
    out: u64,
    key: u64,
    centre: i64,
    spread: u64,
    first_block: u64,
    blocks: u64,
}

/// The bytes of [`cudafast_quant::synth::fill`].
pub(crate) fn synth(stream: &Stream, kernels: &Kernels, of: Synth<'_>) -> Result<(), CudaError> {
    const OP: &str = "synth";
    let blocks = of.out.len() / of.format.block_bytes;
    check::multiple(OP, "bytes", of.out.len(), of.format.block_bytes)?;
    check::aligned(OP, "output", of.out.address(), 4)?;
    let args = SynthArgs {
        out: of.out.address(),
        key: of.key,
        centre: of.law.centre,
        spread: of.law.spread,
        first_block: of.first_block,
        blocks: blocks as u64,
    };
    let function = kernels.get("synth", &format!("synth_{}", format_symbol(of.format)))?;
    let grid = Grid::of(blocks.div_ceil(256).min(1 << 16) as u32, 256);
    // SAFETY: `out` holds `blocks` blocks; `args` is the kernel's one parameter.
    unsafe { stream.launch(&function, grid, Args::new().value(args)) }
}
