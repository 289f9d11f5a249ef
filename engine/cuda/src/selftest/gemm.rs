//! Prefill's products against their fold order written plainly, bit for bit; what holds an exponential, by a bound.

use cudafast_quant::{ActRow, ActRows, Format, GROUP, Kind, UnpackedRow, format_by_name, formats, synth};

use super::{
    Bench,
    matvec::{Made, Rows},
    moe::{BOUND, experts, route, sigmoid},
};
use crate::{
    driver::DeviceBuffer,
    error::CudaError,
    launch::{
        self, DeviceMatrix, Input, Product, Q8Rows,
        gemm::{self, Pairs},
        moe::{DownArgs, UpArgs},
    },
};

const OP: &str = "gemm";

/// One row times one row, in the order of `kernels/gemm.cu`.
fn dot(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let size = GROUP / w.halves;
    let mut acc = 0.0_f32;
    for g in 0..a.d.len() {
        let part = |h: usize| g * GROUP + h * size..g * GROUP + (h + 1) * size;
        for h in 0..w.halves {
            let dot: i32 = part(h).map(|i| i32::from(w.codes[i]) * i32::from(a.q[i])).sum();
            acc = (w.wa[g * w.halves + h] * a.d[g]).mul_add(dot as f32, acc);
        }
        for h in 0..w.halves.min(w.wb.len()) {
            let sum: i32 = part(h).map(|i| i32::from(a.q[i])).sum();
            acc = w.wb[g * w.halves + h].mul_add(a.d[g] * sum as f32, acc);
        }
    }
    acc
}

/// Rows `from..to` of a matrix times the rows `at` of the activations: `[at][to - from]`.
fn products(made: &Made, from: usize, to: usize, acts: &ActRows, x: &[f32], at: &[usize]) -> Vec<f32> {
    let (row_bytes, rows) = (made.host.len() / made.rows, to - from);
    let (mut row, mut values) = (UnpackedRow::new(), vec![0.0; made.cols]);
    let mut out = vec![0.0; at.len() * rows];
    for r in 0..rows {
        let bytes = &made.host[(from + r) * row_bytes..][..row_bytes];
        if made.format.kind == Kind::Plain {
            made.format.decode(bytes, &mut values);
        } else {
            made.format.unpack_row(bytes, &mut row);
        }
        for (i, &at) in at.iter().enumerate() {
            out[i * rows + r] = if made.format.kind == Kind::Plain {
                let x = &x[at * made.cols..][..made.cols];
                values.iter().zip(x).fold(0.0_f32, |acc, (w, x)| w.mul_add(*x, acc))
            } else {
                dot(&row, acts.row(at))
            };
        }
    }
    out
}

fn dense(
    b: &mut Bench<'_>,
    format: &'static Format,
    rows: usize,
    cols: usize,
    counts: &[usize],
) -> Result<(), CudaError> {
    let made = Made::new(b, format, rows, cols)?;
    for &t in counts {
        let x = Rows::new(b, t, cols)?;
        let out = b.poisoned::<f32>(t * rows)?;
        let product = Product { matrix: made.matrix(), out: out.all() };
        gemm::product(b.stream, b.kernels, x.input(), &[product])?;
        let got = b.stream.download(out.all())?;
        let want = products(&made, 0, rows, &x.acts, &x.host, &(0..t).collect::<Vec<_>>());
        b.bits(OP, &format!("{} [{rows}, {cols}] T={t}", format.name), &got, &want);
    }
    Ok(())
}

/// Pairs by expert, as the router lists them.
fn grouped(ids: &[i32], experts: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut list, mut starts) = (vec![], vec![0]);
    for expert in 0..experts as i32 {
        list.extend((0..ids.len() as i32).filter(|&pair| ids[pair as usize] == expert));
        starts.push(list.len() as i32);
    }
    (list, starts)
}

struct Case {
    formats: [&'static Format; 3],
    hidden: usize,
    ff: usize,
    experts: usize,
    used: usize,
    rows: usize,
}

fn by_expert(b: &mut Bench<'_>, case: &Case) -> Result<(), CudaError> {
    let &Case { formats: [gate_format, up_format, down_format], hidden, ff, experts: count, used, rows: t } = case;
    let gate = Made::new(b, gate_format, count * ff, hidden)?;
    let up = Made::new(b, up_format, count * ff, hidden)?;
    let down = Made::new(b, down_format, count * hidden, ff)?;
    let x = Rows::new(b, t, hidden)?;
    let host_ids = route(b, t, used, count);
    let (list, starts) = grouped(&host_ids, count);
    let (dlist, dstarts) = (b.up(&list)?, b.up(&starts)?);
    let tiles = b.poisoned::<u32>(gemm::tiles(t * used, count))?;
    let pairs = Pairs { list: dlist.all(), starts: dstarts.all(), tiles: tiles.all() };
    let (ids, mid) = (b.up(&host_ids)?, b.poisoned::<f32>(t * used * ff)?);
    let args = UpArgs {
        x: x.input(),
        ids: ids.all(),
        gate: experts(&gate, count),
        up: experts(&up, count),
        mid: mid.all(),
        used,
    };
    gemm::experts_up(b.stream, b.kernels, args, pairs)?;
    let got = b.stream.download(mid.all())?;
    let mut want = vec![0.0; t * used * ff];
    for expert in 0..count {
        let members = &list[starts[expert] as usize..starts[expert + 1] as usize];
        let at: Vec<usize> = members.iter().map(|&pair| pair as usize / used).collect();
        let of = |made: &Made| products(made, expert * ff, (expert + 1) * ff, &x.acts, &x.host, &at);
        let (gates, ups) = (of(&gate), of(&up));
        for (i, &pair) in members.iter().enumerate() {
            for f in 0..ff {
                let (g, u) = (f64::from(gates[i * ff + f]), f64::from(ups[i * ff + f]));
                want[pair as usize * ff + f] = g * sigmoid(g) * u;
            }
        }
    }
    let names = [gate_format, up_format, down_format].map(|f| f.name).join(" ");
    let shape = format!("{names} {count}x[{ff}, {hidden}] K={used} T={t}");
    b.close("gemm.experts_up", &shape, &got, &want, BOUND);

    let acts =
        ActRows::quantise(&got, ff).map_err(|e| CudaError::Read { what: "a check".into(), reason: e.to_string() })?;
    let host_weights = b.rng.floats(t * used, 1.0);
    let mut y = vec![0.0; t * used * hidden];
    for expert in 0..count {
        let at: Vec<usize> =
            list[starts[expert] as usize..starts[expert + 1] as usize].iter().map(|&p| p as usize).collect();
        let of = products(&down, expert * hidden, (expert + 1) * hidden, &acts, &got, &at);
        for (i, pair) in at.iter().enumerate() {
            y[pair * hidden..][..hidden].copy_from_slice(&of[i * hidden..][..hidden]);
        }
    }
    let mut want = vec![0.0_f32; t * hidden];
    for pair in 0..t * used {
        let to = &mut want[pair / used * hidden..][..hidden];
        to.iter_mut().zip(&y[pair * hidden..]).for_each(|(to, y)| *to = host_weights[pair].mul_add(*y, *to));
    }
    let (weights, zeros, gates) = (b.up(&host_weights)?, b.up(&vec![0.0_f32; t * hidden])?, b.up(&vec![0.5_f32; t])?);
    let (q, d) = (b.poisoned::<i8>(t * used * ff)?, b.poisoned::<f32>(t * used * ff / GROUP)?);
    let (out, scratch) = (b.poisoned::<f32>(t * hidden)?, b.poisoned::<f32>(t * used * hidden)?);
    let q8 = Q8Rows { q: q.all(), d: d.all(), cols: ff };
    let args = DownArgs {
        mid: Input { rows: t * used, q8: Some(q8), floats: Some(mid.all()) },
        ids: ids.all(),
        weights: weights.all(),
        down: experts(&down, count),
        shared: zeros.all(),
        shared_gate: gates.all(),
        out: out.all(),
        used,
    };
    gemm::experts_down(b.stream, b.kernels, args, pairs, scratch.all())?;
    let got = b.stream.download(out.all())?;
    b.bits("gemm.experts_down", &shape, &got, &want);
    Ok(())
}

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted(OP) {
        return Ok(());
    }
    for format in formats() {
        let unit = format.block_elems.max(GROUP);
        dense(b, format, 37, unit, &[1])?;
        dense(b, format, 200, unit * 5, &[70])?;
    }
    let named = |name: &str| format_by_name(name).unwrap_or(&formats()[0]);
    let [q8, q4k, q5k, q51, f32, bf16] = ["Q8_0", "Q4_K", "Q5_K", "Q5_1", "F32", "BF16"].map(named);
    for (format, rows, cols) in [(q8, 256, 2560), (q8, 320, 10240), (q8, 512, 320), (q4k, 128, 2560), (f32, 48, 2560)] {
        dense(b, format, rows, cols, &[1, 64, 129])?;
    }
    dense(b, bf16, 130, 2560, &[65])?;
    let case = |formats, hidden, ff, experts, used, rows| Case { formats, hidden, ff, experts, used, rows };
    by_expert(b, &case([q4k, q4k, q51], 256, 64, 6, 2, 150))?;
    by_expert(b, &case([q5k, q8, q8], 512, 160, 9, 4, 33))?;
    by_expert(b, &case([q8, q8, q51], 64, 32, 1100, 3, 40))?;
    by_expert(b, &case([f32, bf16, f32], 64, 96, 6, 3, 100))?;
    if b.options.timed {
        times(b)?;
    }
    Ok(())
}

/// A chunk of 1,024 rows through the shapes of the model.
fn times(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let t = 1024;
    for (name, rows, cols) in [
        ("Q8_0", 10240, 2560),
        ("Q8_0", 2560, 6144),
        ("Q8_0", 320, 10240),
        ("Q8_0", 10240, 320),
        ("F32", 512, 2560),
        ("BF16", 512, 2560),
    ] {
        let Some(format) = format_by_name(name) else { continue };
        let bytes = rows * cols / format.block_elems * format.block_bytes;
        let weights = DeviceBuffer::<u8>::new(b.context, "weights to time", bytes)?;
        let law = synth::Law::weights(format, 4, cols as u64);
        let of = launch::Synth { format, key: 1, law, first_block: 0, out: weights.all() };
        launch::synth(b.stream, b.kernels, of)?;
        let (x, out) = (Rows::new(b, t, cols)?, b.poisoned::<f32>(t * rows)?);
        b.stream.synchronize()?;
        let matrix = DeviceMatrix { format, rows, cols, bytes: weights.all() };
        let us =
            b.time(8, 5, |_| gemm::product(b.stream, b.kernels, x.input(), &[Product { matrix, out: out.all() }]))?;
        let shape = format!("{name} [{rows}, {cols}] T={t}, {:.1} TMAC/s", (t * rows * cols) as f64 / us / 1e6);
        b.timing(OP, &shape, us, bytes as u64);
    }
    Ok(())
}
