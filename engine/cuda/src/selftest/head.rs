//! Inputs of the draft head against qwen4exp.md 9 in f64.

use super::{
    Bench,
    plain::{Codes, rms, wide},
};
use crate::{
    error::CudaError,
    launch::head::{self, Join},
};

const EPS: f32 = 1e-6;

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted("head.join") {
        return Ok(());
    }
    for (hidden, streams, rows) in [(2560, 4, 7), (2560, 4, 1), (64, 4, 3), (40, 3, 2)] {
        for single in [true, false] {
            join(b, hidden, streams, rows, single)?;
        }
    }
    Ok(())
}

fn join(b: &mut Bench<'_>, hidden: usize, streams: usize, rows: usize, single: bool) -> Result<(), CudaError> {
    let row = hidden * streams;
    let (residual, embedding) = (b.rng.floats(rows * row, 3.0), b.rng.floats(rows * hidden, 0.1));
    let (enorm, hnorm) = (b.rng.floats(hidden, 1.5), b.rng.floats(row, 1.5));
    let (d_enorm, d_hnorm) = (b.up(&enorm)?, b.up(&hnorm)?);
    let run = |b: &Bench<'_>, first: usize, rows: usize| -> Result<(Vec<f32>, Option<Codes>), CudaError> {
        let part = |x: &[f32], n: usize| b.up(&x[first * n..(first + rows) * n]);
        let (residual, embedding) = (part(&residual, row)?, part(&embedding, hidden)?);
        let joined = b.poisoned::<f32>(2 * rows * row)?;
        let codes = if hidden.is_multiple_of(32) { Some(Codes::new(b, rows * streams, 2 * hidden)?) } else { None };
        let args = Join {
            residual: residual.all(),
            embedding: embedding.all(),
            enorm: d_enorm.all(),
            hnorm: d_hnorm.all(),
            joined: joined.all(),
            codes: codes.as_ref().map(Codes::rows),
            single,
            hidden,
            streams,
            eps: EPS,
        };
        head::join(b.stream, b.kernels, args)?;
        Ok((b.stream.download(joined.all())?, codes))
    };
    let mut want = vec![];
    for (r, e) in residual.chunks_exact(row).zip(embedding.chunks_exact(hidden)) {
        let e = rms(&wide(e), &enorm, EPS);
        let group = if single { row } else { hidden };
        let groups = r.chunks_exact(group).zip(hnorm.chunks_exact(group));
        let h: Vec<f64> = groups.flat_map(|(r, gain)| rms(&wide(r), gain, EPS)).collect();
        h.chunks_exact(hidden).for_each(|h| want.extend(e.iter().chain(h)));
    }
    let (got, codes) = run(b, 0, rows)?;
    let name = format!("[{rows}, {streams} x {hidden}] {}", if single { "single" } else { "per stream" });
    b.close("head.join", &name, &got, &want, 2e-6);
    if let Some(codes) = &codes {
        codes.check(b, "head.join", &name, &got, |_| 1.0)?;
    }
    let mut same = true;
    for t in 0..rows {
        same &= run(b, t, 1)?.0 == got[t * 2 * row..(t + 1) * 2 * row];
    }
    b.holds("head.join", &format!("{name}, rows alone"), same, "a row's bits depend on the rows beside it");
    Ok(())
}
