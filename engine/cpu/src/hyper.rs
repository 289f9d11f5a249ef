//! Hyper-connections: reading one hidden row from the residual streams and writing the result back (qwen4exp.md 2).

use cudafast_model::{HyperConnection, HyperRead};

use crate::math::{self, sigmoid, silu};
use crate::matmul::{project, project_all};
use crate::model::{Model, Phase};
use crate::simd::{self, Kernel};

/// `hc_read` without inject: `x: [T][W]` to `[T][H]`. The mean over the streams of the gated, normed residual.
pub(crate) fn read(model: &Model, w: &HyperRead, x: &[f32], phase: Phase) -> Vec<f32> {
    let n = normed(model, w, x);
    let low = project(&model.pool, w.down.view(), &model.operand(&n, model.hp.wide(), phase));
    mix(model, w, &n, low, phase)
}

/// `hc_read` and its inject weights: `x: [T][W]` to (`[T][H]`, `[T][C]`).
pub(crate) fn read_inject(model: &Model, w: &HyperConnection, x: &[f32], phase: Phase) -> (Vec<f32>, Vec<f32>) {
    let n = normed(model, &w.read, x);
    let operand = model.operand(&n, model.hp.wide(), phase);
    let [mut inject, low] = project_all(&model.pool, [w.inject.view(), w.read.down.view()], &operand);
    let streams = model.hp.streams as f32;
    math::map_in_place(&model.pool, &mut inject, |v| 2.0 * sigmoid(v / streams));
    (mix(model, &w.read, &n, low, phase), inject)
}

fn normed(model: &Model, w: &HyperRead, x: &[f32]) -> Vec<f32> {
    let (hp, gain) = (&model.hp, w.norm.as_slice());
    let mut n = vec![0.0; x.len()];
    model.pool.split(&mut n, hp.wide(), 2 * size_of_val(x), |first, n| {
        n.copy_from_slice(&x[first * hp.wide()..][..n.len()]);
        math::rms_norm_here(n, gain, hp.hidden, hp.rms_eps);
    });
    n
}

/// `low: [T][rank]`, the down projection of `n`.
fn mix(model: &Model, w: &HyperRead, n: &[f32], mut low: Vec<f32>, phase: Phase) -> Vec<f32> {
    let hp = &model.hp;
    let streams = hp.streams as f32;
    math::map_in_place(&model.pool, &mut low, |v| silu(v / streams));
    let gate = project(&model.pool, w.up.view(), &model.operand(&low, hp.hyper_rank, phase));
    let mut mixed = vec![0.0; n.len() / hp.streams];
    let wide = hp.wide();
    model.pool.split(&mut mixed, hp.hidden, 3 * size_of_val(n), |first, mixed| {
        let (gate, n) = (&gate[first * wide..], &n[first * wide..]);
        simd::run(GatedMean { gate, n, streams: hp.streams, hidden: hp.hidden, mixed });
    });
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
    let (wide, hidden, streams) = (model.hp.wide(), model.hp.hidden, model.hp.streams);
    let bytes = size_of_val(x);
    model.pool.split(x, wide, bytes, |first, x| {
        let rows = x.len() / wide;
        let (inject, out) = (&inject[first * streams..][..rows * streams], &out[first * hidden..][..rows * hidden]);
        simd::run(Write(x, inject, out, hidden));
    });
}
