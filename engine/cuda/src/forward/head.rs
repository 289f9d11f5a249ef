//! The multi-token-prediction head (qwen4exp.md 9): row `i` joins the target's residual `R[i]` with token `i + 1`.

use cudafast_model::DraftHead;

use super::{MixerState, Next, Pass};
use crate::driver::DeviceSlice;
use crate::error::CudaError;
use crate::launch::{self, Ids, Input, RowsById, head};
use crate::state::Caches;
use crate::weights::DeviceTensors;

/// The rows of one forward through the head.
#[derive(Clone, Copy)]
pub(crate) struct HeadRows<'a> {
    /// `[T][W]`: the target's residual rows, or the head's own of the step before.
    pub(crate) residual: DeviceSlice<'a, f32>,
    /// `[T]`: the token behind each.
    pub(crate) tokens: DeviceSlice<'a, u32>,
    /// `[T][W]`: receives the head's own residual. May be `residual`.
    pub(crate) x: DeviceSlice<'a, f32>,
}

impl Pass<'_> {
    /// Runs head rows and writes their cache rows. Afterwards `x` is normed for the head's final mixer. `shared` are the
    /// tensors that hold the embedding.
    pub(crate) fn head(
        &self,
        w: &DraftHead,
        caches: &Caches,
        shared: &DeviceTensors,
        single_norm: bool,
        of: HeadRows<'_>,
    ) -> Result<(), CudaError> {
        let (arena, parts, rows, hp) = (self.arena, &self.arena.parts.join, self.rows, self.hp);
        let e = arena.first(parts.e, rows * hp.hidden);
        let table = shared.matrix(&w.token_embd)?;
        launch::rows_by_id(
            self.stream,
            self.kernels,
            RowsById { table, ids: Ids::Narrow(of.tokens), copies: 1, out: e },
        )?;
        let joined = arena.first(parts.joined, rows * 2 * hp.wide());
        let q8 = arena.q8(parts.joined_q8, rows * hp.streams);
        head::join(
            self.stream,
            self.kernels,
            head::Join {
                residual: of.residual,
                embedding: e,
                enorm: self.tensors.vector(&w.enorm)?,
                hnorm: self.tensors.vector(&w.hnorm)?,
                joined,
                codes: q8,
                single: single_norm,
                hidden: hp.hidden,
                streams: hp.streams,
                eps: hp.rms_eps,
            },
        )?;
        // A stream of a row is a row of this product.
        self.product(Input { rows: rows * hp.streams, q8, floats: Some(joined) }, &w.eh_proj, of.x)?;
        self.norm(of.x, Next::Hyper(&w.block.hc_mixer))?;
        self.block(&w.block, MixerState::Attention(caches), of.x, Next::Read(&w.hc_head))
    }
}
