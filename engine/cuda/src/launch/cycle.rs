//! `kernels/cycle.cu`: what joins the forward passes of a round.

use super::check;
use crate::control::{CONTROL_ROWS, CONTROL_WORDS, Outcome};
use crate::driver::{Args, DeviceSlice, Grid, Kernels, Stream};
use crate::error::CudaError;

const FILE: &str = "cycle";
/// Blocks that search one row of logits: enough to keep every multiprocessor of a large card busy with one row. The result
/// does not depend on it.
const ARGMAX_BLOCKS: usize = 128;

/// Words that [`argmax`] leaves for [`accept`] and [`draft`], for `rows` rows.
pub(crate) fn argmax_parts(rows: usize) -> usize {
    4 * ARGMAX_BLOCKS * rows
}

/// Copies the host's request into the device's control block. `request` is mapped host memory.
pub(crate) fn begin(
    stream: &Stream,
    k: &Kernels,
    request: DeviceSlice<'_, u32>,
    control: DeviceSlice<'_, u32>,
) -> Result<(), CudaError> {
    check::len("cycle_begin", "request", request.len(), CONTROL_WORDS)?;
    check::len("cycle_begin", "control", control.len(), CONTROL_WORDS)?;
    let args = Args::new().slice(request).slice(control).value(CONTROL_WORDS as i32);
    // SAFETY: both hold `CONTROL_WORDS` words, one thread a word; the request is written before the launch and not again
    // before the round has ended.
    unsafe { stream.launch(&k.get(FILE, "cycle_begin")?, Grid::of(1, 64), args) }
}

/// Candidates for the largest logit of every row.
pub(crate) struct ArgmaxArgs<'a> {
    /// `[T][vocab]`.
    pub(crate) logits: DeviceSlice<'a, f32>,
    /// One bit an id; none: all are allowed.
    pub(crate) mask: Option<DeviceSlice<'a, u32>>,
    /// [`argmax_parts`] words, 16-byte aligned.
    pub(crate) parts: DeviceSlice<'a, u32>,
    pub(crate) vocab: usize,
}

pub(crate) fn argmax(stream: &Stream, k: &Kernels, args: ArgmaxArgs<'_>) -> Result<(), CudaError> {
    let ArgmaxArgs { logits, mask, parts, vocab } = args;
    let rows = logits.len() / vocab.max(1);
    check::within("cycle_argmax", "rows", rows, 1..=CONTROL_ROWS)?;
    check::len("cycle_argmax", "logits", logits.len(), rows * vocab)?;
    check::len("cycle_argmax", "parts", parts.len(), argmax_parts(rows))?;
    check::aligned("cycle_argmax", "parts", parts.address(), 16)?;
    if let Some(mask) = mask {
        check::len("cycle_argmax", "mask", mask.len(), vocab.div_ceil(32))?;
    }
    let grid = Grid { blocks: [ARGMAX_BLOCKS as u32, rows as u32, 1], threads: 256, shared: 0 };
    let args = Args::new().slice(logits).optional(mask).slice(parts).value(vocab as i32);
    // SAFETY: lengths checked above; a block writes its own four words of `parts`.
    unsafe { stream.launch(&k.get(FILE, "cycle_argmax")?, grid, args) }
}

/// Accepts drafts and sets what the head is seeded with. `parts` come from [`argmax`] of `rows` rows at least as many as
/// the control block says.
pub(crate) fn accept(
    stream: &Stream,
    k: &Kernels,
    parts: DeviceSlice<'_, u32>,
    control: DeviceSlice<'_, u32>,
) -> Result<(), CudaError> {
    check::len("cycle_accept", "control", control.len(), CONTROL_WORDS)?;
    let args = Args::new().slice(parts).slice(control).value(ARGMAX_BLOCKS as i32);
    // SAFETY: the host never asks for more rows than the graph's width, which `parts` were made for.
    unsafe { stream.launch(&k.get(FILE, "cycle_accept")?, Grid::of(1, 32 * CONTROL_ROWS as u32), args) }
}

/// Copies the head's row behind the last kept one: `rows: [T][wide]` to `row: [wide]`.
pub(crate) fn pick(
    stream: &Stream,
    k: &Kernels,
    rows: DeviceSlice<'_, f32>,
    control: DeviceSlice<'_, u32>,
    row: DeviceSlice<'_, f32>,
) -> Result<(), CudaError> {
    check::len("cycle_pick", "control", control.len(), CONTROL_WORDS)?;
    check::multiple("cycle_pick", "rows", rows.len(), row.len().max(1))?;
    let grid = Grid::of(row.len().div_ceil(256) as u32, 256);
    let args = Args::new().slice(rows).slice(control).slice(row).value(row.len() as i32);
    // SAFETY: fewer drafts are accepted than the graph has rows, so the row read is one of `rows`.
    unsafe { stream.launch(&k.get(FILE, "cycle_pick")?, grid, args) }
}

/// Notes the head's choice as the next draft. `parts` come from [`argmax`] of one row.
pub(crate) fn draft(
    stream: &Stream,
    k: &Kernels,
    parts: DeviceSlice<'_, u32>,
    control: DeviceSlice<'_, u32>,
) -> Result<(), CudaError> {
    check::len("cycle_draft", "parts", parts.len(), argmax_parts(1))?;
    check::len("cycle_draft", "control", control.len(), CONTROL_WORDS)?;
    let args = Args::new().slice(parts).slice(control).value(ARGMAX_BLOCKS as i32);
    // SAFETY: lengths checked above; the kernel keeps to the slots of `drafts`.
    unsafe { stream.launch(&k.get(FILE, "cycle_draft")?, Grid::of(1, 32), args) }
}

/// Hands the round to the host. `outcome` is mapped host memory.
pub(crate) fn end(
    stream: &Stream,
    k: &Kernels,
    control: DeviceSlice<'_, u32>,
    outcome: DeviceSlice<'_, u32>,
) -> Result<(), CudaError> {
    check::len("cycle_end", "control", control.len(), CONTROL_WORDS)?;
    check::len("cycle_end", "outcome", outcome.len(), size_of::<Outcome>() / 4)?;
    let args = Args::new().slice(control).slice(outcome);
    // SAFETY: lengths checked above; the host reads nothing but the generation until that has changed.
    unsafe { stream.launch(&k.get(FILE, "cycle_end")?, Grid::of(1, 1), args) }
}
