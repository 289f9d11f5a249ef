//! The forward pass as launches on one stream (qwen4exp.md 3): of a few rows, captured, and of a prompt's, not.
//!
//! A [`Pass`] runs consecutive rows through blocks. Between blocks only the wide residual and what `hyper::write` made of
//! it pass on: the codes of the next norm, its scales, the next inject weights. Every operation takes its rows' position
//! from device memory, so that the same launches serve every position.

mod arena;
mod head;
mod mixer;
mod moe;
mod target;

pub(crate) use arena::{Arena, KernelScratch, bytes as arena_bytes};
pub(crate) use head::HeadRows;
pub(crate) use target::{NgramRows, TargetRows};

use cudafast_model::{HyperConnection, HyperRead, Hyperparams, Layer, Matrix, Mixer};

use crate::control::CONTROL_ROWS;
use crate::driver::{DeviceSlice, Kernels, Stream};
use crate::error::CudaError;
use crate::launch::{self, Input, Product, gemm, hyper};
use crate::state::{Caches, GdnLayer};
use crate::weights::DeviceTensors;

/// How rows move the recurrent state, and which kernels run them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// At most [`CONTROL_ROWS`] rows, logged until some are kept. A row's bits do not depend on how many run.
    Decode,
    /// Final rows of a prompt; a row's bits depend on its position and history alone.
    Prefill,
}

/// State that one block's mixer uses.
#[derive(Clone, Copy)]
pub(crate) enum MixerState<'a> {
    Gdn(&'a GdnLayer),
    Attention(&'a Caches),
}

/// What reads the residual behind a block.
#[derive(Clone, Copy)]
pub(crate) enum Next<'a> {
    /// The next block's mixer, or this block's experts.
    Hyper(&'a HyperConnection),
    /// A final mixer, which injects nothing.
    Read(&'a HyperRead),
}

/// Rows being run.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) kernels: &'a Kernels,
    pub(crate) hp: &'a Hyperparams,
    /// The file that the blocks come from.
    pub(crate) tensors: &'a DeviceTensors,
    pub(crate) arena: &'a Arena,
    /// Cosines and sines of every position.
    pub(crate) rope: DeviceSlice<'a, f32>,
    pub(crate) phase: Phase,
    pub(crate) rows: usize,
    /// An `At` in device memory.
    pub(crate) at: DeviceSlice<'a, u32>,
    /// Constants of the n-gram hash.
    pub(crate) hash: DeviceSlice<'a, u64>,
    /// No row's position reaches this while the launches live: sizes grids, changes no bit.
    pub(crate) visible: usize,
}

impl<'a> Pass<'a> {
    /// `outs[i] = matrices[i] . input`, in the fold order of the phase.
    fn products(&self, input: Input<'_>, products: &[Product<'_>]) -> Result<(), CudaError> {
        match self.phase {
            Phase::Decode if input.rows <= CONTROL_ROWS => launch::matvec(self.stream, self.kernels, input, products),
            Phase::Decode => self.streams_of_rows(input, products),
            Phase::Prefill => gemm::product(self.stream, self.kernels, input, products),
        }
    }

    /// The draft head joins a stream a row: more rows than one launch takes, in runs of as many. Same bits.
    fn streams_of_rows(&self, input: Input<'_>, products: &[Product<'_>]) -> Result<(), CudaError> {
        for first in (0..input.rows).step_by(CONTROL_ROWS) {
            let rows = CONTROL_ROWS.min(input.rows - first);
            let some: Vec<Product<'_>> = products
                .iter()
                .map(|p| Product { matrix: p.matrix, out: p.out.part(first * p.matrix.rows, rows * p.matrix.rows) })
                .collect();
            launch::matvec(self.stream, self.kernels, input.part(first, rows), &some)?;
        }
        Ok(())
    }

    fn product(&self, input: Input<'_>, matrix: &Matrix, out: DeviceSlice<'_, f32>) -> Result<(), CudaError> {
        self.products(input, &[Product { matrix: self.tensors.matrix(matrix)?, out }])
    }

    /// Normed rows of the wide residual.
    fn normed(&self) -> Input<'a> {
        let (arena, parts) = (self.arena, &self.arena.parts);
        Input {
            rows: self.rows,
            q8: arena.q8(parts.normed_q8, self.rows),
            floats: Some(arena.first(parts.normed, self.rows * self.hp.wide())),
        }
    }

    /// What a hyper-connection read: a block's input rows.
    fn mixed(&self) -> Input<'a> {
        let (arena, parts) = (self.arena, &self.arena.parts);
        Input {
            rows: self.rows,
            q8: arena.q8(parts.mixed_q8, self.rows),
            floats: Some(arena.first(parts.mixed, self.rows * self.hp.hidden)),
        }
    }

    /// Adds a block's output to the residual, if there is one, and norms the residual for what reads it next. `slot` says
    /// which inject weights are the output's; the next ones go to the other.
    fn write(
        &self,
        x: DeviceSlice<'_, f32>,
        out: Option<(usize, DeviceSlice<'_, f32>)>,
        next: Next<'_>,
        next_slot: usize,
    ) -> Result<(), CudaError> {
        let (arena, parts, hp) = (self.arena, &self.arena.parts, self.hp);
        let (read, inject) = match next {
            Next::Hyper(hyper) => (&hyper.read, Some(&hyper.inject)),
            Next::Read(read) => (read, None),
        };
        let weights = self.rows * hp.streams;
        let inject = inject.map(|matrix| self.tensors.matrix(matrix).map(|device| (matrix, device))).transpose()?;
        // Inject rows in f32 come along with the norm; others are a product of their own.
        let (fused, apart) = match inject {
            Some((_, device)) if device.format.name == "F32" => (Some(device.bytes.cast()), None),
            Some((matrix, _)) => (None, Some(matrix)),
            None => (None, None),
        };
        let down_is_plain = self.tensors.matrix(&read.down)?.is_plain();
        let q8 = arena.q8(parts.normed_q8, self.rows);
        let floats = down_is_plain || apart.is_some() || q8.is_none();
        let next_inject = arena.first(parts.inject[next_slot], weights);
        hyper::write(
            self.stream,
            self.kernels,
            hyper::Write {
                x,
                add: out.map(|(slot, out)| (arena.first(parts.inject[slot], weights), out)),
                gain: self.tensors.vector(&read.norm)?,
                next_inject: fused,
                codes: q8,
                parts: arena.all(parts.partials),
                tickets: arena.all(parts.tickets),
                rinv: arena.first(parts.rinv, weights),
                inj_next: next_inject,
                normed: floats.then(|| arena.first(parts.normed, self.rows * hp.wide())),
                hidden: hp.hidden,
                streams: hp.streams,
                eps: hp.rms_eps,
            },
        )?;
        match apart {
            Some(matrix) => {
                self.product(self.normed(), matrix, next_inject)?;
                hyper::inject(self.stream, self.kernels, next_inject, hp.streams)
            }
            None => Ok(()),
        }
    }

    /// `hc_read` of rows that [`write`](Self::write) normed for it: fills [`mixed`](Self::mixed).
    fn read(&self, w: &HyperRead, x: DeviceSlice<'_, f32>) -> Result<(), CudaError> {
        let (arena, parts, hp, rows) = (self.arena, &self.arena.parts, self.hp, self.rows);
        let low = arena.first(parts.low, rows * hp.hyper_rank);
        let low_q8 = arena.q8(parts.low_q8, rows);
        self.product(self.normed(), &w.down, low)?;
        hyper::low(self.stream, self.kernels, low, low_q8, hp.streams)?;
        let gate = arena.first(parts.gate, rows * hp.wide());
        self.product(Input { rows, q8: low_q8, floats: Some(low) }, &w.up, gate)?;
        hyper::mix(
            self.stream,
            self.kernels,
            hyper::Mix {
                gate,
                x,
                rinv: arena.first(parts.rinv, rows * hp.streams),
                gain: self.tensors.vector(&w.norm)?,
                mixed: arena.first(parts.mixed, rows * hp.hidden),
                codes: arena.q8(parts.mixed_q8, rows),
                hidden: hp.hidden,
                streams: hp.streams,
            },
        )
    }

    /// One block on `x: [T][W]`, in place, normed for its mixer before and for `next` after.
    pub(crate) fn block(
        &self,
        layer: &Layer,
        state: MixerState<'_>,
        x: DeviceSlice<'_, f32>,
        next: Next<'_>,
    ) -> Result<(), CudaError> {
        let out = self.arena.first(self.arena.parts.out, self.rows * self.hp.hidden);
        self.read(&layer.hc_mixer.read, x)?;
        match (&layer.mixer, state) {
            (Mixer::Gdn(w), MixerState::Gdn(state)) => self.gdn(w, state, out)?,
            (Mixer::Attention(w), MixerState::Attention(caches)) => self.attention(w, caches, out)?,
            _ => return Err(mismatch()),
        }
        self.write(x, Some((0, out)), Next::Hyper(&layer.hc_ffn), 1)?;
        self.read(&layer.hc_ffn.read, x)?;
        self.moe(&layer.moe, out)?;
        self.write(x, Some((1, out)), next, 0)
    }

    /// Norms rows that no block wrote: behind an embedding, an n-gram injection, the head's joining.
    pub(crate) fn norm(&self, x: DeviceSlice<'_, f32>, next: Next<'_>) -> Result<(), CudaError> {
        self.write(x, None, next, 0)
    }

    /// Logits `[T][V]` of rows that were normed for the final mixer `w`.
    pub(crate) fn logits(
        &self,
        w: &HyperRead,
        output: (&Matrix, &DeviceTensors),
        x: DeviceSlice<'_, f32>,
        logits: DeviceSlice<'_, f32>,
    ) -> Result<(), CudaError> {
        self.read(w, x)?;
        let (matrix, tensors) = output;
        self.products(self.mixed(), &[Product { matrix: tensors.matrix(matrix)?, out: logits }])
    }
}

/// Weights and state are made from one schedule of layers.
fn mismatch() -> CudaError {
    CudaError::Argument {
        op: "block",
        what: "state of the layer",
        found: "of another kind".into(),
        expected: "that of its weights".into(),
    }
}
