//! Hyper-connections against the formulas of qwen4exp.md 2 in f64.

use super::{
    Bench,
    plain::{Codes, dot, rinv, sigmoid, silu, wide},
};
use crate::{
    error::CudaError,
    launch::hyper::{self, Mix, Write},
};

const EPS: f32 = 1e-6;

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted("hyper") {
        return Ok(());
    }
    for (hidden, streams) in [(2560, 4), (256, 4), (64, 4), (96, 2), (40, 3), (32, 8), (1, 1)] {
        for rows in [7, 1, 3] {
            write(b, hidden, streams, rows, true)?;
        }
        write(b, hidden, streams, 2, false)?;
        mix(b, hidden, streams, 5)?;
    }
    low(b)
}

/// What one call leaves, its normed rows and its codes where it has any.
type Run = (Written, Option<Vec<f32>>, Option<Codes>);

/// What one call leaves.
#[derive(Debug, PartialEq)]
struct Written {
    x: Vec<f32>,
    q: Vec<i8>,
    d: Vec<f32>,
    rinv: Vec<f32>,
    inject: Vec<f32>,
}

/// `full`: with an added row, an inject matrix and floats; else the norm alone.
fn write(b: &mut Bench<'_>, hidden: usize, streams: usize, rows: usize, full: bool) -> Result<(), CudaError> {
    let wide_row = hidden * streams;
    let shape = format!("[{rows}, {streams} x {hidden}]{}", if full { "" } else { " norm alone" });
    let x = b.rng.floats(rows * wide_row, 2.0);
    let (inj, out) = (b.rng.floats(rows * streams, 1.5), b.rng.floats(rows * hidden, 3.0));
    let (gain, matrix) = (b.rng.floats(wide_row, 1.5), b.rng.floats(streams * wide_row, 0.1));
    let (d_gain, d_matrix) = (b.up(&gain)?, b.up(&matrix)?);
    let run = |b: &Bench<'_>, first: usize, rows: usize| -> Result<Run, CudaError> {
        let part = |v: &[f32], n: usize| v[first * n..(first + rows) * n].to_vec();
        let (dx, dj, do_) = (b.up(&part(&x, wide_row))?, b.up(&part(&inj, streams))?, b.up(&part(&out, hidden))?);
        let codes = if hidden.is_multiple_of(32) { Some(Codes::new(b, rows, wide_row)?) } else { None };
        let (parts, tickets) = (b.poisoned::<f32>(hyper::parts(rows, hidden, streams))?, b.up(&vec![0_u32; rows])?);
        let (rinv, inject) = (b.poisoned::<f32>(rows * streams)?, b.poisoned::<f32>(rows * streams)?);
        let normed = if full { Some(b.poisoned::<f32>(rows * wide_row)?) } else { None };
        let args = Write {
            x: dx.all(),
            add: full.then(|| (dj.all(), do_.all())),
            gain: d_gain.all(),
            next_inject: full.then(|| d_matrix.all()),
            codes: codes.as_ref().map(Codes::rows),
            parts: parts.all(),
            tickets: tickets.all(),
            rinv: rinv.all(),
            inj_next: inject.all(),
            normed: normed.as_ref().map(|n| n.all()),
            hidden,
            streams,
            eps: EPS,
        };
        // Twice: the tickets must be left as they were found; the second call norms what the first wrote.
        hyper::write(b.stream, b.kernels, args)?;
        hyper::write(b.stream, b.kernels, Write { add: None, ..args })?;
        let (q, d) = match &codes {
            Some(c) => (b.stream.download(c.q.all())?, b.stream.download(c.d.all())?),
            None => (vec![], vec![]),
        };
        let down = |buffer: &crate::driver::DeviceBuffer<f32>| b.stream.download(buffer.all());
        let written = Written { x: down(&dx)?, q, d, rinv: down(&rinv)?, inject: down(&inject)? };
        let normed = normed.as_ref().map(down).transpose()?;
        Ok((written, normed, codes))
    };
    let (got, normed, codes) = run(b, 0, rows)?;

    let mut want_x = wide(&x);
    if full {
        for (i, v) in want_x.iter_mut().enumerate() {
            let (row, channel) = (i / wide_row, i % wide_row);
            *v += f64::from(inj[row * streams + channel / hidden]) * f64::from(out[row * hidden + channel % hidden]);
        }
    }
    let want_rinv: Vec<f64> = want_x.chunks_exact(hidden).map(|s| rinv(s, EPS)).collect();
    let want_n: Vec<f64> =
        want_x.iter().enumerate().map(|(i, v)| v * want_rinv[i / hidden] * f64::from(gain[i % wide_row])).collect();
    b.close("hyper.write", &format!("{shape} x"), &got.x, &want_x, 1e-6);
    b.close("hyper.write", &format!("{shape} rinv"), &got.rinv, &want_rinv, 2e-6);
    if let Some(normed) = &normed {
        b.close("hyper.write", &format!("{shape} normed"), normed, &want_n, 2e-6);
        let matrix = wide(&matrix);
        let want: Vec<f64> = want_n
            .chunks_exact(wide_row)
            .flat_map(|n| {
                matrix.chunks_exact(wide_row).map(|m| 2.0 * sigmoid(dot(m, n) / streams as f64)).collect::<Vec<_>>()
            })
            .collect();
        b.close("hyper.write", &format!("{shape} inject"), &got.inject, &want, 5e-6);
    }
    if let Some(codes) = &codes {
        let scaled: Vec<f32> = got.x.iter().enumerate().map(|(i, v)| v * gain[i % wide_row]).collect();
        codes.check(b, "hyper.write", &shape, &scaled, |g| got.rinv[g * 32 / hidden])?;
    }
    let mut same = true;
    for row in 0..rows {
        let (one, ..) = run(b, row, 1)?;
        let part = |n: usize| row * n..(row + 1) * n;
        same &= one.x == got.x[part(wide_row)] && one.rinv == got.rinv[part(streams)];
        same &= !full || one.inject == got.inject[part(streams)];
        same &= codes.is_none() || one.q == got.q[part(wide_row)] && one.d == got.d[part(wide_row / 32)];
    }
    b.holds("hyper.write", &format!("{shape} rows alone"), same, "a row's bits depend on the rows beside it");
    Ok(())
}

fn mix(b: &mut Bench<'_>, hidden: usize, streams: usize, rows: usize) -> Result<(), CudaError> {
    let wide_row = hidden * streams;
    let shape = format!("[{rows}, {streams} x {hidden}]");
    let (gate, x) = (b.rng.floats(rows * wide_row, 6.0), b.rng.floats(rows * wide_row, 2.0));
    let (rinv, gain) = (b.rng.floats(rows * streams, 2.0), b.rng.floats(wide_row, 1.5));
    let (d_gate, d_x, d_rinv, d_gain) = (b.up(&gate)?, b.up(&x)?, b.up(&rinv)?, b.up(&gain)?);
    let mixed = b.poisoned::<f32>(rows * hidden)?;
    let codes = if hidden.is_multiple_of(32) { Some(Codes::new(b, rows, hidden)?) } else { None };
    let args = Mix {
        gate: d_gate.all(),
        x: d_x.all(),
        rinv: d_rinv.all(),
        gain: d_gain.all(),
        mixed: mixed.all(),
        codes: codes.as_ref().map(Codes::rows),
        hidden,
        streams,
    };
    hyper::mix(b.stream, b.kernels, args)?;
    let got = b.stream.download(mixed.all())?;
    let mut want = vec![0.0; rows * hidden];
    for (i, g) in gate.iter().enumerate() {
        let (row, c) = (i / wide_row, i % wide_row);
        let n = f64::from(x[i]) * f64::from(rinv[row * streams + c / hidden]) * f64::from(gain[c]);
        want[row * hidden + c % hidden] += sigmoid((*g).into()) * n / streams as f64;
    }
    b.close("hyper.mix", &shape, &got, &want, 2e-6);
    if let Some(codes) = &codes {
        codes.check(b, "hyper.mix", &shape, &got, |_| 1.0)?;
    }
    Ok(())
}

fn low(b: &mut Bench<'_>) -> Result<(), CudaError> {
    for (rows, rank) in [(7, 320), (1, 32), (3, 24)] {
        let low = b.rng.floats(rows * rank, 20.0);
        let device = b.up(&low)?;
        let codes = if rank % 32 == 0 { Some(Codes::new(b, rows, rank)?) } else { None };
        hyper::low(b.stream, b.kernels, device.all(), codes.as_ref().map(Codes::rows), 4)?;
        let got = b.stream.download(device.all())?;
        let shape = format!("[{rows}, {rank}]");
        let want: Vec<f64> = low.iter().map(|&v| silu(f64::from(v) / 4.0)).collect();
        b.close("hyper.low", &shape, &got, &want, 1e-6);
        if let Some(codes) = &codes {
            codes.check(b, "hyper.low", &shape, &got, |_| 1.0)?;
        }
    }
    let inject = b.rng.floats(28, 20.0);
    let device = b.up(&inject)?;
    hyper::inject(b.stream, b.kernels, device.all(), 4)?;
    let want: Vec<f64> = inject.iter().map(|&v| 2.0 * sigmoid(f64::from(v) / 4.0)).collect();
    let got = b.stream.download(device.all())?;
    b.close("hyper.inject", "[7, 4]", &got, &want, 1e-6);
    Ok(())
}
