//! Watching a forward pass from tests and tools, without a second code path.

use crate::Selected;

/// Receives intermediate values, in execution order. Every method has an empty default.
pub trait Probe {
    /// Rows of an operation of a block, `values: [T][width]`, first row at `position`; `op` names it, as in `gdn.qkv`. The
    /// draft head's block is layer `layers`; `logits` are the layer's that their final mixer follows.
    fn value(&mut self, _layer: usize, _op: &'static str, _position: usize, _width: usize, _values: &[f32]) {}
    /// Wide residual after a layer, `[T][W]`, first row at `position`. The draft head's block is layer `layers`.
    fn residual(&mut self, _layer: usize, _position: usize, _x: &[f32]) {}
    /// Experts of one row, best first.
    fn experts(&mut self, _layer: usize, _position: usize, _ids: &[u32]) {}
    /// Tokens one row attends.
    fn selection(&mut self, _layer: usize, _position: usize, _tokens: &Selected) {}
    /// Table rows of one token, for the block that injects them.
    fn ngram_rows(&mut self, _layer: usize, _position: usize, _rows: &[u64]) {}
    /// Logits a draft was taken from, `[V]`.
    fn draft(&mut self, _logits: &[f32]) {}
}

/// Watches nothing.
pub(crate) struct Unwatched;

impl Probe for Unwatched {}
