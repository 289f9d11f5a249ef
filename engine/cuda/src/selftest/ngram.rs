//! n-gram rows against `cudafast-model`, their injection against qwen4exp.md 6 in f64.

use cudafast_model::NgramParams;

use super::{
    Bench,
    plain::{dot, rinv, rms, sigmoid, silu, wide},
};
use crate::{
    error::CudaError,
    launch::ngram::{self, Inject, RING},
};

const EPS: f32 = 1e-6;

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let real = NgramParams {
        layer: 1,
        ngram: 3,
        heads_per_ngram: 8,
        conv_kernel: 4,
        eos: 248_044,
        row_width: 160,
        multipliers: vec![23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071],
        head_sizes: vec![20_000_003; 16],
        head_offsets: (0..16).map(|h| h * 20_000_003).collect(),
    };
    let small = NgramParams {
        ngram: 2,
        heads_per_ngram: 3,
        conv_kernel: 3,
        eos: 1,
        multipliers: vec![12_345_678_901, 987_654_321_987],
        head_sizes: vec![11, 13, 17],
        head_offsets: vec![0, 11, 24],
        ..real.clone()
    };
    if b.wanted("ngram.ids") {
        ids(b, &real, 248_320)?;
        ids(b, &small, 4)?;
    }
    if b.wanted("ngram.inject") {
        inject(b, &real, 2560, 4)?;
        inject(b, &real, 64, 4)?;
        inject(b, &small, 40, 3)?;
    }
    Ok(())
}

/// Random tokens with end tokens among them, from the start of a sequence and from its middle.
fn ids(b: &mut Bench<'_>, shape: &NgramParams, vocab: u64) -> Result<(), CudaError> {
    let (rows, back) = (40, shape.ngram - 1);
    let draw =
        |b: &mut Bench<'_>| if b.rng.next().is_multiple_of(4) { shape.eos } else { (b.rng.next() % vocab) as u32 };
    for missing in 0..=back {
        let tokens: Vec<u32> = (0..back + rows).map(|i| if i < missing { u32::MAX } else { draw(b) }).collect();
        let mut want = vec![];
        for t in 0..rows {
            let mut row = vec![0; shape.heads()];
            shape.row_ids(&tokens[missing.max(t)..=back + t], &mut row);
            want.extend(row);
        }
        let (window, params) = (b.up(&tokens)?, b.up(&ngram::params(shape))?);
        let out = b.poisoned::<u64>(rows * shape.heads())?;
        ngram::ids(b.stream, b.kernels, window.all(), params.all(), out.all(), shape)?;
        let got = b.stream.download(out.all())?;
        b.bits("ngram.ids", &format!("{}-grams, {rows} rows, {missing} before the start", shape.ngram), &got, &want);
    }
    Ok(())
}

/// Weights, and inputs of every position.
struct Sequence {
    x: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    norms: [Vec<f32>; 3],
    conv: Vec<f32>,
    hidden: usize,
    streams: usize,
}

impl Sequence {
    /// The residual after the injection.
    fn reference(&self, shape: &NgramParams) -> Vec<f64> {
        let (hidden, row) = (self.hidden, self.hidden * self.streams);
        let (mut normed, mut gated) = (vec![], vec![]);
        for (i, x) in self.x.chunks_exact(hidden).enumerate() {
            let s = i % self.streams;
            let gain = |g: &[f32]| g[s * hidden..(s + 1) * hidden].to_vec();
            let key = rms(&wide(&self.key[i * hidden..(i + 1) * hidden]), &gain(&self.norms[0]), EPS);
            let query = rms(&wide(x), &gain(&self.norms[1]), EPS);
            let score = dot(&key, &query) / (hidden as f64).sqrt();
            let root = score.abs().max(1e-6).sqrt();
            let weight = sigmoid(if score == 0.0 { 0.0 } else { root.copysign(score) });
            let value = &self.value[i / self.streams * hidden..][..hidden];
            let gv: Vec<f64> = value.iter().map(|v| weight * f64::from(*v)).collect();
            let r = rinv(&gv, EPS);
            normed.extend(gv.iter().zip(gain(&self.norms[2])).map(|(v, g)| v * r * f64::from(g)));
            gated.extend(gv);
        }
        (0..self.x.len())
            .map(|i| {
                let (t, c) = (i / row, i % row);
                let taps = (0..shape.conv_kernel).map(|j| (j, (shape.conv_kernel - 1 - j) * shape.ngram));
                let sum = taps
                    .filter(|(_, back)| *back <= t)
                    .map(|(j, back)| f64::from(self.conv[c * shape.conv_kernel + j]) * normed[(t - back) * row + c])
                    .sum();
                f64::from(self.x[i]) + gated[i] + silu(sum)
            })
            .collect()
    }
}

fn inject(b: &mut Bench<'_>, shape: &NgramParams, hidden: usize, streams: usize) -> Result<(), CudaError> {
    let (tokens, row) = (60, hidden * streams);
    let mut floats = |n: usize, scale: f32| b.rng.floats(n, scale);
    let mut of = Sequence {
        x: floats(tokens * row, 2.0),
        key: floats(tokens * row, 2.0),
        value: floats(tokens * hidden, 2.0),
        norms: [floats(row, 1.5), floats(row, 1.5), floats(row, 1.5)],
        conv: floats(row * shape.conv_kernel, 1.0),
        hidden,
        streams,
    };
    // A score of exactly zero: its sign is zero, so half the value comes through.
    of.key[..hidden].fill(0.0);
    let want = of.reference(shape);
    let norms = [b.up(&of.norms[0])?, b.up(&of.norms[1])?, b.up(&of.norms[2])?];
    let (conv, at) = (b.up(&of.conv)?, b.poisoned::<u32>(4)?);
    let mut serial: Option<Vec<f32>> = None;
    // (rows run, rows kept): single rows; rounds with rejected rows; a prompt, then rounds.
    let plans: [Vec<(usize, usize)>; 3] = [
        vec![(1, 1); 60],
        [(7, 7), (7, 3), (5, 1), (7, 7), (2, 2), (7, 6), (7, 7), (7, 7), (7, 7), (7, 6), (7, 7)].to_vec(),
        [(33, 33), (7, 2), (7, 7), (7, 5), (13, 13)].to_vec(),
    ];
    for (plan, what) in plans.iter().zip(["single rows", "rounds", "a prompt, then rounds"]) {
        let ring = b.poisoned::<f32>(RING * row)?;
        let (mut got, mut position) = (vec![], 0);
        for &(run, kept) in plan {
            let run = run.min(tokens - position);
            let part = |x: &[f32], n: usize| b.up(&x[position * n..(position + run) * n]);
            let (x, key, value) = (part(&of.x, row)?, part(&of.key, row)?, part(&of.value, hidden)?);
            let scratch = b.poisoned::<f32>(2 * run * row)?;
            b.stream.upload(&[position as u32, 0, 0, 0], at.all())?;
            let args = Inject {
                at: at.all(),
                x: x.all(),
                key: key.all(),
                value: value.all(),
                norm_key: norms[0].all(),
                norm_query: norms[1].all(),
                norm_conv: norms[2].all(),
                conv: conv.all(),
                ring: ring.all(),
                scratch: scratch.all(),
                hidden,
                streams,
                shape,
                eps: EPS,
            };
            ngram::inject(b.stream, b.kernels, args)?;
            got.extend_from_slice(&b.stream.download(x.all())?[..kept.min(run) * row]);
            position += kept.min(run);
        }
        let name = format!("{streams} x {hidden}, {} taps by {}, {what}", shape.conv_kernel, shape.ngram);
        b.close("ngram.inject", &name, &got, &want[..got.len()], 5e-6);
        match &serial {
            None => serial = Some(got),
            Some(serial) => b.bits("ngram.inject", &format!("{name} against single rows"), &got, &serial[..got.len()]),
        }
    }
    Ok(())
}
