//! What a timeline carries between tokens, and how it rolls back (qwen4exp.md 8 and 10).
//!
//! *Append* state (caches) rolls back by length. *Overwrite* state is kept as a base and a log of the rows of the last
//! round; accepting `n` rows only records `n`, and the next use folds them into the base. So a rejection copies nothing,
//! and a rewind inside the last round is another `n`.

use cudafast_model::{Hyperparams, LayerKind};
use cudafast_runtime::{AttentionState, CacheRows, GdnState, MAX_DEPTH};
use half::bf16;

use crate::Precision;
use crate::gdn;

/// Rows of the causal convolutions: a base of the last `history` rows and a log of the round's rows.
pub(crate) struct ConvLog {
    width: usize,
    base: Vec<f32>,
    log: Vec<f32>,
    accepted: usize,
}

impl ConvLog {
    pub(crate) fn new(history: usize, width: usize) -> Self {
        Self { width, base: vec![0.0; history * width], log: Vec::new(), accepted: 0 }
    }

    /// Folds the accepted rows into the base and returns it, oldest first.
    pub(crate) fn settle(&mut self) -> &[f32] {
        let rows = &self.log[..self.accepted * self.width];
        shift_in(&mut self.base, rows);
        self.log.clear();
        self.accepted = 0;
        &self.base
    }

    /// The rows a round ran; none is accepted yet. Call after [`settle`](Self::settle).
    pub(crate) fn log(&mut self, rows: &[f32]) {
        self.log.clear();
        self.log.extend_from_slice(rows);
    }

    /// Rows that are final: prefill.
    pub(crate) fn append(&mut self, rows: &[f32]) {
        shift_in(&mut self.base, rows);
    }

    pub(crate) fn accept(&mut self, rows: usize) {
        self.accepted = rows;
    }

    /// The settled history, without changing anything.
    pub(crate) fn settled(&self) -> Vec<f32> {
        let mut base = self.base.clone();
        shift_in(&mut base, &self.log[..self.accepted * self.width]);
        base
    }

    pub(crate) fn restore(&mut self, base: &[f32]) {
        self.base.copy_from_slice(base);
        self.log.clear();
        self.accepted = 0;
    }

    pub(crate) fn reset(&mut self) {
        self.base.fill(0.0);
        self.log.clear();
        self.accepted = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.base.len()
    }
}

/// Keeps the last `base.len()` values of `base` followed by `rows`.
fn shift_in(base: &mut [f32], rows: &[f32]) {
    if rows.len() >= base.len() {
        base.copy_from_slice(&rows[rows.len() - base.len()..]);
    } else {
        base.copy_within(rows.len().., 0);
        let kept = base.len() - rows.len();
        base[kept..].copy_from_slice(rows);
    }
}

/// One logged row of a delta net layer: what replays its update of `S`.
#[derive(Clone, Default)]
pub(crate) struct GdnRow {
    /// Decay per value head, `exp(g)`.
    pub(crate) decay: Vec<f32>,
    /// Normed keys, `[key heads][dim]`.
    pub(crate) k: Vec<f32>,
    /// Update vectors, `[value heads][dim]`.
    pub(crate) delta: Vec<f32>,
}

/// Recurrent state of one delta net layer.
pub(crate) struct GdnLayer {
    /// `[value heads][key dim][value dim]`.
    pub(crate) s: Vec<f32>,
    pub(crate) rows: Vec<GdnRow>,
    pub(crate) accepted: usize,
    pub(crate) conv: ConvLog,
}

impl GdnLayer {
    fn new(hp: &Hyperparams) -> Self {
        let gdn = &hp.gdn;
        Self {
            s: vec![0.0; gdn.value_heads * gdn.head_dim * gdn.head_dim],
            rows: Vec::new(),
            accepted: 0,
            conv: ConvLog::new(gdn.conv_kernel - 1, gdn.qkv_channels()),
        }
    }

    fn accept(&mut self, rows: usize) {
        self.accepted = rows;
        self.conv.accept(rows);
    }

    /// The accepted rows, to be replayed now; the log is empty afterwards.
    pub(crate) fn take_accepted(&mut self) -> Vec<GdnRow> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.truncate(std::mem::take(&mut self.accepted));
        rows
    }

    fn settled(&self, hp: &Hyperparams) -> GdnState {
        let mut s = self.s.clone();
        let dim = hp.gdn.head_dim;
        for (head, s) in s.chunks_exact_mut(dim * dim).enumerate() {
            gdn::replay(s, &self.rows[..self.accepted], head, hp);
        }
        GdnState { s, conv: self.conv.settled() }
    }
}

/// One cached quantity, `[tokens][width]`, as stored.
pub(crate) struct Cache {
    width: usize,
    rows: CacheRows,
}

impl Cache {
    fn new(width: usize, rows: usize, precision: Precision) -> Self {
        let len = width * rows;
        let rows = match precision {
            Precision::Int8 => CacheRows::Bf16(vec![0; len]),
            Precision::F32 => CacheRows::F32(vec![0.0; len]),
        };
        Self { width, rows }
    }

    /// Stores one row, rounded to the cache's precision.
    pub(crate) fn put(&mut self, row: usize, values: &[f32]) {
        let range = row * self.width..(row + 1) * self.width;
        match &mut self.rows {
            CacheRows::Bf16(bits) => {
                for (b, v) in bits[range].iter_mut().zip(values) {
                    *b = bf16::from_f32(*v).to_bits();
                }
            }
            CacheRows::F32(all) => all[range].copy_from_slice(values),
        }
    }

    /// Reads `out.len()` values of a row, from channel `first`, widened exactly.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize, first: usize, out: &mut [f32]) {
        let start = row * self.width + first;
        match &self.rows {
            CacheRows::Bf16(bits) => {
                for (o, b) in out.iter_mut().zip(&bits[start..]) {
                    *o = f32::from_bits(u32::from(*b) << 16);
                }
            }
            CacheRows::F32(all) => out.copy_from_slice(&all[start..start + out.len()]),
        }
    }

    fn copy(&self, rows: usize) -> CacheRows {
        match &self.rows {
            CacheRows::Bf16(bits) => CacheRows::Bf16(bits[..rows * self.width].to_vec()),
            CacheRows::F32(all) => CacheRows::F32(all[..rows * self.width].to_vec()),
        }
    }

    /// Whether `from` holds exactly `rows` rows of this cache's kind.
    fn fits(&self, from: &CacheRows, rows: usize) -> bool {
        let len = rows * self.width;
        match (&self.rows, from) {
            (CacheRows::Bf16(own), CacheRows::Bf16(bits)) => bits.len() == len && len <= own.len(),
            (CacheRows::F32(own), CacheRows::F32(all)) => all.len() == len && len <= own.len(),
            _ => false,
        }
    }

    fn load(&mut self, from: &CacheRows) {
        match (&mut self.rows, from) {
            (CacheRows::Bf16(own), CacheRows::Bf16(bits)) => own[..bits.len()].copy_from_slice(bits),
            (CacheRows::F32(own), CacheRows::F32(all)) => own[..all.len()].copy_from_slice(all),
            _ => {}
        }
    }
}

/// Caches of one attention layer. Rows at and above the timeline's position are leftovers and never read.
pub(crate) struct KvCache {
    pub(crate) k: Cache,
    pub(crate) v: Cache,
    pub(crate) index_raw: Cache,
    pub(crate) index_pooled: Cache,
    ratio: usize,
}

impl KvCache {
    pub(crate) fn new(hp: &Hyperparams, ctx_tokens: usize, precision: Precision) -> Self {
        let kv = hp.attention.kv_heads * hp.attention.head_dim;
        let ratio = hp.indexer.ratio;
        Self {
            k: Cache::new(kv, ctx_tokens, precision),
            v: Cache::new(kv, ctx_tokens, precision),
            index_raw: Cache::new(hp.indexer.head_dim, ctx_tokens, precision),
            index_pooled: Cache::new(hp.indexer.head_dim, ctx_tokens / ratio, precision),
            ratio,
        }
    }

    pub(crate) fn copy(&self, rows: usize) -> AttentionState {
        AttentionState {
            k: self.k.copy(rows),
            v: self.v.copy(rows),
            index_raw: self.index_raw.copy(rows),
            index_pooled: self.index_pooled.copy(rows / self.ratio),
        }
    }

    pub(crate) fn fits(&self, from: &AttentionState, rows: usize) -> bool {
        self.k.fits(&from.k, rows)
            && self.v.fits(&from.v, rows)
            && self.index_raw.fits(&from.index_raw, rows)
            && self.index_pooled.fits(&from.index_pooled, rows / self.ratio)
    }

    pub(crate) fn load(&mut self, from: &AttentionState) {
        self.k.load(&from.k);
        self.v.load(&from.v);
        self.index_raw.load(&from.index_raw);
        self.index_pooled.load(&from.index_pooled);
    }
}

/// State of one layer.
pub(crate) enum LayerState {
    Gdn(GdnLayer),
    Attention(KvCache),
}

/// State of the whole target.
pub(crate) struct TargetState {
    pub(crate) layers: Vec<LayerState>,
    pub(crate) ngram_conv: ConvLog,
}

impl TargetState {
    /// `ctx_tokens` counts committed tokens; a round writes up to `MAX_DEPTH` rows past them.
    pub(crate) fn new(hp: &Hyperparams, ctx_tokens: usize, precision: Precision) -> Self {
        let layers = hp.layers.iter().map(|kind| match kind {
            LayerKind::Gdn => LayerState::Gdn(GdnLayer::new(hp)),
            LayerKind::Attention => LayerState::Attention(KvCache::new(hp, ctx_tokens + MAX_DEPTH, precision)),
        });
        Self { layers: layers.collect(), ngram_conv: ConvLog::new(hp.ngram.conv_history(), hp.wide()) }
    }

    /// The state after the first `rows` rows of the last round.
    pub(crate) fn accept(&mut self, rows: usize) {
        self.ngram_conv.accept(rows);
        for layer in &mut self.layers {
            if let LayerState::Gdn(gdn) = layer {
                gdn.accept(rows);
            }
        }
    }

    pub(crate) fn copy(&self, hp: &Hyperparams, rows: usize) -> Vec<cudafast_runtime::LayerState> {
        use cudafast_runtime::LayerState as Copied;
        let copy = |layer: &LayerState| match layer {
            LayerState::Gdn(gdn) => Copied::Gdn(gdn.settled(hp)),
            LayerState::Attention(kv) => Copied::Attention(kv.copy(rows)),
        };
        self.layers.iter().map(copy).collect()
    }

    /// Back to the state before the first token. Caches need nothing: rows at and above the position are never read.
    pub(crate) fn reset(&mut self) {
        self.ngram_conv.reset();
        for layer in &mut self.layers {
            if let LayerState::Gdn(gdn) = layer {
                gdn.s.fill(0.0);
                gdn.rows.clear();
                gdn.accepted = 0;
                gdn.conv.reset();
            }
        }
    }

    /// Names the first layer that does not fit; nothing is changed by this call.
    pub(crate) fn check(&self, from: &[cudafast_runtime::LayerState], rows: usize) -> Result<(), String> {
        use cudafast_runtime::LayerState as Copied;
        if self.layers.len() != from.len() {
            return Err(format!("{} layers, this model has {}", from.len(), self.layers.len()));
        }
        for (i, (own, from)) in self.layers.iter().zip(from).enumerate() {
            let fits = match (own, from) {
                (LayerState::Gdn(own), Copied::Gdn(from)) => {
                    own.s.len() == from.s.len() && own.conv.len() == from.conv.len()
                }
                (LayerState::Attention(own), Copied::Attention(from)) => own.fits(from, rows),
                _ => false,
            };
            if !fits {
                return Err(format!("layer {i} has another kind, size, precision or context"));
            }
        }
        Ok(())
    }

    /// Takes over a state that passed [`check`](Self::check).
    pub(crate) fn load(&mut self, from: &[cudafast_runtime::LayerState]) {
        use cudafast_runtime::LayerState as Copied;
        for (own, from) in self.layers.iter_mut().zip(from) {
            match (own, from) {
                (LayerState::Gdn(own), Copied::Gdn(from)) => {
                    own.s.copy_from_slice(&from.s);
                    own.rows.clear();
                    own.accepted = 0;
                    own.conv.restore(&from.conv);
                }
                (LayerState::Attention(own), Copied::Attention(from)) => own.load(from),
                _ => {}
            }
        }
    }
}
