//! Products against the fold order written plainly over `cudafast-quant`'s scalar unpacking: bit for bit.

use cudafast_quant::{ActRow, ActRows, Format, GROUP, Kind, UnpackedRow, format_by_name, formats, synth};

use super::Bench;
use crate::{
    driver::DeviceBuffer,
    error::CudaError,
    launch::{self, DeviceMatrix, Input, Product, Q8Rows},
};

const OP: &str = "matvec";
const CHUNK: usize = 80;

/// One row times one row, in the order of `kernels/matvec.cu`.
pub(super) fn dot(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let groups = a.d.len();
    let partials = 1 << (groups.min(CHUNK).div_ceil(2).ilog2().min(3));
    let mut total = None;
    for first in (0..groups).step_by(CHUNK) {
        let end = groups.min(first + CHUNK);
        let mut partial = vec![0.0_f32; partials];
        for g in first..end {
            let acc = &mut partial[(g - first) / 2 % partials];
            let size = GROUP / w.halves;
            let sums = |h: usize| (g * GROUP + h * size)..(g * GROUP + (h + 1) * size);
            for h in 0..w.halves {
                let dot: i32 = sums(h).map(|i| i32::from(w.codes[i]) * i32::from(a.q[i])).sum();
                *acc = (w.wa[g * w.halves + h] * a.d[g]).mul_add(dot as f32, *acc);
            }
            for h in 0..w.halves.min(w.wb.len()) {
                let sum: i32 = sums(h).map(|i| i32::from(a.q[i])).sum();
                *acc = (w.wb[g * w.halves + h] * a.d[g]).mul_add(sum as f32, *acc);
            }
        }
        let mut step = partials / 2;
        while step > 0 {
            for i in 0..step {
                partial[i] += partial[i + step];
            }
            step /= 2;
        }
        total = Some(total.map_or(partial[0], |t: f32| t + partial[0]));
    }
    total.unwrap_or(0.0)
}

/// One row of floats, in the order of `matvec_float_*`.
pub(super) fn float_dot(w: &[f32], x: &[f32]) -> f32 {
    let mut total = None;
    for (w, x) in w.chunks(2560).zip(x.chunks(2560)) {
        let mut lanes = [0.0_f32; 32];
        for (c, (w, x)) in w.iter().zip(x).enumerate() {
            let lane = &mut lanes[c / 4 % 32];
            *lane = w.mul_add(*x, *lane);
        }
        for step in [16, 8, 4, 2, 1] {
            for i in 0..step {
                lanes[i] += lanes[i + step];
            }
        }
        total = Some(total.map_or(lanes[0], |t: f32| t + lanes[0]));
    }
    total.unwrap_or(0.0)
}

/// A matrix of random blocks, on both sides.
pub(super) struct Made {
    pub(super) format: &'static Format,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) host: Vec<u8>,
    pub(super) device: DeviceBuffer<u8>,
}

impl Made {
    pub(super) fn new(b: &mut Bench<'_>, format: &'static Format, rows: usize, cols: usize) -> Result<Self, CudaError> {
        let mut host = vec![0; rows * cols / format.block_elems * format.block_bytes];
        let key = synth::tensor_key(b.rng.next(), "w");
        synth::fill(format, key, synth::Law::weights(format, 4, cols as u64), 0, &mut host);
        let device = b.up(&host)?;
        Ok(Self { format, rows, cols, host, device })
    }

    pub(super) fn matrix(&self) -> DeviceMatrix<'_> {
        DeviceMatrix { format: self.format, rows: self.rows, cols: self.cols, bytes: self.device.all() }
    }

    /// `[T, rows]`.
    fn product(&self, acts: &ActRows, x: &[f32]) -> Vec<f32> {
        let t = acts.rows();
        let mut want = vec![0.0; t * self.rows];
        let row_bytes = self.host.len() / self.rows;
        let (mut unpacked, mut values) = (UnpackedRow::new(), vec![0.0; self.cols]);
        for (r, bytes) in self.host.chunks_exact(row_bytes).enumerate() {
            if self.format.kind == Kind::Plain {
                self.format.decode(bytes, &mut values);
                (0..t).for_each(|i| want[i * self.rows + r] = float_dot(&values, &x[i * self.cols..][..self.cols]));
            } else {
                self.format.unpack_row(bytes, &mut unpacked);
                (0..t).for_each(|i| want[i * self.rows + r] = dot(&unpacked, acts.row(i)));
            }
        }
        want
    }
}

/// Activations, on both sides.
pub(super) struct Rows {
    pub(super) acts: ActRows,
    pub(super) host: Vec<f32>,
    pub(super) x: DeviceBuffer<f32>,
    pub(super) q: DeviceBuffer<i8>,
    pub(super) d: DeviceBuffer<f32>,
}

impl Rows {
    pub(super) fn new(b: &mut Bench<'_>, t: usize, cols: usize) -> Result<Self, CudaError> {
        let host = b.rng.floats(t * cols, 2.0);
        let acts = ActRows::quantise(&host, cols)
            .map_err(|e| CudaError::Read { what: "a check".into(), reason: e.to_string() })?;
        let (x, q, d) = (b.up(&host)?, b.poisoned(t * cols)?, b.poisoned(t * cols / GROUP)?);
        launch::quantise_rows(b.stream, b.kernels, x.all(), Q8Rows { q: q.all(), d: d.all(), cols })?;
        Ok(Self { acts, host, x, q, d })
    }

    pub(super) fn input(&self) -> Input<'_> {
        let q8 = Q8Rows { q: self.q.all(), d: self.d.all(), cols: self.acts.cols() };
        Input { rows: self.acts.rows(), q8: Some(q8), floats: Some(self.x.all()) }
    }
}

fn check(
    b: &mut Bench<'_>,
    cols: usize,
    shapes: &[(&'static Format, usize)],
    widths: &[usize],
) -> Result<(), CudaError> {
    let made = shapes.iter().map(|&(f, rows)| Made::new(b, f, rows, cols)).collect::<Result<Vec<_>, _>>()?;
    for &t in widths {
        let rows = Rows::new(b, t, cols)?;
        let outs = made.iter().map(|m| b.poisoned::<f32>(t * m.rows)).collect::<Result<Vec<_>, _>>()?;
        let products: Vec<_> =
            made.iter().zip(&outs).map(|(m, out)| Product { matrix: m.matrix(), out: out.all() }).collect();
        launch::matvec(b.stream, b.kernels, rows.input(), &products)?;
        for (m, out) in made.iter().zip(&outs) {
            let got = b.stream.download(out.all())?;
            let beside = if made.len() > 1 { format!(", 1 of {}", made.len()) } else { String::new() };
            let shape = format!("{} [{}, {cols}] T={t}{beside}", m.format.name, m.rows);
            b.bits(OP, &shape, &got, &m.product(&rows.acts, &rows.host));
        }
    }
    Ok(())
}

fn named(name: &str) -> Option<&'static Format> {
    format_by_name(name)
}

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted(OP) {
        return Ok(());
    }
    let all = [1, 2, 3, 4, 5, 7, 8];
    // Every format, at widths that are no whole row groups or have an odd count of groups: the plain kernel.
    for format in formats() {
        let unit = format.block_elems.max(GROUP);
        for cols in [unit, unit * 3, 2560_usize.next_multiple_of(unit) + unit] {
            check(b, cols, &[(format, 37)], &[1, 3, 8])?;
        }
    }
    // The shapes of the model and of the small ones, in the formats that are read through shared memory.
    let (Some(q8), Some(q4k), Some(q5k), Some(q51)) = (named("Q8_0"), named("Q4_K"), named("Q5_K"), named("Q5_1"))
    else {
        return Ok(());
    };
    for (format, rows, cols) in [
        (q8, 1024, 2560),
        (q8, 320, 10240),
        (q8, 4, 10240),
        (q8, 10240, 320),
        (q8, 512, 6144),
        (q8, 256, 640),
        (q8, 260, 5120),
        (q8, 264, 256),
        (q8, 64, 64),
        (q8, 40_000, 2560),
        (q4k, 640, 2560),
        (q4k, 64, 256),
        (q5k, 640, 2560),
        (q51, 2560, 640),
        (q51, 96, 5120),
    ] {
        check(b, cols, &[(format, rows)], if rows > 20_000 { &[1, 7] } else { &all })?;
    }
    let (Some(f32), Some(f16), Some(bf16)) = (named("F32"), named("F16"), named("BF16")) else { return Ok(()) };
    for (rows, cols) in [(512, 2560), (4, 10240), (48, 2560), (1, 2560), (5, 20480), (7, 96)] {
        check(b, cols, &[(f32, rows)], &all)?;
    }
    check(b, 2560, &[(bf16, 512), (f16, 128)], &all)?;
    // Several at once, of several formats.
    check(b, 2560, &[(q8, 10240), (q8, 6144), (f32, 48), (f32, 48)], &[1, 2, 7])?;
    check(
        b,
        2560,
        &[(q8, 512), (q8, 512), (q8, 256), (bf16, 512), (q8, 20), (q4k, 640), (q8, 8), (q8, 12), (q8, 4)],
        &[1, 3],
    )?;
    if b.options.timed {
        times(b)?;
    }
    Ok(())
}

/// The nodes of a decoding step, each reading other weights than the one before.
fn times(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let (Some(q8), Some(f32), Some(q51)) = (named("Q8_0"), named("F32"), named("Q5_1")) else { return Ok(()) };
    for (format, rows, cols) in [
        (q8, 10240, 2560),
        (q8, 320, 10240),
        (q8, 10240, 320),
        (q8, 2560, 6144),
        (q8, 640, 2560),
        (q8, 2560, 640),
        (q51, 2560, 640),
        (f32, 512, 2560),
        (f32, 48, 2560),
        (f32, 4, 10240),
        (q8, 248_320, 2560),
    ] {
        let bytes = rows * cols / format.block_elems * format.block_bytes;
        let nodes = (1_500_000_000 / bytes).clamp(8, 128);
        let stride = bytes.next_multiple_of(256);
        let weights = DeviceBuffer::<u8>::new(b.context, "weights to time", stride * nodes)?;
        for node in 0..nodes {
            let law = synth::Law::weights(format, 4, cols as u64);
            let out = weights.all().part(node * stride, bytes);
            launch::synth(b.stream, b.kernels, launch::Synth { format, key: node as u64, law, first_block: 0, out })?;
        }
        for t in [1, 2, 3, 4, 7] {
            let rows_in = Rows::new(b, t, cols)?;
            let out = b.poisoned::<f32>(t * rows)?;
            b.stream.synchronize()?;
            let us = b.time(nodes, 7, |node| {
                let matrix = DeviceMatrix { format, rows, cols, bytes: weights.all().part(node * stride, bytes) };
                launch::matvec(b.stream, b.kernels, rows_in.input(), &[Product { matrix, out: out.all() }])
            })?;
            b.timing(OP, &format!("{} [{rows}, {cols}] T={t}", format.name), us, bytes as u64);
        }
    }
    Ok(())
}
