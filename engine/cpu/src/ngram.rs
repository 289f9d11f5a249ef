//! Hashed n-gram embedding, injected at the top of one layer (qwen4exp.md 6).

use cudafast_model::NgramWeights;
use cudafast_runtime::TokenId;

use crate::gdn::convolve;
use crate::math::{self, dot_inline, sigmoid, silu};
use crate::matmul::project_all;
use crate::model::{Model, Phase, Rows};
use crate::probe::Probe;
use crate::simd::{self, Kernel};
use crate::state::ConvLog;

/// Smallest magnitude under the signed root.
const ROOT_MIN: f32 = 1e-6;

/// Adds the embedding of each row's n-grams to `x: [T][W]`. `tokens` are all tokens of the timeline up to the last row.
pub(crate) fn inject(
    model: &Model,
    w: &NgramWeights,
    conv: &mut ConvLog,
    x: &mut [f32],
    tokens: &[TokenId],
    rows: Rows,
    probe: &mut dyn Probe,
) {
    let hp = &model.hp;
    let wide = hp.wide();
    let n = x.len() / wide;
    let e = gather(model, tokens, rows, n, probe);
    let operand = model.operand(&e, hp.ngram.width(), rows.phase);
    let [mut key, value] = project_all(&model.pool, [w.key.view(), w.value.view()], &operand);
    math::rms_norm(&model.pool, &mut key, w.norm_key.as_slice(), hp.hidden, hp.rms_eps);
    probe.value(rows.layer, "ngram.embed", rows.position, hp.ngram.width(), &e);
    probe.value(rows.layer, "ngram.key", rows.position, wide, &key);
    probe.value(rows.layer, "ngram.value", rows.position, hp.hidden, &value);
    let mut query = x.to_vec();
    math::rms_norm(&model.pool, &mut query, w.norm_query.as_slice(), hp.hidden, hp.rms_eps);

    let mut gated = vec![0.0; n * wide];
    simd::run(Gate {
        key: &key,
        query: &query,
        value: &value,
        streams: hp.streams,
        hidden: hp.hidden,
        gated: &mut gated,
    });
    let mut normed = gated.clone();
    math::rms_norm(&model.pool, &mut normed, w.norm_conv.as_slice(), hp.hidden, hp.rms_eps);
    // The dilation has no key: it is the n-gram size.
    let mut mixed = vec![0.0; n * wide];
    convolve(&model.pool, w.conv.as_slice(), conv.settle(), &normed, wide, hp.ngram.ngram, &mut mixed);
    match rows.phase {
        Phase::Decode => conv.log(&normed),
        Phase::Prefill => conv.append(&normed),
    }
    probe.value(rows.layer, "ngram.gated", rows.position, wide, &gated);
    probe.value(rows.layer, "ngram.conv", rows.position, wide, &mixed);
    simd::run(Add { x, gated: &gated, mixed: &mixed });
}

/// `[T][P]`: the table rows of each token's n-grams, in head order.
fn gather(model: &Model, tokens: &[TokenId], rows: Rows, n: usize, probe: &mut dyn Probe) -> Vec<f32> {
    let ngram = &model.hp.ngram;
    let table = &model.weights.ngram_table;
    let mut ids = vec![0u64; ngram.heads()];
    let mut e = vec![0.0; n * ngram.width()];
    for (t, e) in e.chunks_exact_mut(ngram.width()).enumerate() {
        let end = rows.position + t + 1;
        ngram.row_ids(&tokens[end.saturating_sub(ngram.ngram)..end], &mut ids);
        probe.ngram_rows(rows.layer, rows.position + t, &ids);
        for (id, out) in ids.iter().zip(e.chunks_exact_mut(ngram.row_width)) {
            table.format.decode(table.view().row(*id as usize), out);
        }
    }
    e
}

/// `s = key . query / sqrt(H)` per stream, signed root, `gated = sigmoid(s) * value`.
struct Gate<'a> {
    key: &'a [f32],
    query: &'a [f32],
    value: &'a [f32],
    streams: usize,
    hidden: usize,
    gated: &'a mut [f32],
}

impl Kernel for Gate<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { key, query, value, streams, hidden, gated } = self;
        let scale = 1.0 / (hidden as f32).sqrt();
        let streams_of = key.chunks_exact(hidden).zip(query.chunks_exact(hidden)).zip(gated.chunks_exact_mut(hidden));
        for (i, ((key, query), gated)) in streams_of.enumerate() {
            let s = dot_inline(key, query) * scale;
            let root = s.abs().max(ROOT_MIN).sqrt();
            let signed = if s == 0.0 { 0.0 } else { root.copysign(s) };
            let weight = sigmoid(signed);
            let value = &value[i / streams * hidden..][..hidden];
            for (g, v) in gated.iter_mut().zip(value) {
                *g = weight * v;
            }
        }
    }
}

/// `x += gated + silu(mixed)`.
struct Add<'a> {
    x: &'a mut [f32],
    gated: &'a [f32],
    mixed: &'a [f32],
}

impl Kernel for Add<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for ((x, g), m) in self.x.iter_mut().zip(self.gated).zip(self.mixed) {
            *x = *x + *g + silu(*m);
        }
    }
}
