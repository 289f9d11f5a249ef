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

    // Per head: query channels, then gate channels. A row is rotated where it is copied: the angles are its own.
    let width = at.heads * at.head_dim;
    let (mut queries, mut gates) = (vec![0.0; n * width], vec![0.0; n * width]);
    let (kv_width, index_width) = (at.kv_heads * at.head_dim, ix.heads * ix.head_dim);
    let mut parts: Vec<_> = queries
        .chunks_exact_mut(width)
        .zip(gates.chunks_exact_mut(width))
        .zip(keys.chunks_exact_mut(kv_width).zip(index_q.chunks_exact_mut(index_width)))
        .collect();
    let bytes = size_of_val(&query_gate[..]) * 4;
    model.pool.split(&mut parts, 1, bytes, |first, parts| {
        for (i, ((queries, gates), (keys, index_q))) in parts.iter_mut().enumerate() {
            let row = &query_gate[(first + i) * 2 * width..][..2 * width];
            let heads = queries.chunks_exact_mut(at.head_dim).zip(gates.chunks_exact_mut(at.head_dim));
            for ((query, gate), head) in heads.zip(row.chunks_exact(2 * at.head_dim)) {
                query.copy_from_slice(&head[..at.head_dim]);
                gate.copy_from_slice(&head[at.head_dim..]);
            }
            let angles = model.rope.angles(rows.position + first + i);
            let normed = [
                (&mut **queries, w.q_norm.as_slice(), at.head_dim),
                (&mut **keys, w.k_norm.as_slice(), at.head_dim),
                (&mut **index_q, w.index_q_norm.as_slice(), ix.head_dim),
            ];
            for (values, gain, dim) in normed {
                math::rms_norm_here(values, gain, dim, hp.rms_eps);
                values.chunks_exact_mut(dim).for_each(|head| angles.rotate(head));
            }
        }
    });
    drop(parts);
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
    let mut selected: Vec<Selected> = (0..n).map(|_| Selected::Dense(0)).collect();
    let scored = (rows.position + n) / ix.ratio * ix.head_dim * ix.heads;
    let choose = |first: usize, selected: &mut [Selected]| {
        for (i, selected) in selected.iter_mut().enumerate() {
            let query = &index_q[(first + i) * index_width..][..index_width];
            *selected = select(model, &kv.index_pooled, query, rows.position + first + i + 1);
        }
    };
    match n {
        // One row's scores are split instead.
        1 => choose(0, &mut selected),
        _ => model.pool.split(&mut selected, 1, n * scored * 2, choose),
    }
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
