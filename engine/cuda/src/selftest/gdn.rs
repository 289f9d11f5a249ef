//! Gated delta net against the recurrence of qwen4exp.md 4 in f64, token by token.

use cudafast_model::GdnParams;

use super::{
    Bench,
    plain::{Codes, dot, rms, sigmoid, silu},
};
use crate::{
    driver::{DeviceBuffer, DeviceSlice},
    error::CudaError,
    launch::{
        gdn::{self, Layer, Log, RING},
        gdn_chunk,
    },
};

const EPS: f32 = 1e-6;

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let shapes = [(16, 48, 128, 4), (2, 6, 128, 4), (2, 4, 32, 4), (2, 4, 24, 3), (1, 1, 8, 2)];
    for (key_heads, value_heads, head_dim, conv_kernel) in shapes {
        let shape = GdnParams { key_heads, value_heads, head_dim, conv_kernel };
        if b.wanted("gdn.step") || b.wanted("gdn.settle") {
            rounds(b, &shape)?;
        }
        if b.wanted("gdn.chunk") {
            prefill(b, &shape)?;
        }
    }
    Ok(())
}

fn name(shape: &GdnParams) -> String {
    format!("{} + {} heads of {}, {} taps", shape.key_heads, shape.value_heads, shape.head_dim, shape.conv_kernel)
}

/// Weights of a layer, and inputs of every position of a sequence.
struct Sequence {
    shape: GdnParams,
    conv: Vec<f32>,
    dt_bias: Vec<f32>,
    a: Vec<f32>,
    norm: Vec<f32>,
    u: Vec<f32>,
    z: Vec<f32>,
    alpha: Vec<f32>,
    beta: Vec<f32>,
    conv_d: DeviceBuffer<f32>,
    dt_bias_d: DeviceBuffer<f32>,
    a_d: DeviceBuffer<f32>,
    norm_d: DeviceBuffer<f32>,
}

impl Sequence {
    fn new(b: &mut Bench<'_>, shape: &GdnParams, tokens: usize) -> Result<Self, CudaError> {
        let (channels, inner, heads) = (shape.qkv_channels(), shape.inner(), shape.value_heads);
        let conv = b.rng.floats(channels * shape.conv_kernel, 1.0);
        let (dt_bias, norm) = (b.rng.floats(heads, 1.0), b.rng.floats(shape.head_dim, 1.5));
        // Decays from slow to fast: exp(a * softplus(..)).
        let a: Vec<f32> = (0..heads).map(|h| -0.02 * (1 + h % 5 * 10) as f32).collect();
        let mut alpha = b.rng.floats(tokens * heads, 2.0);
        alpha[0] = 30.0;
        let (conv_d, dt_bias_d, a_d, norm_d) = (b.up(&conv)?, b.up(&dt_bias)?, b.up(&a)?, b.up(&norm)?);
        Ok(Self {
            shape: shape.clone(),
            conv,
            dt_bias,
            a,
            norm,
            u: b.rng.floats(tokens * channels, 2.0),
            z: b.rng.floats(tokens * inner, 4.0),
            alpha,
            beta: b.rng.floats(tokens * heads, 3.0),
            conv_d,
            dt_bias_d,
            a_d,
            norm_d,
        })
    }

    /// Gated outputs of tokens 0.. and the state after them. `fed`: which token's inputs each position has.
    fn reference(&self, fed: &[usize]) -> (Vec<f64>, Vec<f64>) {
        let shape = &self.shape;
        let (dim, channels, kernel) = (shape.head_dim, shape.qkv_channels(), shape.conv_kernel);
        let mut s = vec![0.0; shape.inner() * dim];
        let mut out = vec![];
        for (t, &token) in fed.iter().enumerate() {
            let y: Vec<f64> = (0..channels)
                .map(|c| {
                    let taps = (0..kernel).filter(|j| t + j + 1 >= kernel);
                    silu(
                        taps.map(|j| {
                            f64::from(self.conv[c * kernel + j])
                                * f64::from(self.u[fed[t + j + 1 - kernel] * channels + c])
                        })
                        .sum(),
                    )
                })
                .collect();
            let normed = |head: usize| {
                let x = &y[head * dim..(head + 1) * dim];
                let r = 1.0 / (dot(x, x) + 1e-6).sqrt();
                x.iter().map(|v| v * r).collect::<Vec<_>>()
            };
            for h in 0..shape.value_heads {
                let kh = h % shape.key_heads;
                let (k, v) = (normed(shape.key_heads + kh), &y[(2 * shape.key_heads + h) * dim..][..dim]);
                let q: Vec<f64> = normed(kh).iter().map(|v| v / (dim as f64).sqrt()).collect();
                let at = token * shape.value_heads + h;
                let pre = f64::from(self.alpha[at]) + f64::from(self.dt_bias[h]);
                let decay = (f64::from(self.a[h]) * if pre > 20.0 { pre } else { pre.exp().ln_1p() }).exp();
                let rate = sigmoid(self.beta[at].into());
                let s = &mut s[h * dim * dim..(h + 1) * dim * dim];
                s.iter_mut().for_each(|v| *v *= decay);
                let mut o = vec![0.0; dim];
                for c in 0..dim {
                    let from_k: f64 = (0..dim).map(|i| s[i * dim + c] * k[i]).sum();
                    let delta = rate * (v[c] - from_k);
                    (0..dim).for_each(|i| s[i * dim + c] += k[i] * delta);
                    o[c] = (0..dim).map(|i| s[i * dim + c] * q[i]).sum();
                }
                let z = &self.z[(token * shape.value_heads + h) * dim..][..dim];
                out.extend(rms(&o, &self.norm, EPS).iter().zip(z).map(|(o, z)| o * sigmoid((*z).into())));
            }
        }
        (out, s)
    }
}

/// A layer's state on the device.
struct State {
    at: DeviceBuffer<u32>,
    ring: DeviceBuffer<f32>,
    s: DeviceBuffer<f32>,
    k: DeviceBuffer<f32>,
    delta: DeviceBuffer<f32>,
    decay: DeviceBuffer<f32>,
    tickets: DeviceBuffer<u32>,
    position: usize,
    kept: usize,
    parity: u32,
}

/// What a call gives.
struct Output {
    gated: Vec<f32>,
    codes: Option<Codes>,
}

impl State {
    /// At the start of a sequence: S is zero, everything else is whatever was there.
    fn new(b: &Bench<'_>, shape: &GdnParams) -> Result<Self, CudaError> {
        let rows = 2 * crate::launch::MAX_ROWS;
        Ok(Self {
            at: b.poisoned(4)?,
            ring: b.poisoned(RING * shape.qkv_channels())?,
            s: b.up(&vec![0.0; shape.inner() * shape.head_dim])?,
            k: b.poisoned(rows * shape.key_heads * shape.head_dim)?,
            delta: b.poisoned(rows * shape.inner())?,
            decay: b.poisoned(rows * shape.value_heads)?,
            tickets: b.up(&vec![0; shape.value_heads])?,
            position: 0,
            kept: 0,
            parity: 0,
        })
    }

    fn log(&self) -> Log<'_> {
        Log { k: self.k.all(), delta: self.delta.all(), decay: self.decay.all() }
    }

    fn point(&self, b: &Bench<'_>) -> Result<(), CudaError> {
        b.stream.upload(&[self.position as u32, self.kept as u32, self.parity, u32::MAX], self.at.all())
    }

    /// Runs the given tokens at the position; the caller then moves on.
    fn run(&self, b: &Bench<'_>, of: &Sequence, tokens: &[usize], chunked: bool) -> Result<Output, CudaError> {
        let shape = &of.shape;
        let pick = |from: &[f32], n: usize| {
            b.up(&tokens.iter().flat_map(|t| from[t * n..(t + 1) * n].to_vec()).collect::<Vec<_>>())
        };
        let (heads, rows) = (shape.value_heads, tokens.len());
        let (u, z) = (pick(&of.u, shape.qkv_channels())?, pick(&of.z, shape.inner())?);
        let (alpha, beta) = (pick(&of.alpha, heads)?, pick(&of.beta, heads)?);
        let codes = if shape.head_dim.is_multiple_of(32) { Some(Codes::new(b, rows, shape.inner())?) } else { None };
        let (core, gated) = (b.poisoned::<f32>(rows * shape.inner())?, b.poisoned::<f32>(rows * shape.inner())?);
        self.point(b)?;
        let layer = Layer {
            at: self.at.all(),
            u: u.all(),
            z: z.all(),
            alpha: alpha.all(),
            beta: beta.all(),
            conv: of.conv_d.all(),
            dt_bias: of.dt_bias_d.all(),
            a: of.a_d.all(),
            norm: of.norm_d.all(),
            ring: self.ring.all(),
            s: self.s.all(),
            core: core.all(),
            gated: gated.all(),
            codes: codes.as_ref().map(Codes::rows),
            shape,
            eps: EPS,
        };
        if chunked {
            let scratch = b.poisoned::<f32>(gdn_chunk::scratch(rows, shape))?;
            gdn_chunk::chunk(b.stream, b.kernels, layer, scratch.all())?;
        } else {
            let scratch = b.poisoned::<f32>(gdn::scratch(rows, shape))?;
            gdn::step(b.stream, b.kernels, layer, self.log(), scratch.all(), self.tickets.all())?;
        }
        Ok(Output { gated: b.stream.download(gated.all())?, codes })
    }

    fn settled(&self, b: &Bench<'_>, shape: &GdnParams) -> Result<Vec<f32>, CudaError> {
        let out = b.poisoned::<f32>(self.s.len())?;
        self.point(b)?;
        let all: DeviceSlice<'_, f32> = self.s.all();
        gdn::settle(b.stream, b.kernels, self.at.all(), all, self.log(), out.all(), shape)?;
        b.stream.download(out.all())
    }
}

/// Rounds of random widths of which random numbers of rows are kept, against the tokens kept run one by one.
fn rounds(b: &mut Bench<'_>, shape: &GdnParams) -> Result<(), CudaError> {
    let name = name(shape);
    let of = Sequence::new(b, shape, 64)?;
    let (mut wide_state, mut serial) = (State::new(b, shape)?, State::new(b, shape)?);
    let (mut fed, mut next) = (vec![], 0);
    let mut same = true;
    for round in 0..9 {
        let width = [7, 1, 3, 7, 2, 5, 7, 4, 6][round];
        // All, some and none kept; every ring slot is reached.
        let kept = [7, 1, 1, 6, 0, 5, 3, 4, 2][round];
        let tokens: Vec<usize> = (next..next + width).collect();
        next += width;
        let got = wide_state.run(b, &of, &tokens, false)?;
        let (reference, _) = of.reference(&[&fed[..], &tokens].concat());
        let want = &reference[fed.len() * shape.inner()..];
        let shape_name = format!("{name}, {width} rows at {}", wide_state.position);
        b.close("gdn.step", &shape_name, &got.gated, want, 2e-5);
        if let Some(codes) = &got.codes {
            codes.check(b, "gdn.step", &shape_name, &got.gated, |_| 1.0)?;
        }
        for (row, token) in tokens[..kept].iter().enumerate() {
            let one = serial.run(b, &of, &[*token], false)?;
            same &= one.gated == got.gated[row * shape.inner()..(row + 1) * shape.inner()];
            (serial.position, serial.kept, serial.parity) = (serial.position + 1, 1, serial.parity ^ 1);
        }
        fed.extend(&tokens[..kept]);
        (wide_state.position, wide_state.kept, wide_state.parity) = (fed.len(), kept, wide_state.parity ^ 1);
    }
    b.holds("gdn.step", &format!("{name}, rows alone"), same, "a row's bits depend on the rows beside it");
    let (settled, one_by_one) = (wide_state.settled(b, shape)?, serial.settled(b, shape)?);
    b.bits("gdn.settle", &format!("{name}, rounds against single rows"), &settled, &one_by_one);
    b.close("gdn.settle", &name, &settled, &of.reference(&fed).1, 2e-5);
    Ok(())
}

/// Prompts cut at several places, one of them no multiple of a chunk, then a decoded row.
fn prefill(b: &mut Bench<'_>, shape: &GdnParams) -> Result<(), CudaError> {
    let name = name(shape);
    let tokens = 64 * 3 + 29;
    let of = Sequence::new(b, shape, tokens)?;
    let all: Vec<usize> = (0..tokens).collect();
    let (want, want_s) = of.reference(&all);
    let inner = shape.inner();
    let mut whole: Option<Vec<f32>> = None;
    for cuts in [&[tokens - 1][..], &[64, 128, tokens - 1], &[128, 130, tokens - 1], &[5, 6, tokens - 1]] {
        let mut state = State::new(b, shape)?;
        let mut got = vec![];
        for &end in cuts {
            let out = state.run(b, &of, &all[state.position..end], true)?;
            if let Some(codes) = &out.codes {
                codes.check(b, "gdn.chunk", &format!("{name}, rows {}..{end}", state.position), &out.gated, |_| 1.0)?;
            }
            got.extend(out.gated);
            state.position = end;
        }
        let cut = format!("{name}, cut at {cuts:?}");
        b.close("gdn.chunk", &cut, &got, &want[..got.len()], 3e-5);
        match &whole {
            None => whole = Some(got),
            // The same bits where the cuts are multiples of a chunk.
            Some(whole) if cuts[0] == 64 => b.bits("gdn.chunk", &format!("{cut} against whole"), &got, whole),
            Some(_) => {}
        }
        let row = state.run(b, &of, &all[tokens - 1..], false)?;
        b.close("gdn.chunk", &format!("{cut}, then a row"), &row.gated, &want[(tokens - 1) * inner..], 3e-5);
        (state.position, state.kept, state.parity) = (tokens, 1, 1);
        b.close("gdn.chunk", &format!("{cut}, state"), &state.settled(b, shape)?, &want_s, 3e-5);
    }
    Ok(())
}
