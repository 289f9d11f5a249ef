//! Attention of prefill rows (`kernels/attention_prefill.cu`, qwen4exp.md 5).

use super::attention::{Attend, group_symbol};
use crate::{
    driver::{Args, Grid, Kernels, Stream},
    error::CudaError,
};

/// Most rows of a call.
const MOST_ROWS: usize = 1 << 20;

/// Any number of rows, each over its own list.
pub(crate) fn attend(stream: &Stream, kernels: &Kernels, of: Attend<'_>) -> Result<(), CudaError> {
    let rows = of.check("attention.prefill", MOST_ROWS)?;
    let (shape, indexer) = (of.shape, of.indexer);
    let args = Args::new()
        .slice(of.q)
        .slice(of.query_gate)
        .slice(of.keys)
        .slice(of.values)
        .slice(of.blocks)
        .slice(of.at)
        .slice(of.o)
        .optional(of.codes.map(|codes| codes.q))
        .optional(of.codes.map(|codes| codes.d));
    let (symbol, heads, threads, args) = match group_symbol(shape) {
        Some(group) => (format!("attention_rows_{group}"), shape.kv_heads, 256, args.value(shape.kv_heads as i32)),
        None => {
            let args = args.value(shape.heads as i32).value(shape.kv_heads as i32).value(shape.head_dim as i32);
            ("attention_rows_plain".to_owned(), shape.heads, 128, args)
        }
    };
    let function = kernels.get("attention_prefill", &symbol)?;
    let grid = Grid { blocks: [rows as u32, heads as u32, 1], threads, shared: 0 };
    let args = args.value(indexer.ratio as i32).value(indexer.budget_blocks() as i32);
    // SAFETY: lengths and alignment were checked; listed blocks lie below the row's position, as `select` wrote them.
    unsafe { stream.launch(&function, grid, args) }
}
