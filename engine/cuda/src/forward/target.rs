//! The target's stack: embedding, blocks, the n-gram injection (qwen4exp.md 3, 6).

use cudafast_model::{NgramWeights, Weights};

use super::{MixerState, Next, Pass, mismatch};
use crate::driver::DeviceSlice;
use crate::error::CudaError;
use crate::launch::{self, Ids, Input, Product, RowsById, ngram};
use crate::state::{DeviceState, LayerState};

/// Where rows of the n-gram table come from.
#[derive(Clone, Copy)]
pub(crate) enum NgramRows<'a> {
    /// The table is on the device, or in host memory that the device reads: hash `[n - 1 + T]` tokens, oldest first.
    Hashed(DeviceSlice<'a, u32>),
    /// The host has gathered `[T][P]` of them into mapped memory.
    Gathered(DeviceSlice<'a, f32>),
}

/// The rows of one forward through the stack.
#[derive(Clone, Copy)]
pub(crate) struct TargetRows<'a> {
    /// `[T]`.
    pub(crate) tokens: DeviceSlice<'a, u32>,
    pub(crate) ngram: NgramRows<'a>,
    /// `[T][W]`: receives the residual behind the last layer.
    pub(crate) x: DeviceSlice<'a, f32>,
}

impl Pass<'_> {
    /// Runs the stack. Afterwards `x` is the residual that the draft head joins, normed for the final mixer.
    pub(crate) fn target(&self, w: &Weights, state: &DeviceState, of: TargetRows<'_>) -> Result<(), CudaError> {
        let table = self.tensors.matrix(&w.token_embd)?;
        let embed = RowsById { table, ids: Ids::Narrow(of.tokens), copies: self.hp.streams, out: of.x };
        launch::rows_by_id(self.stream, self.kernels, embed)?;
        for (i, (layer, state_of)) in w.layers.iter().zip(&state.layers).enumerate() {
            if let Some(ngram) = &layer.ngram {
                self.ngram(ngram, w, state, of)?;
            }
            if i == 0 || layer.ngram.is_some() {
                self.norm(of.x, Next::Hyper(&layer.hc_mixer))?;
            }
            let mixer = match state_of {
                LayerState::Gdn(gdn) => MixerState::Gdn(gdn),
                LayerState::Attention(caches) => MixerState::Attention(caches),
            };
            let next = match w.layers.get(i + 1) {
                Some(next) => Next::Hyper(&next.hc_mixer),
                None => Next::Read(&w.output_hc),
            };
            self.block(layer, mixer, of.x, next)?;
        }
        if w.layers.len() == state.layers.len() { Ok(()) } else { Err(mismatch()) }
    }

    fn ngram(&self, w: &NgramWeights, all: &Weights, state: &DeviceState, of: TargetRows<'_>) -> Result<(), CudaError> {
        let (arena, parts, rows) = (self.arena, &self.arena.parts.ngram, self.rows);
        let (sizes, wide) = (&self.hp.ngram, self.hp.wide());
        let e = match of.ngram {
            NgramRows::Gathered(e) => e,
            NgramRows::Hashed(window) => {
                let ids = arena.first(parts.ids, rows * sizes.heads());
                let e = arena.first(parts.e, rows * sizes.width());
                ngram::ids(self.stream, self.kernels, window, self.hash, ids, sizes)?;
                let table = self.tensors.matrix(&all.ngram_table)?;
                let gather = RowsById { table, ids: Ids::Wide(ids), copies: 1, out: e };
                launch::rows_by_id(self.stream, self.kernels, gather)?;
                e
            }
        };
        let e_q8 = arena.q8(parts.e_q8, rows);
        if let Some(q8) = e_q8 {
            launch::quantise_rows(self.stream, self.kernels, e, q8)?;
        }
        let key = arena.first(parts.key, rows * wide);
        let value = arena.first(parts.value, rows * self.hp.hidden);
        let products = [
            Product { matrix: self.tensors.matrix(&w.key)?, out: key },
            Product { matrix: self.tensors.matrix(&w.value)?, out: value },
        ];
        self.products(Input { rows, q8: e_q8, floats: Some(e) }, &products)?;
        ngram::inject(
            self.stream,
            self.kernels,
            ngram::Inject {
                at: self.at,
                x: of.x,
                key,
                value,
                norm_key: self.tensors.vector(&w.norm_key)?,
                norm_query: self.tensors.vector(&w.norm_query)?,
                norm_conv: self.tensors.vector(&w.norm_conv)?,
                conv: self.tensors.vector(&w.conv)?,
                ring: state.ngram_ring.all(),
                scratch: arena.first(parts.scratch, 2 * rows * wide),
                hidden: self.hp.hidden,
                streams: self.hp.streams,
                shape: sizes,
                eps: self.hp.rms_eps,
            },
        )
    }
}
