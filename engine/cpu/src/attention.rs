//! Sparse (QSA) attention (qwen4exp.md 5): one function for decode, verify and prefill rows.

use cudafast_model::AttentionWeights;

use crate::math::{self, axpy, dot_inline, exp, sigmoid};
use crate::matmul::{project, project_all};
use crate::model::{Model, Rows};
use crate::probe::Probe;
use crate::select::{Selected, select};
use crate::simd::{self, Kernel};
use crate::state::KvCache;

/// `x: [T][H]` to `[T][H]`. Writes the rows' keys and values at their positions; what lies above is overwritten.
pub(crate) fn forward(
    model: &Model,
    w: &AttentionWeights,
    kv: &mut KvCache,
    x: &[f32],
    rows: Rows,
    probe: &mut dyn Probe,
) -> Vec<f32> {
    let hp = &model.hp;
    let (at, ix) = (&hp.attention, &hp.indexer);
    let n = x.len() / hp.hidden;
    let operand = model.operand(x, hp.hidden, rows.phase);
    let projections = [w.q.view(), w.k.view(), w.v.view(), w.index_q.view(), w.index_k.view()];
    let [query_gate, mut keys, values, mut index_q, index_raw] = project_all(&model.pool, projections, &operand);

    // Per head: query channels, then gate channels.
    let (mut queries, mut gates) = (Vec::with_capacity(n * at.heads * at.head_dim), Vec::new());
    for head in query_gate.chunks_exact(2 * at.head_dim) {
        queries.extend_from_slice(&head[..at.head_dim]);
        gates.extend_from_slice(&head[at.head_dim..]);
    }
    math::rms_norm(&model.pool, &mut queries, w.q_norm.as_slice(), at.head_dim, hp.rms_eps);
    math::rms_norm(&model.pool, &mut keys, w.k_norm.as_slice(), at.head_dim, hp.rms_eps);
    math::rms_norm(&model.pool, &mut index_q, w.index_q_norm.as_slice(), ix.head_dim, hp.rms_eps);
    for t in 0..n {
        let angles = model.rope.angles(rows.position + t);
        let heads = [
            (&mut queries, at.heads, at.head_dim),
            (&mut keys, at.kv_heads, at.head_dim),
            (&mut index_q, ix.heads, ix.head_dim),
        ];
        for (values, heads, dim) in heads {
            for head in values[t * heads * dim..(t + 1) * heads * dim].chunks_exact_mut(dim) {
                angles.rotate(head);
            }
        }
    }
    let kv_width = at.kv_heads * at.head_dim;
    let layer = rows.layer;
    probe.value(layer, "attention.q", rows.position, at.heads * at.head_dim, &queries);
    probe.value(layer, "attention.gate", rows.position, at.heads * at.head_dim, &gates);
    probe.value(layer, "attention.k", rows.position, kv_width, &keys);
    probe.value(layer, "attention.v", rows.position, kv_width, &values);
    probe.value(layer, "attention.index_q", rows.position, ix.heads * ix.head_dim, &index_q);
    probe.value(layer, "attention.index_k", rows.position, ix.head_dim, &index_raw);
    for t in 0..n {
        let position = rows.position + t;
        kv.k.put(position, &keys[t * kv_width..(t + 1) * kv_width]);
        kv.v.put(position, &values[t * kv_width..(t + 1) * kv_width]);
        kv.index_raw.put(position, &index_raw[t * ix.head_dim..(t + 1) * ix.head_dim]);
        if (position + 1).is_multiple_of(ix.ratio) {
            pool_block(model, w, kv, position / ix.ratio);
        }
    }

    let kv = &*kv;
    let selected: Vec<Selected> = (0..n)
        .map(|t| {
            select(
                model,
                &kv.index_pooled,
                &index_q[t * ix.heads * ix.head_dim..][..ix.heads * ix.head_dim],
                rows.position + t + 1,
            )
        })
        .collect();
    for (t, selected) in selected.iter().enumerate() {
        probe.selection(layer, rows.position + t, selected);
    }
    let mut o = vec![0.0; n * at.heads * at.head_dim];
    let group = at.heads / at.kv_heads * at.head_dim;
    let bytes = selected.iter().map(Selected::len).sum::<usize>() * kv_width * 8;
    model.pool.split(&mut o, group, bytes, |first, piece| {
        for (i, o) in piece.chunks_exact_mut(group).enumerate() {
            let (t, kv_head) = ((first + i) / at.kv_heads, (first + i) % at.kv_heads);
            let q = &queries[(first + i) * group..(first + i + 1) * group];
            simd::run(Attend { q, kv, kv_head, dim: at.head_dim, tokens: &selected[t], o });
        }
    });
    probe.value(layer, "attention.core", rows.position, at.heads * at.head_dim, &o);
    math::zip_in_place(&model.pool, &mut o, &gates, |o, g| o * sigmoid(g));
    project(&model.pool, w.out.view(), &model.operand(&o, at.heads * at.head_dim, rows.phase))
}

/// Key of a completed QSA block: mean of its raw index keys, as stored, then norm, then rope at its first token.
fn pool_block(model: &Model, w: &AttentionWeights, kv: &mut KvCache, block: usize) {
    let ix = &model.hp.indexer;
    let mut mean = vec![0.0f32; ix.head_dim];
    let mut raw = vec![0.0; ix.head_dim];
    for token in block * ix.ratio..(block + 1) * ix.ratio {
        kv.index_raw.get(token, 0, &mut raw);
        for (m, r) in mean.iter_mut().zip(&raw) {
            *m += r;
        }
    }
    for m in &mut mean {
        *m /= ix.ratio as f32;
    }
    math::rms_norm(&model.pool, &mut mean, w.index_k_norm.as_slice(), ix.head_dim, model.hp.rms_eps);
    model.rope.angles(block * ix.ratio).rotate(&mut mean);
    kv.index_pooled.put(block, &mean);
}

/// Softmax attention of the query heads that share one key/value head, over the selected tokens, ascending.
struct Attend<'a> {
    q: &'a [f32],
    kv: &'a KvCache,
    kv_head: usize,
    dim: usize,
    tokens: &'a Selected,
    o: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { q, kv, kv_head, dim, tokens, o } = self;
        let heads = q.len() / dim;
        let count = tokens.len();
        let channel = kv_head * dim;
        // head_dim^-0.5 (qwen4exp.md 5).
        let scale = 1.0 / (dim as f32).sqrt();
        let mut row = vec![0.0f32; dim];
        // [head][token]
        let mut scores = vec![0.0f32; heads * count];
        for i in 0..count {
            kv.k.get(tokens.token(i), channel, &mut row);
            for (h, q) in q.chunks_exact(dim).enumerate() {
                scores[h * count + i] = dot_inline(q, &row) * scale;
            }
        }
        let mut totals = vec![0.0f32; heads];
        for (scores, total) in scores.chunks_exact_mut(count).zip(&mut totals) {
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for s in scores.iter_mut() {
                *s = exp(*s - max);
            }
            for s in scores {
                *total += *s;
            }
        }
        o.fill(0.0);
        for i in 0..count {
            kv.v.get(tokens.token(i), channel, &mut row);
            for (h, o) in o.chunks_exact_mut(dim).enumerate() {
                axpy(o, scores[h * count + i], &row);
            }
        }
        for (o, total) in o.chunks_exact_mut(dim).zip(totals) {
            for v in o {
                *v /= total;
            }
        }
    }
}
