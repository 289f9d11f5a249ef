//! Gated delta net (qwen4exp.md 4): recurrent for decode and verify rows, chunked for prefill.

use cudafast_model::{GdnWeights, Hyperparams};

use crate::math::{self, axpy, dot_inline, exp, sigmoid, silu, small_gemm, softplus, sum_squares};
use crate::matmul::{project, project_all};
use crate::model::{Model, Phase, Rows};
use crate::pool::Pool;
use crate::probe::Probe;
use crate::simd::{self, Kernel};
use crate::state::{GdnLayer, GdnRow};

/// Added to the sum of squares of q and k; a constant, not the file's epsilon.
const L2_EPS: f32 = 1e-6;

/// `x: [T][H]` to `[T][H]`, advancing the layer's state.
pub(crate) fn forward(
    model: &Model,
    w: &GdnWeights,
    layer: &mut GdnLayer,
    x: &[f32],
    rows: Rows,
    probe: &mut dyn Probe,
) -> Vec<f32> {
    let hp = &model.hp;
    let gdn = &hp.gdn;
    let n = x.len() / hp.hidden;
    let operand = model.operand(x, hp.hidden, rows.phase);
    let projections = [w.qkv.view(), w.gate.view(), w.alpha.view(), w.beta.view()];
    let [u, z, alpha, beta] = project_all(&model.pool, projections, &operand);
    let gates = Gates::new(w, &alpha, &beta, gdn.value_heads);
    probe.value(rows.layer, "gdn.qkv", rows.position, gdn.qkv_channels(), &u);
    probe.value(rows.layer, "gdn.gate", rows.position, gdn.inner(), &z);
    probe.value(rows.layer, "gdn.log_decay", rows.position, gdn.value_heads, &gates.g);
    probe.value(rows.layer, "gdn.beta", rows.position, gdn.value_heads, &gates.beta);

    let mut y = vec![0.0; u.len()];
    convolve(&model.pool, w.conv.as_slice(), layer.conv.settle(), &u, gdn.qkv_channels(), 1, &mut y);
    match rows.phase {
        Phase::Decode => layer.conv.log(&u),
        Phase::Prefill => layer.conv.append(&u),
    }
    drop(u);
    math::map_in_place(&model.pool, &mut y, silu);
    norm_queries_and_keys(&model.pool, &mut y, hp);
    probe.value(rows.layer, "gdn.conv", rows.position, gdn.qkv_channels(), &y);

    let inner = gdn.inner();
    let mut o = vec![0.0; n * inner];
    match rows.phase {
        Phase::Decode => recurrent(model, layer, &y, &gates, &mut o),
        Phase::Prefill => chunked(model, layer, &y, &gates, rows.position, &mut o),
    }

    probe.value(rows.layer, "gdn.core", rows.position, inner, &o);
    math::rms_norm(&model.pool, &mut o, w.norm.as_slice(), gdn.head_dim, hp.rms_eps);
    // The output gate is a sigmoid, not a silu.
    math::zip_in_place(&model.pool, &mut o, &z, |o, z| o * sigmoid(z));
    project(&model.pool, w.out.view(), &model.operand(&o, inner, rows.phase))
}

/// Per row and value head: log decay `g <= 0` and update rate `beta`.
#[derive(Debug)]
struct Gates {
    g: Vec<f32>,
    beta: Vec<f32>,
    heads: usize,
}

impl Gates {
    fn new(w: &GdnWeights, a: &[f32], b: &[f32], heads: usize) -> Self {
        let scale = w.a.as_slice().iter().zip(w.dt_bias.as_slice()).cycle();
        let g = a.iter().zip(scale).map(|(a, (ssm_a, bias))| ssm_a * softplus(a + bias)).collect();
        Self { g, beta: b.iter().map(|b| sigmoid(*b)).collect(), heads }
    }
    #[inline(always)]
    fn at(&self, row: usize, head: usize) -> (f32, f32) {
        let i = row * self.heads + head;
        (self.g[i], self.beta[i])
    }
}

/// Causal convolution, channel by channel: `y[t][c] = sum_j taps[c][j] * u[t - (K-1-j) * dilation][c]`, `j` ascending,
/// rows before the first taken from `history`. `taps: [C][K]`, `history: [(K-1) * dilation][C]`.
pub(crate) fn convolve(
    pool: &Pool,
    taps: &[f32],
    history: &[f32],
    u: &[f32],
    channels: usize,
    dilation: usize,
    y: &mut [f32],
) {
    struct Conv<'a> {
        taps: &'a [f32],
        history: &'a [f32],
        u: &'a [f32],
        channels: usize,
        dilation: usize,
        first: usize,
        y: &'a mut [f32],
    }
    impl Kernel for Conv<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            let Conv { taps, history, u, channels, dilation, first, y } = self;
            let kernel = taps.len() / channels;
            let past = history.len() / channels;
            for (t, y) in y.chunks_exact_mut(channels).enumerate() {
                y.fill(0.0);
                for j in 0..kernel {
                    // Row t of `u` is row past + t of history followed by u.
                    let row = past + first + t - (kernel - 1 - j) * dilation;
                    let source = if row < past { &history[row * channels..] } else { &u[(row - past) * channels..] };
                    for ((y, s), taps) in y.iter_mut().zip(source).zip(taps.chunks_exact(kernel)) {
                        *y = taps[j].mul_add(*s, *y);
                    }
                }
            }
        }
    }
    let kernel = taps.len() / channels;
    let bytes = kernel * size_of_val(y);
    pool.split(y, channels, bytes, |first, y| simd::run(Conv { taps, history, u, channels, dilation, first, y }));
}

/// L2 norm per head of q and k, q also scaled by `1 / sqrt(dim)`; v stays.
fn norm_queries_and_keys(pool: &Pool, y: &mut [f32], hp: &Hyperparams) {
    struct Norm<'a>(&'a mut [f32], usize, usize, usize);
    impl Kernel for Norm<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            let Norm(y, channels, heads, dim) = self;
            let query_scale = 1.0 / (dim as f32).sqrt();
            for row in y.chunks_exact_mut(channels) {
                for (i, head) in row.chunks_exact_mut(dim).take(2 * heads).enumerate() {
                    let mut scale = 1.0 / (sum_squares(head) + L2_EPS).sqrt();
                    if i < heads {
                        scale *= query_scale;
                    }
                    for v in head {
                        *v *= scale;
                    }
                }
            }
        }
    }
    let channels = hp.gdn.qkv_channels();
    let bytes = size_of_val(y);
    pool.split(y, channels, bytes, |_, y| simd::run(Norm(y, channels, hp.gdn.key_heads, hp.gdn.head_dim)));
}

/// Views of one post-convolution row.
#[derive(Clone, Copy)]
struct Qkv<'a> {
    y: &'a [f32],
    channels: usize,
    key_heads: usize,
    dim: usize,
}

impl<'a> Qkv<'a> {
    fn new(y: &'a [f32], hp: &Hyperparams) -> Self {
        Self { y, channels: hp.gdn.qkv_channels(), key_heads: hp.gdn.key_heads, dim: hp.gdn.head_dim }
    }
    #[inline(always)]
    fn head(&self, row: usize, head: usize) -> &'a [f32] {
        &self.y[row * self.channels + head * self.dim..][..self.dim]
    }
    #[inline(always)]
    fn q(&self, row: usize, key_head: usize) -> &'a [f32] {
        self.head(row, key_head)
    }
    #[inline(always)]
    fn k(&self, row: usize, key_head: usize) -> &'a [f32] {
        self.head(row, self.key_heads + key_head)
    }
    #[inline(always)]
    fn v(&self, row: usize, value_head: usize) -> &'a [f32] {
        self.head(row, 2 * self.key_heads + value_head)
    }
    fn rows(&self) -> usize {
        self.y.len() / self.channels
    }
}

/// Row by row on top of the base state, into which the rows accepted of the last round are folded on the way. The rows
/// of this round are logged; the base stays as it was before them.
fn recurrent(model: &Model, layer: &mut GdnLayer, y: &[f32], gates: &Gates, o: &mut [f32]) {
    let hp = &model.hp;
    let dim = hp.gdn.head_dim;
    let heads = hp.gdn.value_heads;
    let qkv = Qkv::new(y, hp);
    let n = qkv.rows();
    let pending = layer.take_accepted();

    // One work item per head: its state, its outputs and its update vectors.
    let mut results = vec![0.0; 2 * heads * n * dim];
    let mut items: Vec<(&mut [f32], &mut [f32])> =
        layer.s.chunks_exact_mut(dim * dim).zip(results.chunks_exact_mut(2 * n * dim)).collect();
    let bytes = 2 * n * heads * dim * dim * size_of::<f32>();
    model.pool.split(&mut items, 1, bytes, |first, items| {
        let mut scratch = vec![0.0; if n > 1 { dim * dim } else { 0 }];
        for (i, (base, results)) in items.iter_mut().enumerate() {
            let (o, delta) = results.split_at_mut(n * dim);
            let head = first + i;
            simd::run(HeadRows { qkv, gates, head, pending: &pending, base, scratch: &mut scratch, o, delta });
        }
    });
    drop(items);
    let mut log: Vec<GdnRow> = (0..n)
        .map(|t| GdnRow {
            decay: (0..heads).map(|h| exp(gates.at(t, h).0)).collect(),
            k: qkv.y[t * qkv.channels + qkv.key_heads * dim..][..qkv.key_heads * dim].to_vec(),
            delta: Vec::with_capacity(heads * dim),
        })
        .collect();
    for (head, results) in results.chunks_exact(2 * n * dim).enumerate() {
        let (out, delta) = results.split_at(n * dim);
        for (t, (out, delta)) in out.chunks_exact(dim).zip(delta.chunks_exact(dim)).enumerate() {
            o[(t * heads + head) * dim..][..dim].copy_from_slice(out);
            log[t].delta.extend_from_slice(delta);
        }
    }
    layer.rows = log;
}

/// The recurrence of one value head over the rows of a round: one pass over the state a row.
///
/// With `D = e^g S` the decayed state, a row's update vector is `delta = beta (v - D^T k)` and its output
/// `(D + k delta^T)^T q = D^T q + (k . q) delta`, so both come from one pass; the pass also applies the updates before the
/// row: those accepted of the last round to the base, the row before to a copy.
struct HeadRows<'a> {
    qkv: Qkv<'a>,
    gates: &'a Gates,
    head: usize,
    pending: &'a [GdnRow],
    base: &'a mut [f32],
    scratch: &'a mut [f32],
    o: &'a mut [f32],
    delta: &'a mut [f32],
}

impl Kernel for HeadRows<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { qkv, gates, head, pending, base, scratch, o, delta } = self;
        let dim = qkv.dim;
        // Tiled pairing: h / 3 reads as fluent garbage.
        let key_head = head % qkv.key_heads;
        for t in 0..qkv.rows() {
            let (g, beta) = gates.at(t, head);
            let (q, k, v) = (qkv.q(t, key_head), qkv.k(t, key_head), qkv.v(t, head));
            let read = Read { decay: exp(g), k, q };
            let (before, rest) = delta.split_at_mut(t * dim);
            let (delta, o) = (&mut rest[..dim], &mut o[t * dim..(t + 1) * dim]);
            match t {
                0 => {
                    // All but the last accepted row have a pass of their own; there are seldom any.
                    let (last, earlier) = match pending.split_last() {
                        Some((last, earlier)) => (Some(Update::logged(last, head, key_head, dim)), earlier),
                        None => (None, pending),
                    };
                    for row in earlier {
                        Update::logged(row, head, key_head, dim).apply(base);
                    }
                    match last {
                        Some(update) => pass(base, |s, row| update.row(s, row), read, delta, o),
                        None => pass(base, |_, _| (), read, delta, o),
                    }
                }
                _ => {
                    let (g, _) = gates.at(t - 1, head);
                    let update =
                        Update { decay: exp(g), k: qkv.k(t - 1, key_head), delta: &before[(t - 1) * dim..t * dim] };
                    if t == 1 {
                        scratch.copy_from_slice(base);
                    }
                    pass(scratch, |s, row| update.row(s, row), read, delta, o);
                }
            }
            for (d, v) in delta.iter_mut().zip(v) {
                *d = beta * (v - *d);
            }
            axpy(o, dot_inline(k, q), delta);
        }
    }
}

/// What a pass multiplies the decayed state with.
#[derive(Clone, Copy)]
struct Read<'a> {
    decay: f32,
    k: &'a [f32],
    q: &'a [f32],
}

/// `from_k = D^T k` and `from_q = D^T q` with `D = decay * S`, key rows ascending, after `update` was applied to each
/// piece of a row of `S`.
#[inline(always)]
fn pass(s: &mut [f32], update: impl Fn(&mut [f32], usize), read: Read<'_>, from_k: &mut [f32], from_q: &mut [f32]) {
    let dim = from_k.len();
    from_k.fill(0.0);
    from_q.fill(0.0);
    for (i, row) in s.chunks_exact_mut(dim).enumerate() {
        update(row, i);
        let (k, q) = (read.k[i], read.q[i]);
        for ((s, from_k), from_q) in row.iter().zip(from_k.iter_mut()).zip(from_q.iter_mut()) {
            let decayed = *s * read.decay;
            *from_k = k.mul_add(decayed, *from_k);
            *from_q = q.mul_add(decayed, *from_q);
        }
    }
}

/// One row's update of `S`: `S = decay S + k delta^T`.
#[derive(Clone, Copy)]
struct Update<'a> {
    decay: f32,
    k: &'a [f32],
    delta: &'a [f32],
}

impl<'a> Update<'a> {
    #[inline(always)]
    fn logged(row: &'a GdnRow, head: usize, key_head: usize, dim: usize) -> Self {
        let k = &row.k[key_head * dim..(key_head + 1) * dim];
        Self { decay: row.decay[head], k, delta: &row.delta[head * dim..(head + 1) * dim] }
    }

    /// Key row `i` of `S`.
    #[inline(always)]
    fn row(&self, s: &mut [f32], i: usize) {
        let k = self.k[i];
        for (s, d) in s.iter_mut().zip(self.delta) {
            *s = k.mul_add(*d, *s * self.decay);
        }
    }

    #[inline(always)]
    fn apply(&self, s: &mut [f32]) {
        for (i, row) in s.chunks_exact_mut(self.delta.len()).enumerate() {
            self.row(row, i);
        }
    }
}

/// Applies logged updates to one head's `S`: the same operations in the same order as the next round's.
pub(crate) fn replay(s: &mut [f32], rows: &[GdnRow], head: usize, hp: &Hyperparams) {
    struct Replay<'a>(&'a mut [f32], Update<'a>);
    impl Kernel for Replay<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            self.1.apply(self.0);
        }
    }
    let key_head = head % hp.gdn.key_heads;
    for row in rows {
        simd::run(Replay(s, Update::logged(row, head, key_head, hp.gdn.head_dim)));
    }
}

/// Chunks cut at absolute multiples of [`CHUNK_TOKENS`](cudafast_runtime::CHUNK_TOKENS).
fn chunked(model: &Model, layer: &mut GdnLayer, y: &[f32], gates: &Gates, position: usize, o: &mut [f32]) {
    let hp = &model.hp;
    let dim = hp.gdn.head_dim;
    let heads = hp.gdn.value_heads;
    let qkv = Qkv::new(y, hp);
    let n = qkv.rows();
    let pending = layer.take_accepted();
    let mut items: Vec<(&mut [f32], Vec<f32>)> =
        layer.s.chunks_exact_mut(dim * dim).map(|s| (s, vec![0.0; n * dim])).collect();
    let bytes = n * heads * dim * dim * size_of::<f32>() / 8;
    model.pool.split(&mut items, 1, bytes, |first, items| {
        for (i, (s, o)) in items.iter_mut().enumerate() {
            replay(s, &pending, first + i, hp);
            let mut start = 0;
            while start < n {
                let end =
                    n.min(start + cudafast_runtime::CHUNK_TOKENS - (position + start) % cudafast_runtime::CHUNK_TOKENS);
                let o = &mut o[start * dim..end * dim];
                simd::run(Chunk { qkv, gates, head: first + i, rows: start..end, s, o });
                start = end;
            }
        }
    });
    for (head, (_, out)) in items.iter().enumerate() {
        for (t, out) in out.chunks_exact(dim).enumerate() {
            o[(t * heads + head) * dim..][..dim].copy_from_slice(out);
        }
    }
}

/// One chunk of one value head (qwen4exp.md 4, chunked form), solved for the update vectors directly:
/// `delta_i = beta_i (v_i - e^{G_i} S0^T k_i) - sum_{j<i} beta_i e^{G_i - G_j} (k_i . k_j) delta_j`, which is
/// `U - Wk S0` of the two-solve form with one solve less. Row `i` reads rows `<= i` only, in ascending order, so its bits do
/// not depend on how many rows follow in the chunk.
struct Chunk<'a> {
    qkv: Qkv<'a>,
    gates: &'a Gates,
    head: usize,
    rows: std::ops::Range<usize>,
    s: &'a mut [f32],
    o: &'a mut [f32],
}

impl Kernel for Chunk<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { qkv, gates, head, rows, s, o } = self;
        let dim = qkv.dim;
        let n = rows.len();
        let key_head = head % qkv.key_heads;
        let q: Vec<f32> = rows.clone().flat_map(|t| qkv.q(t, key_head)).copied().collect();
        let k: Vec<f32> = rows.clone().flat_map(|t| qkv.k(t, key_head)).copied().collect();
        let mut cumulative = Vec::with_capacity(n);
        let mut total = 0.0f32;
        for t in rows.clone() {
            total += gates.at(t, head).0;
            cumulative.push(total);
        }
        // fade[i, j] = e^{G_i - G_j} for j <= i, which is at most 1.
        let mut fade = vec![0.0; n * n];
        for (i, fade) in fade.chunks_exact_mut(n).enumerate() {
            for (fade, earlier) in fade[..=i].iter_mut().zip(&cumulative) {
                *fade = exp(cumulative[i] - earlier);
            }
        }
        let mut k_turned = vec![0.0; dim * n];
        for (i, k) in k.chunks_exact(dim).enumerate() {
            for (turned, k) in k_turned.chunks_exact_mut(n).zip(k) {
                turned[i] = *k;
            }
        }
        // [i, j]: k_i . k_j, then q_i . k_j.
        let mut scores = vec![0.0; n * n];
        small_gemm(&k, dim, &k_turned, n, &mut scores);
        let mut delta = vec![0.0; n * dim];
        small_gemm(&k, dim, s, dim, &mut delta);
        let mut earlier_part = vec![0.0; dim];
        for i in 0..n {
            let beta = gates.at(rows.start + i, head).1;
            let (done, rest) = delta.split_at_mut(i * dim);
            let row = &mut rest[..dim];
            let weights = &mut scores[i * n..][..i];
            for (weight, fade) in weights.iter_mut().zip(&fade[i * n..]) {
                *weight *= beta * fade;
            }
            small_gemm(weights, i, done, dim, &mut earlier_part);
            let decay = exp(cumulative[i]);
            let v = qkv.v(rows.start + i, head);
            for ((d, v), earlier) in row.iter_mut().zip(v).zip(&earlier_part) {
                *d = beta * (v - decay * *d) - earlier;
            }
        }
        small_gemm(&q, dim, &k_turned, n, &mut scores);
        small_gemm(&q, dim, s, dim, o);
        for i in 0..n {
            let weights = &mut scores[i * n..][..i + 1];
            for (weight, fade) in weights.iter_mut().zip(&fade[i * n..]) {
                *weight *= fade;
            }
            small_gemm(weights, i + 1, &delta[..(i + 1) * dim], dim, &mut earlier_part);
            let decay = exp(cumulative[i]);
            for (o, part) in o[i * dim..(i + 1) * dim].iter_mut().zip(&earlier_part) {
                *o = decay.mul_add(*o, *part);
            }
        }
        // S = e^{G_n} S + sum_j e^{G_n - G_j} k_j delta_j^T.
        for turned in k_turned.chunks_exact_mut(n) {
            for (k, fade) in turned.iter_mut().zip(&fade[(n - 1) * n..]) {
                *k *= fade;
            }
        }
        let mut update = vec![0.0; dim * dim];
        small_gemm(&k_turned, n, &delta, dim, &mut update);
        let decay = exp(cumulative[n - 1]);
        for (s, update) in s.iter_mut().zip(update) {
            *s = decay.mul_add(*s, update);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::{delta_rule, l2_norm};

    const DIM: usize = 32;
    const CHANNELS: usize = 3 * DIM;

    /// One key head and one value head: `y` rows as the recurrence takes them (q scaled, q and k normed), and gates.
    fn rows(n: usize) -> impl Strategy<Value = (Vec<f32>, Gates)> {
        let values = proptest::collection::vec(-2.0f32..2.0, n * CHANNELS);
        let g = proptest::collection::vec(-1.5f32..0.0, n);
        let beta = proptest::collection::vec(0.0f32..1.0, n);
        (values, g, beta).prop_map(|(mut y, g, beta)| {
            for row in y.chunks_exact_mut(CHANNELS) {
                let q: Vec<f32> = l2_norm(&row[..DIM]).iter().map(|v| v / (DIM as f32).sqrt()).collect();
                let k = l2_norm(&row[DIM..2 * DIM]);
                row[..DIM].copy_from_slice(&q);
                row[DIM..2 * DIM].copy_from_slice(&k);
            }
            (y, Gates { g, beta, heads: 1 })
        })
    }

    fn qkv(y: &[f32]) -> Qkv<'_> {
        Qkv { y, channels: CHANNELS, key_heads: 1, dim: DIM }
    }

    fn recurrent_rows(y: &[f32], gates: &Gates, s: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let n = y.len() / CHANNELS;
        let (mut o, mut delta) = (vec![f32::NAN; n * DIM], vec![f32::NAN; n * DIM]);
        let (mut base, mut scratch) = (s.to_vec(), vec![f32::NAN; DIM * DIM]);
        let (o_out, delta_out) = (&mut o[..], &mut delta[..]);
        let (base_out, scratch) = (&mut base[..], &mut scratch[..]);
        HeadRows { qkv: qkv(y), gates, head: 0, pending: &[], base: base_out, scratch, o: o_out, delta: delta_out }
            .run();
        assert_eq!(base, s, "a round changed the state it stands on");
        (o, delta)
    }

    fn assert_close(got: &[f32], want: &[f32]) {
        let largest = want.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() <= 2e-5 * largest, "{g} against {w}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// f32 rounding over up to 140 rows; both forms are the same function.
        #[test]
        fn chunked_and_recurrent_rows_equal_the_reference((y, gates) in (1usize..140).prop_flat_map(rows), position in 0usize..64) {
            let n = y.len() / CHANNELS;
            let (mut want_s, mut want) = (vec![0.0; DIM * DIM], Vec::new());
            for (t, row) in y.chunks_exact(CHANNELS).enumerate() {
                let (q, k, v) = (&row[..DIM], &row[DIM..2 * DIM], &row[2 * DIM..]);
                want.extend(delta_rule(&mut want_s, q, k, v, gates.g[t], gates.beta[t]));
            }
            let (recurrent, _) = recurrent_rows(&y, &gates, &vec![0.0; DIM * DIM]);
            assert_close(&recurrent, &want);
            let (mut s, mut chunked) = (vec![0.0; DIM * DIM], vec![f32::NAN; n * DIM]);
            let mut start = 0;
            while start < n {
                let end = n.min(start + 64 - (position + start) % 64);
                let o = &mut chunked[start * DIM..end * DIM];
                Chunk { qkv: qkv(&y), gates: &gates, head: 0, rows: start..end, s: &mut s, o }.run();
                start = end;
            }
            assert_close(&chunked, &want);
            assert_close(&s, &want_s);
        }

        #[test]
        fn a_row_of_a_round_does_not_depend_on_the_rows_after_it((y, gates) in rows(7), s in proptest::collection::vec(-1.0f32..1.0, DIM * DIM)) {
            let (all, all_delta) = recurrent_rows(&y, &gates, &s);
            for n in 1..7 {
                let (o, delta) = recurrent_rows(&y[..n * CHANNELS], &gates, &s);
                prop_assert_eq!(&o[..], &all[..n * DIM]);
                prop_assert_eq!(&delta[..], &all_delta[..n * DIM]);
            }
        }

        #[test]
        fn a_row_of_a_chunk_does_not_depend_on_the_rows_after_it((y, gates) in rows(64), s in proptest::collection::vec(-1.0f32..1.0, DIM * DIM)) {
            let run = |n: usize| {
                let (mut s, mut o) = (s.clone(), vec![f32::NAN; n * DIM]);
                Chunk { qkv: qkv(&y), gates: &gates, head: 0, rows: 0..n, s: &mut s, o: &mut o }.run();
                o
            };
            let all = run(64);
            for n in [1, 2, 17, 63] {
                prop_assert_eq!(&run(n)[..], &all[..n * DIM]);
            }
        }

        /// taps oldest first, dilated, history before the first row.
        #[test]
        fn convolution_equals_the_reference_for_any_history(
            u in proptest::collection::vec(-2.0f32..2.0, 5 * 8),
            history in proptest::collection::vec(-2.0f32..2.0, 9 * 8),
            taps in proptest::collection::vec(-1.0f32..1.0, 4 * 8),
        ) {
            let mut y = vec![f32::NAN; u.len()];
            convolve(&Pool::new(1).unwrap(), &taps, &history, &u, 8, 3, &mut y);
            let mut window: Vec<Vec<f32>> = history.chunks_exact(8).map(<[f32]>::to_vec).collect();
            for (t, row) in u.chunks_exact(8).enumerate() {
                window.push(row.to_vec());
                for c in 0..8 {
                    let want = crate::reference::conv_tap_sum(&taps, c, 4, &window, 3);
                    prop_assert!((y[t * 8 + c] - want).abs() < 1e-5);
                }
            }
        }
    }
}
