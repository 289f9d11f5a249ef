//! Times of the operations along a sequence at the published model's sizes: chains of nodes, each on state of its own.

use cudafast_model::{AttentionParams, GdnParams, IndexerParams};

use super::{Bench, plain::Codes};
use crate::{
    driver::DeviceBuffer,
    error::CudaError,
    launch::{
        attention::{self, Attend, Prepare},
        attention_prefill,
        gdn::{self, Layer, Log, RING},
        gdn_chunk,
        hyper::{self, Mix, Write},
        router,
        select::{self, Select},
    },
};

const EPS: f32 = 1e-6;
const HIDDEN: usize = 2560;
const STREAMS: usize = 4;
const WIDE: usize = HIDDEN * STREAMS;
const SHAPE: AttentionParams =
    AttentionParams { heads: 24, kv_heads: 2, head_dim: 256, rotary_dims: 64, rope_theta: 1e7 };
const INDEXER: IndexerParams = IndexerParams { heads: 4, head_dim: 128, budget_tokens: 2048, ratio: 4 };
const GDN: GdnParams = GdnParams { key_heads: 16, value_heads: 48, head_dim: 128, conv_kernel: 4 };

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.options.timed {
        return Ok(());
    }
    if b.wanted("hyper") {
        hyper(b)?;
    }
    if b.wanted("gdn") {
        gdn(b)?;
    }
    if b.wanted("attention") {
        attention(b)?;
    }
    if b.wanted("select") {
        select(b)?;
    }
    if b.wanted("router") {
        router(b)?;
    }
    Ok(())
}

/// Random floats: zeros would be cheaper than what a model computes with.
fn floats(b: &mut Bench<'_>, n: usize, scale: f32) -> Result<DeviceBuffer<f32>, CudaError> {
    let values = b.rng.floats(n, scale);
    b.up(&values)
}

/// Random bf16, `n` values of a pattern that repeats.
fn halves(b: &mut Bench<'_>, n: usize) -> Result<DeviceBuffer<u16>, CudaError> {
    let some: Vec<u16> = b.rng.floats(4099, 1.0).iter().map(|&v| half::bf16::from_f32(v).to_bits()).collect();
    let values: Vec<u16> = some.iter().copied().cycle().take(n).collect();
    b.up(&values)
}

fn hyper(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let nodes = 96;
    let (gain, matrix) = (floats(b, nodes * WIDE, 1.0)?, floats(b, nodes * STREAMS * WIDE, 0.1)?);
    for rows in [1, 2, 4, 7] {
        let (x, out, inj) =
            (floats(b, rows * WIDE, 1.0)?, floats(b, rows * HIDDEN, 1.0)?, floats(b, rows * STREAMS, 1.0)?);
        let gate = floats(b, rows * WIDE, 1.0)?;
        let (codes, mixed_codes) = (Codes::new(b, rows, WIDE)?, Codes::new(b, rows, HIDDEN)?);
        let (parts, tickets) = (b.poisoned::<f32>(hyper::parts(rows, HIDDEN, STREAMS))?, b.up(&vec![0; rows])?);
        let (rinv, next) = (b.poisoned::<f32>(rows * STREAMS)?, b.poisoned::<f32>(rows * STREAMS)?);
        let mixed = b.poisoned::<f32>(rows * HIDDEN)?;
        let us = b.time(nodes, 9, |i| {
            let args = Write {
                x: x.all(),
                add: Some((inj.all(), out.all())),
                gain: gain.all().part(i * WIDE, WIDE),
                next_inject: Some(matrix.all().part(i * STREAMS * WIDE, STREAMS * WIDE)),
                codes: Some(codes.rows()),
                parts: parts.all(),
                tickets: tickets.all(),
                rinv: rinv.all(),
                inj_next: next.all(),
                normed: None,
                hidden: HIDDEN,
                streams: STREAMS,
                eps: EPS,
            };
            hyper::write(b.stream, b.kernels, args)
        })?;
        b.timing("hyper.write", &format!("{rows} rows"), us, (WIDE * 4 * (1 + STREAMS) + rows * WIDE * 12) as u64);
        let us = b.time(nodes, 9, |i| {
            let args = Mix {
                gate: gate.all(),
                x: x.all(),
                rinv: rinv.all(),
                gain: gain.all().part(i * WIDE, WIDE),
                mixed: mixed.all(),
                codes: Some(mixed_codes.rows()),
                hidden: HIDDEN,
                streams: STREAMS,
            };
            hyper::mix(b.stream, b.kernels, args)
        })?;
        b.timing("hyper.mix", &format!("{rows} rows"), us, (WIDE * 4 + rows * WIDE * 8) as u64);
    }
    Ok(())
}

fn gdn(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let (layers, channels, inner) = (36, GDN.qkv_channels(), GDN.inner());
    let state = inner * GDN.head_dim;
    let s = b.up(&vec![0.01_f32; layers * state])?;
    let ring = b.up(&vec![0.1_f32; layers * RING * channels])?;
    let (conv, norm) = (floats(b, channels * GDN.conv_kernel, 1.0)?, floats(b, GDN.head_dim, 1.0)?);
    let (dt_bias, a) = (floats(b, GDN.value_heads, 1.0)?, b.up(&[-0.1_f32; GDN.value_heads])?);
    let logged = 2 * crate::launch::MAX_ROWS;
    let log = [
        b.up(&vec![0.01_f32; logged * GDN.key_heads * GDN.head_dim])?,
        b.up(&vec![0.01_f32; logged * inner])?,
        b.up(&vec![0.9_f32; logged * GDN.value_heads])?,
    ];
    let log = Log { k: log[0].all(), delta: log[1].all(), decay: log[2].all() };
    let tickets = b.up(&[0; GDN.value_heads])?;
    for (rows, kept) in [(1, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 4), (64, 0), (512, 0), (2048, 0)] {
        let (u, z) = (floats(b, rows * channels, 1.0)?, floats(b, rows * inner, 1.0)?);
        let (alpha, beta) = (floats(b, rows * GDN.value_heads, 1.0)?, floats(b, rows * GDN.value_heads, 1.0)?);
        let (core, gated, codes) = (b.poisoned(rows * inner)?, b.poisoned(rows * inner)?, Codes::new(b, rows, inner)?);
        let at = b.up(&[4096, kept, 1, 0])?;
        let scratch = b.poisoned::<f32>(gdn_chunk::scratch(rows, &GDN))?;
        let us = b.time(layers, 5, |i| {
            let layer = Layer {
                at: at.all(),
                u: u.all(),
                z: z.all(),
                alpha: alpha.all(),
                beta: beta.all(),
                conv: conv.all(),
                dt_bias: dt_bias.all(),
                a: a.all(),
                norm: norm.all(),
                ring: ring.all().part(i * RING * channels, RING * channels),
                s: s.all().part(i * state, state),
                core: core.all(),
                gated: gated.all(),
                codes: Some(codes.rows()),
                shape: &GDN,
                eps: EPS,
            };
            if rows <= crate::launch::MAX_ROWS {
                gdn::step(b.stream, b.kernels, layer, log, scratch.all(), tickets.all())
            } else {
                gdn_chunk::chunk(b.stream, b.kernels, layer, scratch.all())
            }
        })?;
        let moved = state * 4 * if kept == 0 && rows <= crate::launch::MAX_ROWS { 1 } else { 2 };
        let op = if rows <= crate::launch::MAX_ROWS { "gdn.step" } else { "gdn.chunk, five nodes" };
        b.timing(op, &format!("{rows} rows, {kept} kept"), us, (moved + rows * (channels + 2 * inner) * 4) as u64);
    }
    Ok(())
}

fn attention(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let (layers, kv, width) = (48, SHAPE.kv_heads * SHAPE.head_dim, SHAPE.heads * SHAPE.head_dim);
    let (budget, half) = (INDEXER.budget_blocks(), SHAPE.rotary_dims / 2);
    let context = 2600;
    let (keys, values) = (halves(b, layers * context * kv)?, halves(b, layers * context * kv)?);
    let raw = halves(b, context * INDEXER.head_dim)?;
    let pooled = halves(b, context / INDEXER.ratio * INDEXER.head_dim)?;
    let rope = floats(b, context * 2 * half, 1.0)?;
    let (norm, index_norm) = (floats(b, SHAPE.head_dim, 1.0)?, floats(b, INDEXER.head_dim, 1.0)?);
    let index = INDEXER.heads * INDEXER.head_dim;
    for (rows, position) in [(1, 100), (1, 2050), (1, 2500), (2, 2050), (4, 2050), (7, 2050), (256, 2050)] {
        let (query_gate, k) = (floats(b, rows * 2 * width, 1.0)?, floats(b, rows * kv, 1.0)?);
        let (iq, ik) = (floats(b, rows * index, 1.0)?, floats(b, rows * INDEXER.head_dim, 1.0)?);
        let (q, iq_out) = (floats(b, rows * width, 1.0)?, b.poisoned(rows * index)?);
        // The first blocks, whichever they are: only their number costs.
        let list: Vec<i32> = (0..rows * budget).map(|i| (i % budget) as i32).collect();
        let (blocks, at) = (b.up(&list)?, b.up(&[position as u32, 0, 0, 0])?);
        let (o, codes) = (b.poisoned(rows * width)?, Codes::new(b, rows, width)?);
        let visible = position + rows;
        let scratch = b.poisoned::<f32>(attention::scratch(rows.min(8), visible, &SHAPE, &INDEXER))?;
        let cell = |i: usize| i * context * kv;
        let name = format!("{rows} rows at {position}");
        let nodes = if rows > 8 { 4 } else { layers };
        let us = b.time(nodes, 5, |i| {
            let args = Prepare {
                at: at.all(),
                query_gate: query_gate.all(),
                k: k.all(),
                v: k.all(),
                index_q: iq.all(),
                index_k: ik.all(),
                q_norm: norm.all(),
                k_norm: norm.all(),
                index_q_norm: index_norm.all(),
                index_k_norm: index_norm.all(),
                rope: rope.all(),
                k_cache: keys.all().part(cell(i), context * kv),
                v_cache: values.all().part(cell(i), context * kv),
                raw_cache: raw.all(),
                pooled_cache: pooled.all(),
                q: q.all(),
                index_q_out: iq_out.all(),
                shape: &SHAPE,
                indexer: &INDEXER,
                eps: EPS,
            };
            attention::prepare(b.stream, b.kernels, args)
        })?;
        b.timing("attention.prepare", &name, us, (rows * (2 * width + 2 * kv + index) * 4) as u64);
        let us = b.time(nodes, 5, |i| {
            let args = Attend {
                at: at.all(),
                q: q.all(),
                query_gate: query_gate.all(),
                keys: keys.all().part(cell(i), context * kv),
                values: values.all().part(cell(i), context * kv),
                blocks: blocks.all(),
                o: o.all(),
                codes: Some(codes.rows()),
                shape: &SHAPE,
                indexer: &INDEXER,
            };
            if rows > 8 {
                attention_prefill::attend(b.stream, b.kernels, args)
            } else {
                attention::decode(b.stream, b.kernels, args, visible, scratch.all())
            }
        })?;
        let op = if rows > 8 { "attention.prefill" } else { "attention.decode, two nodes" };
        let tokens = (position + 1).min(INDEXER.budget_tokens + INDEXER.ratio - 1);
        b.timing(op, &name, us, (rows * tokens * 2 * kv * 2) as u64);
    }
    Ok(())
}

fn select(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let (layers, index) = (12, INDEXER.heads * INDEXER.head_dim);
    for (rows, visible) in [(1, 4096), (1, 32_768), (1, 262_144), (4, 262_144), (7, 32_768), (64, 32_768)] {
        let blocks_seen = visible / INDEXER.ratio;
        let each = blocks_seen * INDEXER.head_dim;
        let (pooled, queries) = (halves(b, layers * each)?, floats(b, rows * index, 1.0)?);
        let at = b.up(&[(visible - rows) as u32, 0, 0, 0])?;
        let blocks = b.poisoned(rows * INDEXER.budget_blocks())?;
        let scratch = b.poisoned::<f32>(select::scratch(rows, visible, &INDEXER))?;
        let us = b.time(layers, 5, |i| {
            let args = Select {
                at: at.all(),
                queries: queries.all(),
                pooled: pooled.all().part(i * each, each),
                blocks: blocks.all(),
                scratch: scratch.all(),
                visible,
                indexer: &INDEXER,
            };
            select::select(b.stream, b.kernels, args)
        })?;
        b.timing("select, two nodes", &format!("{rows} rows, {visible} tokens"), us, (each * 2) as u64);
    }
    Ok(())
}

fn router(b: &mut Bench<'_>) -> Result<(), CudaError> {
    for rows in [1, 4, 7] {
        let (experts, used) = (512, 10);
        let logits = floats(b, rows * experts, 5.0)?;
        let (ids, weights) = (b.poisoned(rows * used)?, b.poisoned(rows * used)?);
        let route = |_| router::route(b.stream, b.kernels, logits.all(), ids.all(), weights.all(), experts, used);
        let us = b.time(48, 9, route)?;
        b.timing("router.route", &format!("{rows} rows"), us, (rows * experts * 4) as u64);
    }
    Ok(())
}
