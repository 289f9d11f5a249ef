//! Attention and its caches against qwen4exp.md 5 in f64. Selection, and with it which tokens are attended, is checked in
//! `select`; here the blocks are drawn at random.

use cudafast_model::{AttentionParams, IndexerParams};

use super::{
    Bench,
    plain::{Codes, bf16, dot, rms, sigmoid, wide},
};
use crate::{
    driver::{DeviceBuffer, DeviceSlice},
    error::CudaError,
    launch::{
        attention::{self, Attend, Prepare},
        attention_prefill,
    },
};

const EPS: f32 = 1e-6;
const THETA: f64 = 1e7;

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let shape = |heads, kv_heads, head_dim, rotary_dims| AttentionParams {
        heads,
        kv_heads,
        head_dim,
        rotary_dims,
        rope_theta: THETA as f32,
    };
    let indexer = |heads, head_dim, budget_tokens, ratio| IndexerParams { heads, head_dim, budget_tokens, ratio };
    let sizes = [
        (shape(24, 2, 256, 64), indexer(4, 128, 2048, 4), vec![1, 2, 31, 32, 33, 2047, 2048, 2051, 2052, 2053, 2060]),
        (shape(4, 2, 128, 64), indexer(4, 128, 64, 4), vec![1, 5, 63, 67, 68, 71, 200]),
        (shape(4, 1, 128, 32), indexer(2, 64, 64, 4), vec![66, 68]),
        (shape(4, 2, 24, 8), indexer(2, 20, 16, 4), vec![1, 4, 19, 20, 21, 50]),
        (shape(3, 1, 32, 16), indexer(1, 16, 24, 3), vec![7, 40]),
    ];
    for (shape, indexer, visible) in &sizes {
        if b.wanted("attention.rope_table") || b.wanted("attention.prepare") {
            prepare(b, shape, indexer)?;
        }
        if b.wanted("attention.decode") || b.wanted("attention.prefill") {
            for &visible in visible {
                attend(b, shape, indexer, visible)?;
            }
        }
    }
    Ok(())
}

fn name(shape: &AttentionParams) -> String {
    format!("{}/{} heads of {}", shape.heads, shape.kv_heads, shape.head_dim)
}

fn inv_freq(rotary: usize) -> Vec<f64> {
    (0..rotary / 2).map(|i| THETA.powf(-2.0 * i as f64 / rotary as f64)).collect()
}

/// Rotates pairs `(i, i + half)`.
fn rope(x: &mut [f64], position: usize, frequencies: &[f64]) {
    let half = frequencies.len();
    for (i, f) in frequencies.iter().enumerate() {
        let (s, c) = (position as f64 * f).sin_cos();
        (x[i], x[i + half]) = (x[i] * c - x[i + half] * s, x[i + half] * c + x[i] * s);
    }
}

fn widened(cache: &[u16]) -> Vec<f32> {
    cache.iter().map(|&v| bf16(v) as f32).collect()
}

/// Norm, rope, caches and pooled keys: calls of several widths at several places, across block ends.
fn prepare(b: &mut Bench<'_>, shape: &AttentionParams, indexer: &IndexerParams) -> Result<(), CudaError> {
    let name = name(shape);
    let (kv, positions) = (shape.kv_heads * shape.head_dim, 3001);
    let frequencies = inv_freq(shape.rotary_dims);
    let half = frequencies.len();
    let table = b.poisoned::<f32>(positions * 2 * half)?;
    let d_frequencies = b.up(&frequencies)?;
    attention::rope_table(b.stream, b.kernels, d_frequencies.all(), table.all())?;
    let want: Vec<f64> = (0..positions)
        .flat_map(|p| {
            let angle = |f: &f64| p as f64 * f;
            frequencies
                .iter()
                .map(move |f| angle(f).cos())
                .chain(frequencies.iter().map(move |f| angle(f).sin()))
                .collect::<Vec<_>>()
        })
        .collect();
    let got = b.stream.download(table.all())?;
    b.close("attention.rope_table", &format!("[{positions}, 2, {half}]"), &got, &want, 1e-7);

    let gains: Vec<Vec<f32>> =
        [shape.head_dim, shape.head_dim, indexer.head_dim, indexer.head_dim].map(|n| b.rng.floats(n, 1.5)).into();
    let d_gains = gains.iter().map(|g| b.up(g)).collect::<Result<Vec<_>, _>>()?;
    let caches = [b.poisoned::<u16>(positions * kv)?, b.poisoned::<u16>(positions * kv)?];
    let raw = b.poisoned::<u16>(positions * indexer.head_dim)?;
    let pooled = b.poisoned::<u16>(positions / indexer.ratio * indexer.head_dim)?;
    let at = b.poisoned::<u32>(4)?;
    // A prompt, then rounds; the last two run rows again from where a rejected round began.
    let calls = [(0, 9), (9, 1), (10, 7), (17, 5), (18, 3), (20, 7), (2990, 7)];
    for (position, rows) in calls {
        let inputs: Vec<Vec<f32>> =
            [shape.heads * 2 * shape.head_dim, kv, kv, indexer.heads * indexer.head_dim, indexer.head_dim]
                .map(|n| b.rng.floats(rows * n, 2.0))
                .into();
        let all_rows = rows;
        let run = |b: &Bench<'_>, first: usize, rows: usize| -> Result<(Vec<f32>, Vec<f32>), CudaError> {
            let d = inputs
                .iter()
                .map(|x| {
                    let n = x.len() / all_rows;
                    b.up(&x[first * n..(first + rows) * n])
                })
                .collect::<Result<Vec<DeviceBuffer<f32>>, _>>()?;
            b.stream.upload(&[(position + first) as u32, 0, 0, 0], at.all())?;
            let q = b.poisoned::<f32>(rows * shape.heads * shape.head_dim)?;
            let index_q = b.poisoned::<f32>(rows * indexer.heads * indexer.head_dim)?;
            let args = Prepare {
                at: at.all(),
                query_gate: d[0].all(),
                k: d[1].all(),
                v: d[2].all(),
                index_q: d[3].all(),
                index_k: d[4].all(),
                q_norm: d_gains[0].all(),
                k_norm: d_gains[1].all(),
                index_q_norm: d_gains[2].all(),
                index_k_norm: d_gains[3].all(),
                rope: table.all(),
                k_cache: caches[0].all(),
                v_cache: caches[1].all(),
                raw_cache: raw.all(),
                pooled_cache: pooled.all(),
                q: q.all(),
                index_q_out: index_q.all(),
                shape,
                indexer,
                eps: EPS,
            };
            attention::prepare(b.stream, b.kernels, args)?;
            Ok((b.stream.download(q.all())?, b.stream.download(index_q.all())?))
        };
        let (q, index_q) = run(b, 0, rows)?;
        let call = format!("{name}, {rows} rows at {position}");
        let head = |x: &[f32], gain: &[f32], position: usize| {
            let mut y = rms(&wide(x), gain, EPS);
            rope(&mut y, position, &frequencies);
            y
        };
        let heads = |x: &[f32], each: usize, skip: usize, per_row: usize, gain: &[f32]| -> Vec<f64> {
            let dim = each - skip;
            x.chunks_exact(each).enumerate().flat_map(|(i, x)| head(&x[..dim], gain, position + i / per_row)).collect()
        };
        let want_q = heads(&inputs[0], 2 * shape.head_dim, shape.head_dim, shape.heads, &gains[0]);
        b.close("attention.prepare", &format!("{call}, q"), &q, &want_q, 2e-6);
        let want_iq = heads(&inputs[3], indexer.head_dim, 0, indexer.heads, &gains[2]);
        b.close("attention.prepare", &format!("{call}, index q"), &index_q, &want_iq, 2e-6);
        let cached = |b: &Bench<'_>, cache: DeviceSlice<'_, u16>, from: usize, to: usize, width: usize| {
            b.stream.download(cache.part(from * width, (to - from) * width))
        };
        let end = position + rows;
        let written = [
            cached(b, caches[0].all(), position, end, kv)?,
            cached(b, caches[1].all(), position, end, kv)?,
            cached(b, raw.all(), position, end, indexer.head_dim)?,
        ];
        // A bf16 is within 2^-8 of what it rounds.
        let want_k = heads(&inputs[1], shape.head_dim, 0, shape.kv_heads, &gains[1]);
        b.close("attention.prepare", &format!("{call}, k"), &widened(&written[0]), &want_k, 1.0 / 255.0);
        for (what, got, given) in [("v", &written[1], &inputs[2]), ("raw key", &written[2], &inputs[4])] {
            let want: Vec<u16> = given.iter().map(|&v| half::bf16::from_f32(v).to_bits()).collect();
            b.bits("attention.prepare", &format!("{call}, {what}"), got, &want);
        }
        let (first, last) = (position / indexer.ratio, end / indexer.ratio);
        let blocks = |b: &Bench<'_>| cached(b, pooled.all(), first, last, indexer.head_dim);
        if last > first {
            let raw = cached(b, raw.all(), first * indexer.ratio, last * indexer.ratio, indexer.head_dim)?;
            let mut want = vec![];
            for (i, block) in raw.chunks_exact(indexer.ratio * indexer.head_dim).enumerate() {
                let mean: Vec<f64> = (0..indexer.head_dim)
                    .map(|c| {
                        block[c..].iter().step_by(indexer.head_dim).map(|&v| bf16(v)).sum::<f64>()
                            / indexer.ratio as f64
                    })
                    .collect();
                let mut key = rms(&mean, &gains[3], EPS);
                rope(&mut key, (first + i) * indexer.ratio, &frequencies);
                want.extend(key);
            }
            if position < 2000 {
                b.close("attention.prepare", &format!("{call}, pooled"), &widened(&blocks(b)?), &want, 1.0 / 255.0);
            }
        }
        // The same rows one by one leave the same bits everywhere.
        let before = blocks(b)?;
        let mut same = true;
        for row in 0..rows {
            let (one_q, one_iq) = run(b, row, 1)?;
            let part = |all: &[f32], one: &[f32]| all[row * one.len()..(row + 1) * one.len()] == *one;
            same &= part(&q, &one_q) && part(&index_q, &one_iq);
        }
        same &= written[0] == cached(b, caches[0].all(), position, end, kv)?;
        same &= position >= 2000 || before == blocks(b)?;
        b.holds("attention.prepare", &format!("{call}, rows alone"), same, "a row's bits depend on the rows beside it");
    }
    Ok(())
}

/// Rows that see `visible` tokens and more, over random caches.
fn attend(
    b: &mut Bench<'_>,
    shape: &AttentionParams,
    indexer: &IndexerParams,
    visible: usize,
) -> Result<(), CudaError> {
    let rows = [7, 1, 3, 2][visible % 4];
    let (position, kv, width) = (visible - 1, shape.kv_heads * shape.head_dim, shape.heads * shape.head_dim);
    let (ctx, budget, ratio) = (position + rows, indexer.budget_blocks(), indexer.ratio);
    let name = format!("{}, {rows} rows from {visible} tokens", name(shape));
    let cache = |b: &mut Bench<'_>| -> Vec<u16> {
        let values = b.rng.floats(ctx * kv, 1.0);
        values.iter().map(|&v| half::bf16::from_f32(v).to_bits()).collect()
    };
    let (keys, values) = (cache(b), cache(b));
    // Sharp enough that a few tokens outweigh the rest.
    let (q, query_gate) = (b.rng.floats(rows * width, 6.0), b.rng.floats(rows * 2 * width, 4.0));
    let mut blocks = vec![-1_i32; rows * budget];
    let mut want = vec![];
    for t in 0..rows {
        let n = visible + t;
        let whole = n / ratio;
        let tokens: Vec<usize> = if whole <= budget {
            (0..n).collect()
        } else {
            // All but some, which are drawn until enough are out.
            let mut kept = vec![true; whole];
            for _ in 0..whole - budget {
                let mut out = (b.rng.next() % whole as u64) as usize;
                while !kept[out] {
                    out = (out + 1) % whole;
                }
                kept[out] = false;
            }
            let list: Vec<usize> = (0..whole).filter(|&i| kept[i]).collect();
            blocks[t * budget..(t + 1) * budget].iter_mut().zip(&list).for_each(|(to, &i)| *to = i as i32);
            list.iter().flat_map(|i| i * ratio..(i + 1) * ratio).chain(whole * ratio..n).collect()
        };
        for h in 0..shape.heads {
            let dim = shape.head_dim;
            let kv_head = h / (shape.heads / shape.kv_heads);
            let cell = |cache: &[u16], token: usize| -> Vec<f64> {
                cache[token * kv + kv_head * dim..][..dim].iter().map(|&v| bf16(v)).collect()
            };
            let query = wide(&q[(t * shape.heads + h) * dim..][..dim]);
            let scores: Vec<f64> = tokens.iter().map(|&j| dot(&query, &cell(&keys, j)) / (dim as f64).sqrt()).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut o = vec![0.0; dim];
            let mut total = 0.0;
            for (score, &j) in scores.iter().zip(&tokens) {
                let weight = (score - top).exp();
                total += weight;
                o.iter_mut().zip(cell(&values, j)).for_each(|(o, v)| *o += weight * v);
            }
            let gate = &query_gate[(t * shape.heads + h) * 2 * dim + dim..][..dim];
            want.extend(o.iter().zip(gate).map(|(o, g)| o / total * sigmoid((*g).into())));
        }
    }
    let (d_keys, d_values, at) = (b.up(&keys)?, b.up(&values)?, b.poisoned::<u32>(4)?);
    let run =
        |b: &Bench<'_>, first: usize, rows: usize, decode: bool| -> Result<(Vec<f32>, Option<Codes>), CudaError> {
            let part = |x: &[f32], n: usize| b.up(&x[first * n..(first + rows) * n]);
            let (q, gate) = (part(&q, width)?, part(&query_gate, 2 * width)?);
            let blocks = b.up(&blocks[first * budget..(first + rows) * budget])?;
            let o = b.poisoned::<f32>(rows * width)?;
            let codes = if shape.head_dim.is_multiple_of(32) { Some(Codes::new(b, rows, width)?) } else { None };
            b.stream.upload(&[(position + first) as u32, 0, 0, 0], at.all())?;
            let args = Attend {
                at: at.all(),
                q: q.all(),
                query_gate: gate.all(),
                keys: d_keys.all(),
                values: d_values.all(),
                blocks: blocks.all(),
                o: o.all(),
                codes: codes.as_ref().map(Codes::rows),
                shape,
                indexer,
            };
            if decode {
                // The bucket is larger than what is seen, by another amount for other rows.
                let bucket = visible + rows + 100 * rows;
                let scratch = b.poisoned::<f32>(attention::scratch(rows, bucket, shape, indexer))?;
                attention::decode(b.stream, b.kernels, args, bucket, scratch.all())?;
            } else {
                attention_prefill::attend(b.stream, b.kernels, args)?;
            }
            Ok((b.stream.download(o.all())?, codes))
        };
    for (op, decode) in [("attention.decode", true), ("attention.prefill", false)] {
        let (got, codes) = run(b, 0, rows, decode)?;
        b.close(op, &name, &got, &want, 5e-6);
        if let Some(codes) = &codes {
            codes.check(b, op, &name, &got, |_| 1.0)?;
        }
        let mut same = true;
        for row in 0..rows {
            same &= run(b, row, 1, decode)?.0 == got[row * width..(row + 1) * width];
        }
        b.holds(op, &format!("{name}, rows alone"), same, "a row's bits depend on the rows beside it");
    }
    Ok(())
}
