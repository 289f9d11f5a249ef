//! What a forward pass works in: one allocation, cut by a plan that follows from the model's sizes and the most rows.
//!
//! What lives only inside a mixer, the experts, the n-gram block or the head's joining shares one span: none of them
//! outlives its part of a block.

use std::marker::PhantomData;

use bytemuck::Pod;
use cudafast_model::Hyperparams;
use cudafast_quant::GROUP;

use crate::control::CONTROL_ROWS;
use crate::driver::{Context, DeviceBuffer, DeviceSlice, Stream};
use crate::error::CudaError;
use crate::launch::{Q8Rows, cycle, gemm};

/// Alignment of every region, bytes: what the widest loads and bulk copies ask for, and more.
const ALIGN: usize = 256;

/// A run of values in an arena.
#[derive(Debug)]
pub(crate) struct Region<T> {
    start: usize,
    len: usize,
    values: PhantomData<T>,
}

impl<T> Clone for Region<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Region<T> {}

/// Activation rows as int8, where the width allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Q8Region {
    q: Region<i8>,
    d: Region<f32>,
    cols: usize,
}

/// Hands out regions one behind the other.
#[derive(Debug, Default)]
struct Cutter {
    at: usize,
    high: usize,
}

impl Cutter {
    fn take<T>(&mut self, len: usize) -> Region<T> {
        let start = self.at.next_multiple_of(ALIGN);
        self.at = start + len * size_of::<T>();
        self.high = self.high.max(self.at);
        Region { start, len, values: PhantomData }
    }

    fn q8(&mut self, rows: usize, cols: usize) -> Q8Region {
        Q8Region { q: self.take(rows * cols), d: self.take(rows * cols.div_ceil(GROUP)), cols }
    }
}

/// Regions of a delta net layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GdnParts {
    pub(crate) u: Region<f32>,
    pub(crate) z: Region<f32>,
    pub(crate) alpha: Region<f32>,
    pub(crate) beta: Region<f32>,
    /// What the layer's kernels keep between them.
    pub(crate) scratch: Region<f32>,
    /// Outputs before norm and gate.
    pub(crate) core: Region<f32>,
    pub(crate) o: Region<f32>,
    pub(crate) o_q8: Q8Region,
}

/// Regions of an attention layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionParts {
    /// Per head, query channels then gate channels.
    pub(crate) query_gate: Region<f32>,
    pub(crate) k: Region<f32>,
    pub(crate) v: Region<f32>,
    pub(crate) index_q: Region<f32>,
    pub(crate) index_k: Region<f32>,
    pub(crate) q: Region<f32>,
    pub(crate) index_query: Region<f32>,
    pub(crate) blocks: Region<i32>,
    pub(crate) o: Region<f32>,
    pub(crate) o_q8: Q8Region,
}

/// Regions of an expert layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MoeParts {
    pub(crate) router: Region<f32>,
    pub(crate) ids: Region<i32>,
    pub(crate) weights: Region<f32>,
    pub(crate) shared_gate: Region<f32>,
    pub(crate) shared_left: Region<f32>,
    pub(crate) shared_right: Region<f32>,
    pub(crate) shared_mid: Region<f32>,
    pub(crate) shared_q8: Q8Region,
    pub(crate) shared: Region<f32>,
    pub(crate) mid: Region<f32>,
    pub(crate) mid_q8: Q8Region,
    /// Rows by expert, for a prompt: pairs of each expert, where they start, the pairs, their tiles.
    pub(crate) counts: Region<i32>,
    pub(crate) starts: Region<i32>,
    pub(crate) list: Region<i32>,
    pub(crate) tiles: Region<u32>,
    /// `[T][K][H]`: what each expert makes of a row, before they are added.
    pub(crate) each: Region<f32>,
}

/// Regions of the n-gram block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NgramParts {
    pub(crate) ids: Region<u64>,
    pub(crate) e: Region<f32>,
    pub(crate) e_q8: Q8Region,
    pub(crate) key: Region<f32>,
    pub(crate) value: Region<f32>,
    /// Gated rows and their norm.
    pub(crate) scratch: Region<f32>,
}

/// Regions of the head's joining.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinParts {
    pub(crate) e: Region<f32>,
    pub(crate) joined: Region<f32>,
    pub(crate) joined_q8: Q8Region,
}

/// Where everything is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// `[1 + T][W]`: the residual row before the first, then the rows'.
    pub(crate) x: Region<f32>,
    /// `[T][W]`: the draft head's residual.
    pub(crate) head_x: Region<f32>,
    /// `[T][W]`: normed rows, for matrices of floats.
    pub(crate) normed: Region<f32>,
    pub(crate) normed_q8: Q8Region,
    pub(crate) rinv: Region<f32>,
    /// `[T][C]`: of the block being run, and what comes behind it.
    pub(crate) inject: [Region<f32>; 2],
    pub(crate) low: Region<f32>,
    pub(crate) low_q8: Q8Region,
    pub(crate) gate: Region<f32>,
    pub(crate) mixed: Region<f32>,
    pub(crate) mixed_q8: Q8Region,
    pub(crate) out: Region<f32>,
    pub(crate) gdn: GdnParts,
    pub(crate) attention: AttentionParts,
    pub(crate) moe: MoeParts,
    pub(crate) ngram: NgramParts,
    pub(crate) join: JoinParts,
    /// What kernels of many blocks leave for the last of them, and the split attention's partial results.
    pub(crate) partials: Region<f32>,
    /// Counters, at 0 between kernels.
    pub(crate) tickets: Region<u32>,
    /// `[logit rows][V]`.
    pub(crate) logits: Region<f32>,
    pub(crate) argmax: Region<u32>,
}

/// Scratch that kernels ask for by their own rules, values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelScratch {
    pub(crate) partials: usize,
    pub(crate) tickets: usize,
    pub(crate) gdn: usize,
}

impl Parts {
    fn cut(hp: &Hyperparams, rows: usize, logit_rows: usize, kernels: KernelScratch) -> (Self, usize) {
        let (wide, hidden, streams) = (hp.wide(), hp.hidden, hp.streams);
        let mut c = Cutter::default();
        let x = c.take((1 + rows) * wide);
        let head_x = c.take(rows * wide);
        let normed = c.take(rows * wide);
        let normed_q8 = c.q8(rows, wide);
        let rinv = c.take(rows * streams);
        let inject = [c.take(rows * streams), c.take(rows * streams)];
        let low = c.take(rows * hp.hyper_rank);
        let low_q8 = c.q8(rows, hp.hyper_rank);
        let gate = c.take(rows * wide);
        let mixed = c.take(rows * hidden);
        let mixed_q8 = c.q8(rows, hidden);
        let out = c.take(rows * hidden);
        let partials = c.take(kernels.partials);
        let tickets = c.take(kernels.tickets);
        let logits = c.take(logit_rows * hp.vocab);
        let argmax = c.take(cycle::argmax_parts(logit_rows));
        // The shared span: every part below starts here.
        let span = c.at;
        let gdn = &hp.gdn;
        let gdn = GdnParts {
            u: c.take(rows * gdn.qkv_channels()),
            z: c.take(rows * gdn.inner()),
            alpha: c.take(rows * gdn.value_heads),
            beta: c.take(rows * gdn.value_heads),
            scratch: c.take(kernels.gdn),
            core: c.take(rows * gdn.inner()),
            o: c.take(rows * gdn.inner()),
            o_q8: c.q8(rows, gdn.inner()),
        };
        c.at = span;
        let (at, ix) = (&hp.attention, &hp.indexer);
        let (queries, keys) = (at.heads * at.head_dim, at.kv_heads * at.head_dim);
        let attention = AttentionParts {
            query_gate: c.take(rows * 2 * queries),
            k: c.take(rows * keys),
            v: c.take(rows * keys),
            index_q: c.take(rows * ix.heads * ix.head_dim),
            index_k: c.take(rows * ix.head_dim),
            q: c.take(rows * queries),
            index_query: c.take(rows * ix.heads * ix.head_dim),
            blocks: c.take(rows * ix.budget_blocks()),
            o: c.take(rows * queries),
            o_q8: c.q8(rows, queries),
        };
        c.at = span;
        let moe = &hp.moe;
        // A round's rows go to their experts as they are.
        let by_expert = |len: usize| if rows > CONTROL_ROWS { len } else { 0 };
        let moe = MoeParts {
            router: c.take(rows * moe.experts),
            ids: c.take(rows * moe.used),
            weights: c.take(rows * moe.used),
            shared_gate: c.take(rows),
            shared_left: c.take(rows * moe.shared_ff),
            shared_right: c.take(rows * moe.shared_ff),
            shared_mid: c.take(rows * moe.shared_ff),
            shared_q8: c.q8(rows, moe.shared_ff),
            shared: c.take(rows * hidden),
            mid: c.take(rows * moe.used * moe.expert_ff),
            mid_q8: c.q8(rows * moe.used, moe.expert_ff),
            counts: c.take(by_expert(moe.experts)),
            starts: c.take(by_expert(moe.experts + 1)),
            list: c.take(by_expert(rows * moe.used)),
            tiles: c.take(by_expert(gemm::tiles(rows * moe.used, moe.experts))),
            each: c.take(by_expert(rows * moe.used * hidden)),
        };
        c.at = span;
        let ngram = NgramParts {
            ids: c.take(rows * hp.ngram.heads()),
            e: c.take(rows * hp.ngram.width()),
            e_q8: c.q8(rows, hp.ngram.width()),
            key: c.take(rows * wide),
            value: c.take(rows * hidden),
            scratch: c.take(2 * rows * wide),
        };
        c.at = span;
        let join = JoinParts {
            e: c.take(rows * hidden),
            joined: c.take(rows * 2 * wide),
            joined_q8: c.q8(rows * streams, 2 * hidden),
        };
        let parts = Self {
            x,
            head_x,
            normed,
            normed_q8,
            rinv,
            inject,
            low,
            low_q8,
            gate,
            mixed,
            mixed_q8,
            out,
            gdn,
            attention,
            moe,
            ngram,
            join,
            partials,
            tickets,
            logits,
            argmax,
        };
        (parts, c.high.next_multiple_of(ALIGN))
    }
}

/// The memory of a forward pass of up to `rows` rows.
pub(crate) struct Arena {
    slab: DeviceBuffer<u8>,
    pub(crate) parts: Parts,
    pub(crate) rows: usize,
}

/// Bytes of an [`Arena`].
pub(crate) fn bytes(hp: &Hyperparams, rows: usize, logit_rows: usize, kernels: KernelScratch) -> u64 {
    Parts::cut(hp, rows, logit_rows, kernels).1 as u64
}

impl Arena {
    pub(crate) fn new(
        context: &Context,
        stream: &Stream,
        hp: &Hyperparams,
        rows: usize,
        logit_rows: usize,
        kernels: KernelScratch,
    ) -> Result<Self, CudaError> {
        let (parts, bytes) = Parts::cut(hp, rows, logit_rows, kernels);
        let slab = DeviceBuffer::new(context, "working memory", bytes)?;
        let made = Self { slab, parts, rows };
        stream.fill(made.all(parts.tickets), 0)?;
        Ok(made)
    }

    /// A whole region.
    pub(crate) fn all<T: Pod>(&self, region: Region<T>) -> DeviceSlice<'_, T> {
        self.slab.all().part(region.start, region.len * size_of::<T>()).cast()
    }

    /// Its first `len` values.
    pub(crate) fn first<T: Pod>(&self, region: Region<T>, len: usize) -> DeviceSlice<'_, T> {
        self.all(region).part(0, len)
    }

    /// Its first `rows` rows; none where they have no whole groups.
    pub(crate) fn q8(&self, region: Q8Region, rows: usize) -> Option<Q8Rows<'_>> {
        let cols = region.cols;
        cols.is_multiple_of(GROUP).then(|| Q8Rows {
            q: self.first(region.q, rows * cols),
            d: self.first(region.d, rows * cols / GROUP),
            cols,
        })
    }
}

#[cfg(test)]
mod tests {
    use cudafast_model::SynthSpec;

    use super::*;

    const NONE: KernelScratch = KernelScratch { partials: 0, tickets: 0, gdn: 0 };

    #[test]
    fn regions_are_aligned_and_those_of_one_part_do_not_meet() {
        let hp = SynthSpec::shipped().hyperparams().unwrap();
        let (parts, bytes) = Parts::cut(&hp, 7, 7, NONE);
        let a = parts.attention;
        let spans =
            [a.query_gate, a.k, a.v, a.index_q, a.index_k, a.q, a.index_query, a.o].map(|r| (r.start, r.len * 4));
        for pair in spans.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0 && pair[1].0 % ALIGN == 0, "{pair:?}");
        }
        assert!(parts.gdn.u.start > parts.argmax.start && bytes >= parts.ngram.scratch.start + 2 * 7 * hp.wide() * 4);
    }

    #[test]
    fn a_prompts_rows_of_the_published_model_take_less_than_a_gibibyte() {
        let hp = SynthSpec::shipped().hyperparams().unwrap();
        assert!(bytes(&hp, 2048, 0, NONE) < 1 << 30);
    }
}
