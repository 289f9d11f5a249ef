//! Hyper-connections: reading one hidden row from the residual streams and writing the result back (qwen4exp.md 2).

use cudafast_model::{HyperConnection, HyperRead};

use crate::math::{self, sigmoid, silu};
use crate::matmul::{Operand, matmul};
use crate::model::Model;
use crate::simd::{self, Kernel};

/// `hc_read` without inject: `x: [T][W]` to `[T][H]`. The mean over the streams of the gated, normed residual.
pub(crate) fn read(model: &Model, w: &HyperRead, x: &[f32]) -> Vec<f32> {
    let n = normed(model, w, x);
    mix(model, w, &n, &Operand::new(&n, model.hp.wide(), model.precision))
}

/// `hc_read` and its inject weights: `x: [T][W]` to (`[T][H]`, `[T][C]`).
pub(crate) fn read_inject(model: &Model, w: &HyperConnection, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let hp = &model.hp;
    let rows = x.len() / hp.wide();
    let n = normed(model, &w.read, x);
    let operand = Operand::new(&n, hp.wide(), model.precision);
    let mut inject = vec![0.0; rows * hp.streams];
    matmul(&model.pool, w.inject.view(), &operand, &mut inject);
    let streams = hp.streams as f32;
    math::map_in_place(&mut inject, |v| 2.0 * sigmoid(v / streams));
    (mix(model, &w.read, &n, &operand), inject)
}

fn normed(model: &Model, w: &HyperRead, x: &[f32]) -> Vec<f32> {
    let mut n = x.to_vec();
    math::rms_norm(&mut n, w.norm.as_slice(), model.hp.hidden, model.hp.rms_eps);
    n
}

fn mix(model: &Model, w: &HyperRead, n: &[f32], operand: &Operand<'_>) -> Vec<f32> {
    let hp = &model.hp;
    let rows = operand.rows();
    let mut low = vec![0.0; rows * hp.hyper_rank];
    matmul(&model.pool, w.down.view(), operand, &mut low);
    let streams = hp.streams as f32;
    math::map_in_place(&mut low, |v| silu(v / streams));
    let mut gate = vec![0.0; n.len()];
    matmul(&model.pool, w.up.view(), &Operand::new(&low, hp.hyper_rank, model.precision), &mut gate);
    let mut mixed = vec![0.0; rows * hp.hidden];
    simd::run(GatedMean { gate: &gate, n, streams: hp.streams, hidden: hp.hidden, mixed: &mut mixed });
    mixed
}

/// `mixed[i] = mean over s of sigmoid(gate[s, i]) * n[s, i]`, streams ascending.
struct GatedMean<'a> {
    gate: &'a [f32],
    n: &'a [f32],
    streams: usize,
    hidden: usize,
    mixed: &'a mut [f32],
}

impl Kernel for GatedMean<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let wide = self.streams * self.hidden;
        let share = 1.0 / self.streams as f32;
        let rows = self.gate.chunks_exact(wide).zip(self.n.chunks_exact(wide));
        for ((gate, n), mixed) in rows.zip(self.mixed.chunks_exact_mut(self.hidden)) {
            for (g, v) in gate.chunks_exact(self.hidden).zip(n.chunks_exact(self.hidden)) {
                for ((m, g), v) in mixed.iter_mut().zip(g).zip(v) {
                    *m = sigmoid(*g).mul_add(*v, *m);
                }
            }
            for m in mixed {
                *m *= share;
            }
        }
    }
}

/// `X[s] += inject[s] * out` on the un-normed residual: `x: [T][W]`, `inject: [T][C]`, `out: [T][H]`.
pub(crate) fn write(model: &Model, x: &mut [f32], inject: &[f32], out: &[f32]) {
    struct Write<'a>(&'a mut [f32], &'a [f32], &'a [f32], usize);
    impl Kernel for Write<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            let Write(x, inject, out, hidden) = self;
            let streams = x.len() / out.len();
            let rows = x.chunks_exact_mut(hidden * streams).zip(inject.chunks_exact(streams));
            for ((x, inject), out) in rows.zip(out.chunks_exact(hidden)) {
                for (stream, weight) in x.chunks_exact_mut(hidden).zip(inject) {
                    math::axpy(stream, *weight, out);
                }
            }
        }
    }
    simd::run(Write(x, inject, out, model.hp.hidden));
}
