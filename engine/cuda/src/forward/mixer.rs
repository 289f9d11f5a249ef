//! The two mixers: gated delta net and sparse attention (qwen4exp.md 4, 5).

use cudafast_model::{AttentionWeights, GdnWeights};
use cudafast_quant::GROUP;

use super::{Pass, Phase};
use crate::driver::DeviceSlice;
use crate::error::CudaError;
use crate::launch::{self, Input, Product, Q8Rows, attention, attention_prefill, gdn, gdn_chunk, select};
use crate::state::{Caches, GdnLayer};

impl Pass<'_> {
    /// [`mixed`](Self::mixed) rows to `out: [T][H]`, advancing the layer's state.
    pub(super) fn gdn(&self, w: &GdnWeights, state: &GdnLayer, out: DeviceSlice<'_, f32>) -> Result<(), CudaError> {
        let (arena, parts, rows) = (self.arena, &self.arena.parts.gdn, self.rows);
        let sizes = &self.hp.gdn;
        let u = arena.first(parts.u, rows * sizes.qkv_channels());
        let z = arena.first(parts.z, rows * sizes.inner());
        let alpha = arena.first(parts.alpha, rows * sizes.value_heads);
        let beta = arena.first(parts.beta, rows * sizes.value_heads);
        let matrix = |m| self.tensors.matrix(m);
        self.products(
            self.mixed(),
            &[
                Product { matrix: matrix(&w.qkv)?, out: u },
                Product { matrix: matrix(&w.gate)?, out: z },
                Product { matrix: matrix(&w.alpha)?, out: alpha },
                Product { matrix: matrix(&w.beta)?, out: beta },
            ],
        )?;
        let o = arena.first(parts.o, rows * sizes.inner());
        let q8 = arena.q8(parts.o_q8, rows);
        let layer = gdn::Layer {
            at: self.at,
            u,
            z,
            alpha,
            beta,
            conv: self.tensors.vector(&w.conv)?,
            dt_bias: self.tensors.vector(&w.dt_bias)?,
            a: self.tensors.vector(&w.a)?,
            norm: self.tensors.vector(&w.norm)?,
            ring: state.ring.all(),
            s: state.s.all(),
            core: arena.first(parts.core, rows * sizes.inner()),
            gated: o,
            codes: q8.filter(|_| sizes.head_dim.is_multiple_of(GROUP)),
            shape: sizes,
            eps: self.hp.rms_eps,
        };
        let scratch = arena.all(parts.scratch);
        match self.phase {
            Phase::Decode => {
                let tickets = arena.all(arena.parts.tickets);
                gdn::step(self.stream, self.kernels, layer, state.log(), scratch, tickets)?;
            }
            Phase::Prefill => gdn_chunk::chunk(self.stream, self.kernels, layer, scratch)?,
        }
        self.codes_across_heads(sizes.head_dim, o, q8)?;
        self.product(Input { rows, q8, floats: Some(o) }, &w.out, out)
    }

    /// Codes of a mixer's output where its kernels cannot write them: they own heads, and a group of 32 spans some.
    fn codes_across_heads(
        &self,
        head_dim: usize,
        o: DeviceSlice<'_, f32>,
        q8: Option<Q8Rows<'_>>,
    ) -> Result<(), CudaError> {
        match q8 {
            Some(q8) if !head_dim.is_multiple_of(GROUP) => launch::quantise_rows(self.stream, self.kernels, o, q8),
            _ => Ok(()),
        }
    }

    /// [`mixed`](Self::mixed) rows to `out: [T][H]`. Writes the rows' keys and values at their positions.
    pub(super) fn attention(
        &self,
        w: &AttentionWeights,
        caches: &Caches,
        out: DeviceSlice<'_, f32>,
    ) -> Result<(), CudaError> {
        let (arena, parts, rows) = (self.arena, &self.arena.parts.attention, self.rows);
        let (sizes, indexer) = (&self.hp.attention, &self.hp.indexer);
        let (queries, keys) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
        let index_queries = indexer.heads * indexer.head_dim;
        let query_gate = arena.first(parts.query_gate, rows * 2 * queries);
        let (k, v) = (arena.first(parts.k, rows * keys), arena.first(parts.v, rows * keys));
        let index_q = arena.first(parts.index_q, rows * index_queries);
        let index_k = arena.first(parts.index_k, rows * indexer.head_dim);
        let matrix = |m| self.tensors.matrix(m);
        self.products(
            self.mixed(),
            &[
                Product { matrix: matrix(&w.q)?, out: query_gate },
                Product { matrix: matrix(&w.k)?, out: k },
                Product { matrix: matrix(&w.v)?, out: v },
                Product { matrix: matrix(&w.index_q)?, out: index_q },
                Product { matrix: matrix(&w.index_k)?, out: index_k },
            ],
        )?;
        let q = arena.first(parts.q, rows * queries);
        let index_query = arena.first(parts.index_query, rows * index_queries);
        attention::prepare(
            self.stream,
            self.kernels,
            attention::Prepare {
                at: self.at,
                query_gate,
                k,
                v,
                index_q,
                index_k,
                q_norm: self.tensors.vector(&w.q_norm)?,
                k_norm: self.tensors.vector(&w.k_norm)?,
                index_q_norm: self.tensors.vector(&w.index_q_norm)?,
                index_k_norm: self.tensors.vector(&w.index_k_norm)?,
                rope: self.rope,
                k_cache: caches.k.all(),
                v_cache: caches.v.all(),
                raw_cache: caches.raw.all(),
                pooled_cache: caches.pooled.all(),
                q,
                index_q_out: index_query,
                shape: sizes,
                indexer,
                eps: self.hp.rms_eps,
            },
        )?;
        let blocks = arena.first(parts.blocks, rows * indexer.budget_blocks());
        let partials = arena.all(arena.parts.partials);
        select::select(
            self.stream,
            self.kernels,
            select::Select {
                at: self.at,
                queries: index_query,
                pooled: caches.pooled.all(),
                blocks,
                scratch: partials,
                visible: self.visible,
                indexer,
            },
        )?;
        let o = arena.first(parts.o, rows * queries);
        let q8 = arena.q8(parts.o_q8, rows);
        let rows_of = attention::Attend {
            at: self.at,
            q,
            query_gate,
            keys: caches.k.all(),
            values: caches.v.all(),
            blocks,
            o,
            codes: q8.filter(|_| sizes.head_dim.is_multiple_of(GROUP)),
            shape: sizes,
            indexer,
        };
        match self.phase {
            Phase::Decode => attention::decode(self.stream, self.kernels, rows_of, self.visible, partials)?,
            Phase::Prefill => attention_prefill::attend(self.stream, self.kernels, rows_of)?,
        }
        self.codes_across_heads(sizes.head_dim, o, q8)?;
        self.product(Input { rows, q8, floats: Some(o) }, &w.out, out)
    }
}
