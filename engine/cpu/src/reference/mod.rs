//! The model read against qwen4exp.md: one function per formula, one token at a time, never tuned.
//!
//! Weights are dequantised, activations are f32, sums run in f64. [`Reference::step`] is section 3, and the fast path is
//! tested against it operation by operation; it is tested against the oracle.

mod ops;

use cudafast_model::{
    AttentionWeights, DraftHead, GdnWeights, HyperConnection, HyperRead, Hyperparams, Layer, Mixer, MoeWeights,
    NgramWeights, Weights,
};
use cudafast_runtime::TokenId;

use crate::HeadNorm;
pub use ops::{
    conv_tap_sum, delta_rule, l2_norm, matvec, mean_of_streams, pool_key, rms, rope, route, select_blocks, sigmoid,
    silu, softmax, softplus,
};

/// State between tokens, in the plainest form (qwen4exp.md 8).
#[derive(Clone)]
pub struct ReferenceState {
    /// Tokens so far.
    pub tokens: Vec<TokenId>,
    layers: Vec<LayerMemory>,
    ngram_conv: Vec<Vec<f32>>,
}

/// Per token `(k, v, raw index key)` of an attention layer, or the convolution window and `S` of a delta net layer.
#[derive(Clone)]
enum LayerMemory {
    Gdn { window: Vec<Vec<f32>>, s: Vec<f32> },
    Attention(AttentionMemory),
}

/// Caches of one attention layer.
#[derive(Clone, Default)]
pub struct AttentionMemory {
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    index: Vec<Vec<f32>>,
}

impl AttentionMemory {
    /// Forgets rows at and above `rows`.
    pub fn truncate(&mut self, rows: usize) {
        self.k.truncate(rows);
        self.v.truncate(rows);
        self.index.truncate(rows);
    }
}

/// What one token produced.
pub struct Step {
    /// `[V]`.
    pub logits: Vec<f32>,
    /// `[H]`, after the final mixer: what the output matrix reads.
    pub mixed: Vec<f32>,
    /// `[W]`, after the last layer: what the draft head reads.
    pub residual: Vec<f32>,
    /// `[W]` after each layer.
    pub layers: Vec<Vec<f32>>,
    /// Expert ids per layer, best first.
    pub experts: Vec<Vec<u32>>,
    /// Attended tokens per layer; empty for delta net layers.
    pub selected: Vec<Vec<usize>>,
    /// n-gram table rows.
    pub ngram_rows: Vec<u64>,
}

/// The model, borrowed.
pub struct Reference<'a> {
    hp: &'a Hyperparams,
    weights: &'a Weights,
    head: Option<&'a DraftHead>,
    head_norm: HeadNorm,
}

impl<'a> Reference<'a> {
    /// Borrows bound weights.
    pub fn new(hp: &'a Hyperparams, weights: &'a Weights, head: Option<&'a DraftHead>, head_norm: HeadNorm) -> Self {
        Self { hp, weights, head, head_norm }
    }

    /// State before the first token.
    pub fn start(&self) -> ReferenceState {
        let gdn = &self.hp.gdn;
        let layer = |layer: &Layer| match layer.mixer {
            Mixer::Gdn(_) => LayerMemory::Gdn {
                window: vec![vec![0.0; gdn.qkv_channels()]; gdn.conv_kernel - 1],
                s: vec![0.0; gdn.value_heads * gdn.head_dim * gdn.head_dim],
            },
            Mixer::Attention(_) => LayerMemory::Attention(AttentionMemory::default()),
        };
        ReferenceState {
            tokens: Vec::new(),
            layers: self.weights.layers.iter().map(layer).collect(),
            ngram_conv: vec![vec![0.0; self.hp.wide()]; self.hp.ngram.conv_history()],
        }
    }

    /// One token through the whole model (qwen4exp.md 3).
    pub fn step(&self, state: &mut ReferenceState, token: TokenId) -> Step {
        let hp = self.hp;
        let position = state.tokens.len();
        state.tokens.push(token);
        let mut x = ops::embedding_row(&self.weights.token_embd, token as usize).repeat(hp.streams);
        let mut step = Step {
            logits: Vec::new(),
            mixed: Vec::new(),
            residual: Vec::new(),
            layers: Vec::new(),
            experts: Vec::new(),
            selected: Vec::new(),
            ngram_rows: Vec::new(),
        };
        for (layer, memory) in self.weights.layers.iter().zip(&mut state.layers) {
            if let Some(w) = &layer.ngram {
                step.ngram_rows = self.ngram(w, &mut state.ngram_conv, &mut x, &state.tokens);
            }
            let (selected, experts) = self.block(layer, memory, &mut x, position);
            step.layers.push(x.clone());
            step.selected.push(selected);
            step.experts.push(experts);
        }
        step.mixed = self.hc_read(&self.weights.output_hc, &x);
        step.logits = matvec(&self.weights.output, &step.mixed);
        step.residual = x;
        step
    }

    /// One draft-head row (qwen4exp.md 9): logits and the head's own wide residual.
    pub fn head_row(
        &self,
        memory: &mut AttentionMemory,
        residual: &[f32],
        next: TokenId,
    ) -> Option<(Vec<f32>, Vec<f32>)> {
        let (hp, head) = (self.hp, self.head?);
        let position = memory.k.len();
        let e = rms(&ops::embedding_row(&head.token_embd, next as usize), head.enorm.as_slice(), hp.hidden, hp.rms_eps);
        let group = match self.head_norm {
            HeadNorm::Single => hp.wide(),
            HeadNorm::PerStream => hp.hidden,
        };
        let h = rms(residual, head.hnorm.as_slice(), group, hp.rms_eps);
        let mut x: Vec<f32> =
            h.chunks_exact(hp.hidden).flat_map(|stream| matvec(&head.eh_proj, &[&e[..], stream].concat())).collect();
        let mut wrapped = LayerMemory::Attention(std::mem::take(memory));
        self.block(&head.block, &mut wrapped, &mut x, position);
        if let LayerMemory::Attention(kept) = wrapped {
            *memory = kept;
        }
        // The head's mixer is its final norm.
        Some((matvec(&head.output, &self.hc_read(&head.hc_head, &x)), x))
    }

    /// Mixer, then experts, each inside its hyper-connection. Returns attended tokens and expert ids.
    fn block(&self, layer: &Layer, memory: &mut LayerMemory, x: &mut [f32], position: usize) -> (Vec<usize>, Vec<u32>) {
        let (x_in, inject) = self.hc_read_inject(&layer.hc_mixer, x);
        let (out, selected) = match (&layer.mixer, memory) {
            (Mixer::Gdn(w), LayerMemory::Gdn { window, s }) => (self.gdn(w, window, s, &x_in), Vec::new()),
            (Mixer::Attention(w), LayerMemory::Attention(memory)) => self.attention(w, memory, &x_in, position),
            _ => unreachable!("state is built from the same schedule as the weights"),
        };
        self.hc_write(x, &inject, &out);
        let (x_in, inject) = self.hc_read_inject(&layer.hc_ffn, x);
        let (out, experts) = self.moe(&layer.moe, &x_in);
        self.hc_write(x, &inject, &out);
        (selected, experts)
    }

    /// qwen4exp.md 2, `hc_read` without inject.
    fn hc_read(&self, w: &HyperRead, x: &[f32]) -> Vec<f32> {
        let hp = self.hp;
        let n = rms(x, w.norm.as_slice(), hp.hidden, hp.rms_eps);
        let low: Vec<f32> = matvec(&w.down, &n).iter().map(|v| silu(v / hp.streams as f32)).collect();
        let gated: Vec<f32> = matvec(&w.up, &low).iter().zip(&n).map(|(g, n)| sigmoid(*g) * n).collect();
        mean_of_streams(&gated, hp.hidden)
    }

    /// qwen4exp.md 2, `hc_read` with inject weights.
    fn hc_read_inject(&self, w: &HyperConnection, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let hp = self.hp;
        let n = rms(x, w.read.norm.as_slice(), hp.hidden, hp.rms_eps);
        let inject = matvec(&w.inject, &n).iter().map(|v| 2.0 * sigmoid(v / hp.streams as f32)).collect();
        (self.hc_read(&w.read, x), inject)
    }

    /// qwen4exp.md 2, hyper-connection write.
    fn hc_write(&self, x: &mut [f32], inject: &[f32], out: &[f32]) {
        for (stream, inject) in x.chunks_exact_mut(self.hp.hidden).zip(inject) {
            for (v, o) in stream.iter_mut().zip(out) {
                *v += inject * o;
            }
        }
    }

    /// qwen4exp.md 4.
    fn gdn(&self, w: &GdnWeights, window: &mut Vec<Vec<f32>>, s: &mut [f32], x: &[f32]) -> Vec<f32> {
        let gdn = &self.hp.gdn;
        let dim = gdn.head_dim;
        window.push(matvec(&w.qkv, x));
        let y: Vec<f32> = (0..gdn.qkv_channels())
            .map(|c| silu(conv_tap_sum(w.conv.as_slice(), c, gdn.conv_kernel, window, 1)))
            .collect();
        window.remove(0);
        let z = matvec(&w.gate, x);
        let alpha = matvec(&w.alpha, x);
        let beta = matvec(&w.beta, x);
        let keys = gdn.key_heads * dim;
        let mut o = Vec::with_capacity(gdn.inner());
        for h in 0..gdn.value_heads {
            let key_head = h % gdn.key_heads;
            let q: Vec<f32> = l2_norm(&y[key_head * dim..][..dim]).iter().map(|v| v / (dim as f32).sqrt()).collect();
            let k = l2_norm(&y[keys + key_head * dim..][..dim]);
            let v = &y[2 * keys + h * dim..][..dim];
            let g = w.a.as_slice()[h] * softplus(alpha[h] + w.dt_bias.as_slice()[h]);
            o.extend(delta_rule(&mut s[h * dim * dim..][..dim * dim], &q, &k, v, g, sigmoid(beta[h])));
        }
        let normed = rms(&o, &w.norm.as_slice().repeat(gdn.value_heads), dim, self.hp.rms_eps);
        let gated: Vec<f32> = normed.iter().zip(&z).map(|(o, z)| o * sigmoid(*z)).collect();
        matvec(&w.out, &gated)
    }

    /// qwen4exp.md 5.
    fn attention(
        &self,
        w: &AttentionWeights,
        memory: &mut AttentionMemory,
        x: &[f32],
        position: usize,
    ) -> (Vec<f32>, Vec<usize>) {
        let (at, ix, eps) = (&self.hp.attention, &self.hp.indexer, self.hp.rms_eps);
        let dim = at.head_dim;
        let rotate = |head: &[f32]| rope(head, position, at.rotary_dims, at.rope_theta);
        let normed_heads = |values: Vec<f32>, gain: &[f32], dim: usize| -> Vec<Vec<f32>> {
            values.chunks_exact(dim).map(|head| rotate(&rms(head, gain, dim, eps))).collect()
        };
        let query_gate = matvec(&w.q, x);
        let queries: Vec<Vec<f32>> = query_gate
            .chunks_exact(2 * dim)
            .map(|head| rotate(&rms(&head[..dim], w.q_norm.as_slice(), dim, eps)))
            .collect();
        memory.k.push(normed_heads(matvec(&w.k, x), w.k_norm.as_slice(), dim).concat());
        memory.v.push(matvec(&w.v, x));
        memory.index.push(matvec(&w.index_k, x));
        let index_q = normed_heads(matvec(&w.index_q, x), w.index_q_norm.as_slice(), ix.head_dim);

        let visible = memory.k.len();
        let selected = if visible / ix.ratio <= ix.budget_blocks() {
            (0..visible).collect()
        } else {
            let keys: Vec<Vec<f32>> = memory.index[..visible / ix.ratio * ix.ratio]
                .chunks_exact(ix.ratio)
                .enumerate()
                .map(|(b, raw)| {
                    let key = rms(&pool_key(raw), w.index_k_norm.as_slice(), ix.head_dim, eps);
                    rope(&key, b * ix.ratio, at.rotary_dims, at.rope_theta)
                })
                .collect();
            let kept = select_blocks(&index_q, &keys, ix.budget_blocks());
            let blocks = kept.iter().flat_map(|b| b * ix.ratio..(b + 1) * ix.ratio);
            blocks.chain(visible / ix.ratio * ix.ratio..visible).collect::<Vec<usize>>()
        };
        let mut o = Vec::with_capacity(at.heads * dim);
        for (h, q) in queries.iter().enumerate() {
            let channel = h / (at.heads / at.kv_heads) * dim;
            let scores: Vec<f32> = selected
                .iter()
                .map(|j| ops::dot(q, &memory.k[*j][channel..channel + dim]) / (dim as f32).sqrt())
                .collect();
            let weights = softmax(&scores);
            let gate = &query_gate[(2 * h + 1) * dim..][..dim];
            for (c, gate) in gate.iter().enumerate() {
                let mix: f64 = selected
                    .iter()
                    .zip(&weights)
                    .map(|(j, p)| f64::from(*p) * f64::from(memory.v[*j][channel + c]))
                    .sum();
                o.push(mix as f32 * sigmoid(*gate));
            }
        }
        (matvec(&w.out, &o), selected)
    }

    /// qwen4exp.md 6. Returns the table rows.
    fn ngram(&self, w: &NgramWeights, window: &mut Vec<Vec<f32>>, x: &mut [f32], tokens: &[TokenId]) -> Vec<u64> {
        let hp = self.hp;
        let ngram = &hp.ngram;
        let mut rows = vec![0; ngram.heads()];
        ngram.row_ids(tokens, &mut rows);
        let e: Vec<f32> =
            rows.iter().flat_map(|row| ops::embedding_row(&self.weights.ngram_table, *row as usize)).collect();
        let key = rms(&matvec(&w.key, &e), w.norm_key.as_slice(), hp.hidden, hp.rms_eps);
        let value = matvec(&w.value, &e);
        let query = rms(x, w.norm_query.as_slice(), hp.hidden, hp.rms_eps);
        let gated: Vec<f32> = key
            .chunks_exact(hp.hidden)
            .zip(query.chunks_exact(hp.hidden))
            .flat_map(|(key, query)| {
                let s = ops::dot(key, query) / (hp.hidden as f32).sqrt();
                let sign = if s == 0.0 { 0.0 } else { s.signum() };
                let weight = sigmoid(sign * s.abs().max(1e-6).sqrt());
                value.iter().map(move |v| weight * v)
            })
            .collect();
        window.push(rms(&gated, w.norm_conv.as_slice(), hp.hidden, hp.rms_eps));
        for (c, (x, gated)) in x.iter_mut().zip(&gated).enumerate() {
            *x += gated + silu(conv_tap_sum(w.conv.as_slice(), c, ngram.conv_kernel, window, ngram.ngram));
        }
        window.remove(0);
        rows
    }

    /// qwen4exp.md 7. Returns the expert ids, best first.
    fn moe(&self, w: &MoeWeights, x: &[f32]) -> (Vec<f32>, Vec<u32>) {
        let chosen = route(&matvec(&w.router, x), self.hp.moe.used);
        let mut out = vec![0.0f32; self.hp.hidden];
        for (expert, weight) in &chosen {
            let e = *expert as usize;
            let gate = ops::matvec_view(w.gate.expert(e), x);
            let up = ops::matvec_view(w.up.expert(e), x);
            let mid: Vec<f32> = gate.iter().zip(up).map(|(g, u)| silu(*g) * u).collect();
            for (o, v) in out.iter_mut().zip(ops::matvec_view(w.down.expert(e), &mid)) {
                *o += weight * v;
            }
        }
        let gate = matvec(&w.shared_gate, x);
        let mid: Vec<f32> = gate.iter().zip(matvec(&w.shared_up, x)).map(|(g, u)| silu(*g) * u).collect();
        let share = sigmoid(matvec(&w.shared_router, x)[0]);
        for (o, v) in out.iter_mut().zip(matvec(&w.shared_down, &mid)) {
            *o += share * v;
        }
        (out, chosen.iter().map(|(e, _)| *e).collect())
    }
}
