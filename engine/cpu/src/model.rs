//! The forward pass over the stack (qwen4exp.md 3).

use cudafast_model::{DraftHead, HyperRead, Hyperparams, Layer, Matrix, Mixer, Weights};
use cudafast_runtime::TokenId;

use crate::matmul::{Operand, project};
use crate::pool::Pool;
use crate::probe::Probe;
use crate::rope::Rope;
use crate::state::{GdnLayer, KvCache, LayerState, TargetState};
use crate::{HeadNorm, Precision, attention, gdn, hyper, moe, ngram};

/// Weights and what every operation needs beside them.
pub(crate) struct Model {
    pub(crate) hp: Hyperparams,
    pub(crate) weights: Weights,
    pub(crate) head: Option<DraftHead>,
    pub(crate) precision: Precision,
    pub(crate) head_norm: HeadNorm,
    pub(crate) pool: Pool,
    pub(crate) rope: Rope,
}

/// How a run of rows moves the overwrite-class state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// At most `MAX_DEPTH + 1` rows, logged until some are accepted.
    Decode,
    /// Final rows; the delta net runs in chunks.
    Prefill,
}

/// Rows of one forward: consecutive positions from `position`.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// The block they are in; the draft head's comes after the stack.
    pub(crate) layer: usize,
    pub(crate) position: usize,
    pub(crate) phase: Phase,
}

/// The part of the state one block's mixer uses.
pub(crate) enum MixerState<'a> {
    Gdn(&'a mut GdnLayer),
    Attention(&'a mut KvCache),
}

impl Model {
    /// Runs the last `n` of `tokens` through the stack; returns the wide residual after the last layer, `[n][W]`.
    pub(crate) fn forward(
        &self,
        state: &mut TargetState,
        tokens: &[TokenId],
        n: usize,
        phase: Phase,
        probe: &mut dyn Probe,
    ) -> Vec<f32> {
        let mut rows = Rows { layer: 0, position: tokens.len() - n, phase };
        let mut x = Vec::with_capacity(n * self.hp.wide());
        for token in &tokens[rows.position..] {
            let embedding = self.embed(&self.weights.token_embd, *token);
            for _ in 0..self.hp.streams {
                x.extend_from_slice(&embedding);
            }
        }
        probe.value(0, "embed", rows.position, self.hp.wide(), &x);
        let TargetState { layers, ngram_conv } = state;
        for (index, (layer, state)) in self.weights.layers.iter().zip(layers).enumerate() {
            rows.layer = index;
            if let Some(w) = &layer.ngram {
                ngram::inject(self, w, ngram_conv, &mut x, tokens, rows, probe);
            }
            let state = match state {
                LayerState::Gdn(gdn) => MixerState::Gdn(gdn),
                LayerState::Attention(kv) => MixerState::Attention(kv),
            };
            self.block(layer, state, &mut x, rows, probe);
        }
        x
    }

    /// Rows of the draft head's block, which stands behind the target's layers.
    pub(crate) fn head_rows(&self, position: usize, phase: Phase) -> Rows {
        Rows { layer: self.hp.layers.len(), position, phase }
    }

    /// One block on `x: [T][W]`, in place.
    pub(crate) fn block(&self, layer: &Layer, state: MixerState<'_>, x: &mut [f32], rows: Rows, probe: &mut dyn Probe) {
        let (index, hidden) = (rows.layer, self.hp.hidden);
        let (x_in, inject) = hyper::read_inject(self, &layer.hc_mixer, x, rows.phase);
        probe.value(index, "mixer.in", rows.position, hidden, &x_in);
        probe.value(index, "mixer.inject", rows.position, self.hp.streams, &inject);
        let out = match (&layer.mixer, state) {
            (Mixer::Gdn(w), MixerState::Gdn(state)) => gdn::forward(self, w, state, &x_in, rows, probe),
            (Mixer::Attention(w), MixerState::Attention(kv)) => attention::forward(self, w, kv, &x_in, rows, probe),
            // Weights and state are built from the same schedule.
            _ => unreachable!("layer {index}: state of another kind than its weights"),
        };
        probe.value(index, "mixer.out", rows.position, hidden, &out);
        hyper::write(self, x, &inject, &out);
        let (x_in, inject) = hyper::read_inject(self, &layer.hc_ffn, x, rows.phase);
        probe.value(index, "moe.in", rows.position, hidden, &x_in);
        probe.value(index, "moe.inject", rows.position, self.hp.streams, &inject);
        let out = moe::forward(self, &layer.moe, &x_in, rows, probe);
        probe.value(index, "moe.out", rows.position, hidden, &out);
        hyper::write(self, x, &inject, &out);
        probe.residual(index, rows.position, x);
    }

    /// Logits of `x: [T][W]` through a final mixer: `[T][V]`.
    pub(crate) fn logits(&self, mixer: &HyperRead, output: &Matrix, x: &[f32]) -> Vec<f32> {
        // One order for the rows of a prompt and of an answer.
        let phase = Phase::Decode;
        let y = hyper::read(self, mixer, x, phase);
        project(&self.pool, output.view(), &self.operand(&y, self.hp.hidden, phase))
    }

    /// Rows for matrix products: `x: [T][cols]`.
    pub(crate) fn operand<'a>(&self, x: &'a [f32], cols: usize, phase: Phase) -> Operand<'a> {
        Operand::new(&self.pool, x, cols, self.precision, phase)
    }

    /// One row of an embedding matrix, `[H]`.
    pub(crate) fn embed(&self, embedding: &Matrix, token: TokenId) -> Vec<f32> {
        let mut row = vec![0.0; self.hp.hidden];
        embedding.format.decode(embedding.view().row(token as usize), &mut row);
        row
    }
}
