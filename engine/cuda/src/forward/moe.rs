//! The experts (qwen4exp.md 7).

use cudafast_model::MoeWeights;

use super::{Pass, Phase};
use crate::driver::DeviceSlice;
use crate::error::CudaError;
use crate::launch::{Input, Product, gemm, moe, router};

impl Pass<'_> {
    /// [`mixed`](Self::mixed) rows to `out: [T][H]`.
    pub(super) fn moe(&self, w: &MoeWeights, out: DeviceSlice<'_, f32>) -> Result<(), CudaError> {
        let (arena, parts, rows) = (self.arena, &self.arena.parts.moe, self.rows);
        let sizes = &self.hp.moe;
        let x = self.mixed();
        let router = arena.first(parts.router, rows * sizes.experts);
        let shared_gate = arena.first(parts.shared_gate, rows);
        let left = arena.first(parts.shared_left, rows * sizes.shared_ff);
        let right = arena.first(parts.shared_right, rows * sizes.shared_ff);
        let matrix = |m| self.tensors.matrix(m);
        self.products(
            x,
            &[
                Product { matrix: matrix(&w.router)?, out: router },
                Product { matrix: matrix(&w.shared_router)?, out: shared_gate },
                Product { matrix: matrix(&w.shared_gate)?, out: left },
                Product { matrix: matrix(&w.shared_up)?, out: right },
            ],
        )?;
        let ids = arena.first(parts.ids, rows * sizes.used);
        let weights = arena.first(parts.weights, rows * sizes.used);
        router::route(self.stream, self.kernels, router, ids, weights, sizes.experts, sizes.used)?;
        let shared_mid = arena.first(parts.shared_mid, rows * sizes.shared_ff);
        let shared_q8 = arena.q8(parts.shared_q8, rows);
        moe::swiglu(
            self.stream,
            self.kernels,
            moe::SwigluArgs { gate: left, up: right, mid: shared_mid, q8: shared_q8 },
        )?;
        let shared = arena.first(parts.shared, rows * self.hp.hidden);
        self.product(Input { rows, q8: shared_q8, floats: Some(shared_mid) }, &w.shared_down, shared)?;
        let slots = rows * sizes.used;
        let mid = arena.first(parts.mid, slots * sizes.expert_ff);
        let mid_q8 = arena.q8(parts.mid_q8, slots);
        let up = moe::UpArgs {
            x,
            ids,
            gate: self.tensors.experts(&w.gate)?,
            up: self.tensors.experts(&w.up)?,
            mid,
            used: sizes.used,
        };
        let down = moe::DownArgs {
            mid: Input { rows: slots, q8: mid_q8, floats: Some(mid) },
            ids,
            weights,
            down: self.tensors.experts(&w.down)?,
            shared,
            shared_gate,
            out,
            used: sizes.used,
        };
        match self.phase {
            Phase::Decode => moe::experts(self.stream, self.kernels, up, down),
            Phase::Prefill => {
                let list = arena.first(parts.list, slots);
                let starts = arena.all(parts.starts);
                let counts = arena.all(parts.counts);
                router::group(self.stream, self.kernels, router::Group { ids, counts, starts, list })?;
                let tiles = arena.first(parts.tiles, gemm::tiles(slots, sizes.experts));
                let pairs = gemm::Pairs { list, starts, tiles };
                gemm::experts_up(self.stream, self.kernels, up, pairs)?;
                let each = arena.first(parts.each, slots * self.hp.hidden);
                gemm::experts_down(self.stream, self.kernels, down, pairs, each)
            }
        }
    }
}
