//! Routing (`kernels/router.cu`, qwen4exp.md 7).

use super::check;
use crate::{
    driver::{Args, DeviceSlice, Grid, Kernels, Stream},
    error::CudaError,
};

/// Most experts, and most that a row uses: 32 and one a lane of a warp.
const MAX_EXPERTS: usize = 1024;
const MAX_USED: usize = 32;

/// The `used` largest logits of each row, best first, ties to the lower index, and their softmax. `logits: [T, E]`,
/// `ids, weights: [T, K]`.
pub(crate) fn route(
    stream: &Stream,
    kernels: &Kernels,
    logits: DeviceSlice<'_, f32>,
    ids: DeviceSlice<'_, i32>,
    weights: DeviceSlice<'_, f32>,
    experts: usize,
    used: usize,
) -> Result<(), CudaError> {
    const OP: &str = "router.route";
    check::within(OP, "experts", experts, 1..=MAX_EXPERTS)?;
    check::within(OP, "experts used", used, 1..=experts.min(MAX_USED))?;
    check::multiple(OP, "logits", logits.len(), experts)?;
    let rows = logits.len() / experts;
    check::len(OP, "ids", ids.len(), rows * used)?;
    check::len(OP, "weights", weights.len(), rows * used)?;
    let function = kernels.get("router", if experts <= 512 { "router_top_512" } else { "router_top_1024" })?;
    let args =
        Args::new().slice(logits).slice(ids).slice(weights).value(rows as i32).value(experts as i32).value(used as i32);
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, Grid::of(rows.div_ceil(4) as u32, 128), args) }
}

/// Arguments of [`group`]. A pair is `row * K + rank`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a> {
    /// `[pairs]` of [`route`].
    pub(crate) ids: DeviceSlice<'a, i32>,
    /// `[E]`: pairs of each expert.
    pub(crate) counts: DeviceSlice<'a, i32>,
    /// `[E + 1]`: where each expert's pairs start.
    pub(crate) starts: DeviceSlice<'a, i32>,
    /// `[pairs]`: pairs by expert, ascending within one.
    pub(crate) list: DeviceSlice<'a, i32>,
}

/// Lists the pairs of each expert.
pub(crate) fn group(stream: &Stream, kernels: &Kernels, of: Group<'_>) -> Result<(), CudaError> {
    const OP: &str = "router.group";
    let (pairs, experts) = (of.ids.len(), of.counts.len());
    check::within(OP, "pairs", pairs, 1..=1 << 24)?;
    check::within(OP, "experts", experts, 1..=1 << 16)?;
    check::len(OP, "starts", of.starts.len(), experts + 1)?;
    check::len(OP, "list", of.list.len(), pairs)?;
    let grid = Grid::of(experts as u32, 256);
    let function = kernels.get("router", "router_count")?;
    // SAFETY: lengths were checked; the parameters are the kernel's.
    unsafe { stream.launch(&function, grid, Args::new().slice(of.ids).slice(of.counts).value(pairs as i32)) }?;
    let function = kernels.get("router", "router_group")?;
    let args = Args::new()
        .slice(of.ids)
        .slice(of.counts)
        .slice(of.starts)
        .slice(of.list)
        .value(pairs as i32)
        .value(experts as i32);
    // SAFETY: as above.
    unsafe { stream.launch(&function, grid, args) }
}
