//! What a timeline carries between tokens, on the device (qwen4exp.md 8), and how it moves to the host and back.
//!
//! *Append* state (caches) rolls back by length. Convolution inputs stand in rings of 16 rows by absolute position, nine of
//! history and seven of a round: they roll back by length too. `S` of a delta net stands before the last round, whose rows
//! are logged; the next call folds those that were kept, so a rollback is a number here as well (`kept`).

use cudafast_model::{Hyperparams, LayerKind};
use cudafast_runtime::{AttentionState, CacheRows, GdnState, MAX_DEPTH};

use crate::control::{AT_WORDS, At, CONTROL_ROWS};
use crate::driver::{Context, DeviceBuffer, DeviceSlice, Kernels, Stream};
use crate::error::CudaError;
use crate::launch::gdn;

/// Rows of a ring.
pub(crate) const RING_ROWS: usize = 16;

/// Recurrent state of one delta net layer.
pub(crate) struct GdnLayer {
    /// `[value heads][key dim][value dim]`, before the last round.
    pub(crate) s: DeviceBuffer<f32>,
    /// `[16][qkv channels]`: raw inputs of the convolution.
    pub(crate) ring: DeviceBuffer<f32>,
    /// `[2][8][key heads][dim]`: keys of a round's rows.
    log_k: DeviceBuffer<f32>,
    /// `[2][8][value heads][dim]`: their update vectors.
    log_delta: DeviceBuffer<f32>,
    /// `[2][8][value heads]`: their decays.
    log_decay: DeviceBuffer<f32>,
}

/// Caches of one attention layer, BF16. Rows at and above the timeline's position are leftovers and never read.
pub(crate) struct Caches {
    /// `[tokens][kv heads * head dim]`, rotated.
    pub(crate) k: DeviceBuffer<u16>,
    /// `[tokens][kv heads * head dim]`.
    pub(crate) v: DeviceBuffer<u16>,
    /// `[tokens][index dim]`, raw.
    pub(crate) raw: DeviceBuffer<u16>,
    /// `[tokens / ratio][index dim]`, pooled, normed, rotated.
    pub(crate) pooled: DeviceBuffer<u16>,
    kv_width: usize,
    index_width: usize,
    ratio: usize,
}

/// State of one layer.
pub(crate) enum LayerState {
    Gdn(GdnLayer),
    Attention(Caches),
}

/// All of it.
pub(crate) struct DeviceState {
    pub(crate) layers: Vec<LayerState>,
    /// `[16][W]`: normed rows of the n-gram convolution.
    pub(crate) ngram_ring: DeviceBuffer<f32>,
    /// The draft head's.
    pub(crate) head: Option<Caches>,
    /// `S` of one layer with the kept rows folded in, on its way to the host.
    settled: DeviceBuffer<f32>,
    /// An [`At`] for calls outside a round.
    at: DeviceBuffer<u32>,
}

/// Rows of a cache: a round and a chain of drafts write past the committed tokens.
pub(crate) fn cache_rows(ctx_tokens: usize) -> usize {
    ctx_tokens + MAX_DEPTH + 1
}

/// Device bytes beside what a [`MemoryPlan`](cudafast_model::MemoryPlan) counts as state: logs, rings, one settled `S`.
pub(crate) fn extra_bytes(hp: &Hyperparams, head: bool) -> u64 {
    let gdn = &hp.gdn;
    let gdn_layers = hp.layers.iter().filter(|kind| **kind == LayerKind::Gdn).count();
    let attention_layers = hp.layers.len() - gdn_layers + usize::from(head);
    let log = 2 * CONTROL_ROWS * (gdn.key_heads * gdn.head_dim + gdn.value_heads * (gdn.head_dim + 1));
    // The plan counts the history alone.
    let ring = (RING_ROWS + 1 - gdn.conv_kernel) * gdn.qkv_channels();
    let settled = gdn.value_heads * gdn.head_dim * gdn.head_dim;
    let ngram = RING_ROWS.saturating_sub(hp.ngram.conv_history()) * hp.wide();
    let spare = cache_rows(0) * (2 * hp.attention.kv_heads * hp.attention.head_dim + 2 * hp.indexer.head_dim);
    ((gdn_layers * (log + ring) + settled + ngram) * size_of::<f32>() + attention_layers * spare * size_of::<u16>())
        as u64
}

impl GdnLayer {
    pub(crate) fn log(&self) -> gdn::Log<'_> {
        gdn::Log { k: self.log_k.all(), delta: self.log_delta.all(), decay: self.log_decay.all() }
    }

    fn new(context: &Context, hp: &Hyperparams) -> Result<Self, CudaError> {
        let gdn = &hp.gdn;
        let (keys, values) = (gdn.key_heads * gdn.head_dim, gdn.value_heads * gdn.head_dim);
        let logged = 2 * CONTROL_ROWS;
        Ok(Self {
            s: DeviceBuffer::new(context, "GDN state", values * gdn.head_dim)?,
            ring: DeviceBuffer::new(context, "GDN convolution rows", RING_ROWS * gdn.qkv_channels())?,
            log_k: DeviceBuffer::new(context, "GDN log", logged * keys)?,
            log_delta: DeviceBuffer::new(context, "GDN log", logged * values)?,
            log_decay: DeviceBuffer::new(context, "GDN log", logged * gdn.value_heads)?,
        })
    }
}

impl Caches {
    fn new(context: &Context, hp: &Hyperparams, ctx_tokens: usize) -> Result<Self, CudaError> {
        let (kv_width, index_width) = (hp.attention.kv_heads * hp.attention.head_dim, hp.indexer.head_dim);
        let (rows, ratio) = (cache_rows(ctx_tokens), hp.indexer.ratio);
        Ok(Self {
            k: DeviceBuffer::new(context, "k cache", rows * kv_width)?,
            v: DeviceBuffer::new(context, "v cache", rows * kv_width)?,
            raw: DeviceBuffer::new(context, "indexer keys", rows * index_width)?,
            pooled: DeviceBuffer::new(context, "pooled indexer keys", rows / ratio * index_width)?,
            kv_width,
            index_width,
            ratio,
        })
    }

    /// The rows of `tokens` tokens: k, v, raw and pooled keys.
    fn live(&self, tokens: usize) -> [DeviceSlice<'_, u16>; 4] {
        let (kv, index) = (tokens * self.kv_width, tokens * self.index_width);
        [
            self.k.all().part(0, kv),
            self.v.all().part(0, kv),
            self.raw.all().part(0, index),
            self.pooled.all().part(0, tokens / self.ratio * self.index_width),
        ]
    }

    pub(crate) fn download(&self, stream: &Stream, tokens: usize) -> Result<AttentionState, CudaError> {
        let [k, v, raw, pooled] = self.live(tokens);
        let copy = |slice| Ok::<_, CudaError>(CacheRows::Bf16(stream.download(slice)?));
        Ok(AttentionState { k: copy(k)?, v: copy(v)?, index_raw: copy(raw)?, index_pooled: copy(pooled)? })
    }

    pub(crate) fn fits(&self, from: &AttentionState, tokens: usize) -> bool {
        let rows = [&from.k, &from.v, &from.index_raw, &from.index_pooled];
        self.live(tokens).iter().zip(rows).all(|(own, from)| matches!(from, CacheRows::Bf16(b) if b.len() == own.len()))
    }

    /// Takes over rows that [`fits`](Self::fits).
    pub(crate) fn upload(&self, stream: &Stream, from: &AttentionState, tokens: usize) -> Result<(), CudaError> {
        for (own, from) in self.live(tokens).into_iter().zip([&from.k, &from.v, &from.index_raw, &from.index_pooled]) {
            if let CacheRows::Bf16(bits) = from {
                stream.upload(bits, own)?;
            }
        }
        Ok(())
    }
}

/// Downloads the last `history` rows before `position` of a ring, oldest first; rows before the start are zeros.
fn download_ring(
    stream: &Stream,
    ring: &DeviceBuffer<f32>,
    width: usize,
    history: usize,
    position: usize,
) -> Result<Vec<f32>, CudaError> {
    let all = stream.download(ring.all())?;
    Ok(unroll(&all, width, history, position))
}

/// The last `history` rows before `position` of a ring, oldest first; rows before the start are zeros.
fn unroll(ring: &[f32], width: usize, history: usize, position: usize) -> Vec<f32> {
    let mut rows = Vec::with_capacity(history * width);
    for back in (1..=history).rev() {
        match position.checked_sub(back) {
            Some(at) => rows.extend_from_slice(&ring[at % RING_ROWS * width..][..width]),
            None => rows.resize(rows.len() + width, 0.0),
        }
    }
    rows
}

/// The ring that holds `rows`, the last before `position`; the other slots are zeros.
fn roll(rows: &[f32], width: usize, position: usize) -> Vec<f32> {
    let mut ring = vec![0.0; RING_ROWS * width];
    for (back, row) in rows.chunks_exact(width).rev().enumerate() {
        if let Some(at) = position.checked_sub(back + 1) {
            ring[at % RING_ROWS * width..][..width].copy_from_slice(row);
        }
    }
    ring
}

impl DeviceState {
    /// Allocates for `ctx_tokens` committed tokens; all at position 0.
    pub(crate) fn new(
        context: &Context,
        stream: &Stream,
        hp: &Hyperparams,
        head: bool,
        ctx_tokens: usize,
    ) -> Result<Self, CudaError> {
        let layers = hp.layers.iter().map(|kind| match kind {
            LayerKind::Gdn => GdnLayer::new(context, hp).map(LayerState::Gdn),
            LayerKind::Attention => Caches::new(context, hp, ctx_tokens).map(LayerState::Attention),
        });
        let made = Self {
            layers: layers.collect::<Result<_, _>>()?,
            ngram_ring: DeviceBuffer::new(context, "n-gram convolution rows", RING_ROWS * hp.wide())?,
            head: if head { Some(Caches::new(context, hp, ctx_tokens)?) } else { None },
            settled: DeviceBuffer::new(context, "settled GDN state", hp.gdn.inner() * hp.gdn.head_dim)?,
            at: DeviceBuffer::new(context, "row position", AT_WORDS)?,
        };
        made.reset(stream)?;
        Ok(made)
    }

    /// Back to the state before the first token. Caches and rings need nothing: rows at and above the position are never
    /// read, and rows before the first are zeros by definition.
    pub(crate) fn reset(&self, stream: &Stream) -> Result<(), CudaError> {
        for layer in &self.layers {
            if let LayerState::Gdn(gdn) = layer {
                stream.fill(gdn.s.all(), 0)?;
            }
        }
        Ok(())
    }

    fn place(&self, stream: &Stream, at: At) -> Result<(), CudaError> {
        stream.upload(&[at.position, at.kept, at.parity, at.spare], self.at.all())
    }

    fn settle_into(
        &self,
        stream: &Stream,
        k: &Kernels,
        hp: &Hyperparams,
        layer: &GdnLayer,
        out: DeviceSlice<'_, f32>,
    ) -> Result<(), CudaError> {
        gdn::settle(stream, k, self.at.all(), layer.s.all(), layer.log(), out, &hp.gdn)
    }

    /// Folds the kept rows of the last round into every `S`: before a prefill, which logs nothing.
    pub(crate) fn settle(&self, stream: &Stream, k: &Kernels, hp: &Hyperparams, at: At) -> Result<(), CudaError> {
        if at.kept == 0 {
            return Ok(());
        }
        self.place(stream, at)?;
        for layer in &self.layers {
            if let LayerState::Gdn(gdn) = layer {
                self.settle_into(stream, k, hp, gdn, gdn.s.all())?;
            }
        }
        Ok(())
    }

    /// Copies every layer's state at `position` to the host; changes nothing.
    pub(crate) fn download(
        &self,
        stream: &Stream,
        k: &Kernels,
        hp: &Hyperparams,
        at: At,
    ) -> Result<Vec<cudafast_runtime::LayerState>, CudaError> {
        use cudafast_runtime::LayerState as Copied;
        self.place(stream, at)?;
        let position = at.position as usize;
        let history = hp.gdn.conv_kernel - 1;
        let copy = |layer: &LayerState| {
            Ok(match layer {
                LayerState::Gdn(gdn) => {
                    self.settle_into(stream, k, hp, gdn, self.settled.all())?;
                    let s = stream.download(self.settled.all())?;
                    let conv = download_ring(stream, &gdn.ring, hp.gdn.qkv_channels(), history, position)?;
                    Copied::Gdn(GdnState { s, conv })
                }
                LayerState::Attention(caches) => Copied::Attention(caches.download(stream, position)?),
            })
        };
        self.layers.iter().map(copy).collect()
    }

    /// `[conv history][W]`, oldest first.
    pub(crate) fn download_ngram(
        &self,
        stream: &Stream,
        hp: &Hyperparams,
        position: usize,
    ) -> Result<Vec<f32>, CudaError> {
        download_ring(stream, &self.ngram_ring, hp.wide(), hp.ngram.conv_history(), position)
    }

    /// Names the first layer that does not fit; nothing is changed by this call.
    pub(crate) fn check(
        &self,
        hp: &Hyperparams,
        from: &[cudafast_runtime::LayerState],
        tokens: usize,
    ) -> Result<(), String> {
        use cudafast_runtime::LayerState as Copied;
        if self.layers.len() != from.len() {
            return Err(format!("{} layers, this model has {}", from.len(), self.layers.len()));
        }
        let conv = (hp.gdn.conv_kernel - 1) * hp.gdn.qkv_channels();
        for (i, (own, from)) in self.layers.iter().zip(from).enumerate() {
            let fits = match (own, from) {
                (LayerState::Gdn(own), Copied::Gdn(from)) => own.s.len() == from.s.len() && conv == from.conv.len(),
                (LayerState::Attention(own), Copied::Attention(from)) => own.fits(from, tokens),
                _ => false,
            };
            if !fits {
                return Err(format!("layer {i} has another kind, size, precision or context"));
            }
        }
        Ok(())
    }

    /// Takes over a state that passed [`check`](Self::check); `ngram_conv` has the history's length.
    pub(crate) fn upload(
        &self,
        stream: &Stream,
        hp: &Hyperparams,
        from: &[cudafast_runtime::LayerState],
        ngram_conv: &[f32],
        tokens: usize,
    ) -> Result<(), CudaError> {
        use cudafast_runtime::LayerState as Copied;
        for (own, from) in self.layers.iter().zip(from) {
            match (own, from) {
                (LayerState::Gdn(own), Copied::Gdn(from)) => {
                    stream.upload(&from.s, own.s.all())?;
                    stream.upload(&roll(&from.conv, hp.gdn.qkv_channels(), tokens), own.ring.all())?;
                }
                (LayerState::Attention(own), Copied::Attention(from)) => own.upload(stream, from, tokens)?,
                _ => {}
            }
        }
        stream.upload(&roll(ngram_conv, hp.wide(), tokens), self.ngram_ring.all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row `i` of a history is all `i + 1`.
    fn rows(from: usize, count: usize, width: usize) -> Vec<f32> {
        (from..from + count).flat_map(|i| std::iter::repeat_n((i + 1) as f32, width)).collect()
    }

    #[test]
    fn a_ring_gives_back_the_history_that_it_was_made_of_at_any_position() {
        for position in [9, 15, 16, 17, 100] {
            let history = rows(position - 9, 9, 3);
            assert_eq!(unroll(&roll(&history, 3, position), 3, 9, position), history, "{position}");
        }
    }

    #[test]
    fn rows_before_the_first_token_are_zeros() {
        let mut history = vec![0.0; 7 * 2];
        history.extend(rows(0, 2, 2));
        assert_eq!(unroll(&roll(&history, 2, 2), 2, 9, 2), history);
        // Whatever a ring holds at position 0, nothing of it is history.
        assert_eq!(unroll(&[5.0; 32], 2, 3, 0), [0.0; 6]);
    }
}
