//! The routed experts against the same products written plainly. What holds no exponential is compared bit for bit.

use cudafast_quant::{ActRows, Format, GROUP, Kind, UnpackedRow, format_by_name, formats, synth};

use super::{
    Bench,
    matvec::{Made, Rows, dot, float_dot},
};
use crate::{
    driver::DeviceBuffer,
    error::CudaError,
    launch::{
        self, DeviceExperts, Input, Q8Rows,
        moe::{self, DownArgs, SwigluArgs, UpArgs},
    },
};

const UP: &str = "moe.up";
const DOWN: &str = "moe.down";
/// silu and the sigmoid differ by a few units in the last place between two exponentials.
pub(super) const BOUND: f64 = 2e-6;

pub(super) fn experts(made: &Made, experts: usize) -> DeviceExperts<'_> {
    let matrix = made.matrix();
    DeviceExperts { format: made.format, experts, rows: made.rows / experts, cols: made.cols, bytes: matrix.bytes }
}

/// Row `r` of all experts' rows times row `i`.
fn product(made: &Made, r: usize, acts: &ActRows, x: &[f32], i: usize) -> f32 {
    let row_bytes = made.host.len() / made.rows;
    let bytes = &made.host[r * row_bytes..][..row_bytes];
    if made.format.kind == Kind::Plain {
        let mut values = vec![0.0; made.cols];
        made.format.decode(bytes, &mut values);
        return float_dot(&values, &x[i * made.cols..][..made.cols]);
    }
    let mut row = UnpackedRow::new();
    made.format.unpack_row(bytes, &mut row);
    dot(&row, acts.row(i))
}

/// `K` different experts for each row.
pub(super) fn route(b: &mut Bench<'_>, t: usize, used: usize, experts: usize) -> Vec<i32> {
    let mut ids = vec![];
    for _ in 0..t {
        let mut left: Vec<i32> = (0..experts as i32).collect();
        (0..used).for_each(|_| ids.push(left.swap_remove((b.rng.next() % left.len() as u64) as usize)));
    }
    ids
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

struct Case {
    gate: &'static Format,
    up: &'static Format,
    down: &'static Format,
    hidden: usize,
    ff: usize,
    experts: usize,
    used: usize,
}

fn check(b: &mut Bench<'_>, case: &Case, widths: &[usize]) -> Result<(), CudaError> {
    let &Case { hidden, ff, experts: count, used, .. } = case;
    let gate = Made::new(b, case.gate, count * ff, hidden)?;
    let up = Made::new(b, case.up, count * ff, hidden)?;
    let down = Made::new(b, case.down, count * hidden, ff)?;
    for &t in widths {
        let rows = Rows::new(b, t, hidden)?;
        let host_ids = route(b, t, used, count);
        let ids = b.up(&host_ids)?;
        let mid = b.poisoned::<f32>(t * used * ff)?;
        let args = UpArgs {
            x: rows.input(),
            ids: ids.all(),
            gate: experts(&gate, count),
            up: experts(&up, count),
            mid: mid.all(),
            used,
        };
        moe::up(b.stream, b.kernels, args)?;
        let got = b.stream.download(mid.all())?;
        let mut want = vec![];
        for (pair, &expert) in host_ids.iter().enumerate() {
            for f in 0..ff {
                let of =
                    |m: &Made| f64::from(product(m, expert as usize * ff + f, &rows.acts, &rows.host, pair / used));
                want.push(of(&gate) * sigmoid(of(&gate)) * of(&up));
            }
        }
        let shape = format!("{} {} {count}x[{ff}, {hidden}] K={used} T={t}", case.gate.name, case.up.name);
        b.close(UP, &shape, &got, &want, BOUND);
        // The last row alone must have the same bits.
        let (last, one) = ((t - 1) * used, b.poisoned::<f32>(used * ff)?);
        moe::up(
            b.stream,
            b.kernels,
            UpArgs { x: rows.input().part(t - 1, 1), ids: ids.all().part(last, used), mid: one.all(), ..args },
        )?;
        let one = b.stream.download(one.all())?;
        b.bits(UP, &format!("{shape}, its last row alone"), &one, &got[last * ff..]);
        check_down(b, case, &down, &host_ids, args, &got)?;
    }
    Ok(())
}

fn check_down(
    b: &mut Bench<'_>,
    case: &Case,
    down: &Made,
    host_ids: &[i32],
    up: UpArgs<'_>,
    host_mid: &[f32],
) -> Result<(), CudaError> {
    let &Case { hidden, ff, experts: count, used, .. } = case;
    let t = up.x.rows;
    let acts = ActRows::quantise(host_mid, ff)
        .map_err(|e| CudaError::Read { what: "a check".into(), reason: e.to_string() })?;
    let host_weights = b.rng.floats(t * used, 1.0);
    let weights = b.up(&host_weights)?;
    let (q, d) = (b.poisoned::<i8>(t * used * ff)?, b.poisoned::<f32>(t * used * ff / GROUP)?);
    let mut want = vec![0.0_f32; t * hidden];
    for (pair, &expert) in host_ids.iter().enumerate() {
        for h in 0..hidden {
            let y = product(down, expert as usize * hidden + h, &acts, host_mid, pair);
            let to = &mut want[pair / used * hidden + h];
            *to = host_weights[pair].mul_add(y, *to);
        }
    }
    let shape = format!("{} {count}x[{hidden}, {ff}] K={used} T={t}", case.down.name);
    for with_shared in [false, true] {
        let host_shared = if with_shared { b.rng.floats(t * hidden, 2.0) } else { vec![0.0; t * hidden] };
        let host_gate = b.rng.floats(t, 4.0);
        let (shared, shared_gate) = (b.up(&host_shared)?, b.up(&host_gate)?);
        let out = b.poisoned::<f32>(t * hidden)?;
        let args = DownArgs {
            mid: Input { rows: t * used, q8: Some(Q8Rows { q: q.all(), d: d.all(), cols: ff }), floats: Some(up.mid) },
            ids: up.ids,
            weights: weights.all(),
            down: experts(down, count),
            shared: shared.all(),
            shared_gate: shared_gate.all(),
            out: out.all(),
            used,
        };
        moe::down(b.stream, b.kernels, args)?;
        let got = b.stream.download(out.all())?;
        if with_shared {
            let gated = |(i, y): (usize, &f32)| {
                f64::from(*y) + sigmoid(f64::from(host_gate[i / hidden])) * f64::from(host_shared[i])
            };
            let want: Vec<f64> = want.iter().enumerate().map(gated).collect();
            b.close(DOWN, &format!("{shape}, shared expert"), &got, &want, BOUND);
            // Both together, the second one reading ids while the first runs.
            let both = b.poisoned::<f32>(t * hidden)?;
            b.stream.fill(up.mid, 0xFF)?;
            moe::experts(b.stream, b.kernels, up, DownArgs { out: both.all(), ..args })?;
            let both = b.stream.download(both.all())?;
            b.bits(DOWN, &format!("{shape}, right behind up"), &both, &got);
        } else {
            b.bits(DOWN, &shape, &got, &want);
        }
    }
    Ok(())
}

fn swiglu(b: &mut Bench<'_>) -> Result<(), CudaError> {
    for (t, ff) in [(1, 640), (7, 640), (300, 64)] {
        let (gate, up) = (b.rng.floats(t * ff, 6.0), b.rng.floats(t * ff, 6.0));
        let (dg, du, mid) = (b.up(&gate)?, b.up(&up)?, b.poisoned::<f32>(t * ff)?);
        let (q, d) = (b.poisoned::<i8>(t * ff)?, b.poisoned::<f32>(t * ff / GROUP)?);
        let q8 = Some(Q8Rows { q: q.all(), d: d.all(), cols: ff });
        moe::swiglu(b.stream, b.kernels, SwigluArgs { gate: dg.all(), up: du.all(), mid: mid.all(), q8 })?;
        let got = b.stream.download(mid.all())?;
        let want: Vec<f64> =
            gate.iter().zip(&up).map(|(&g, &u)| f64::from(g) * sigmoid(g.into()) * f64::from(u)).collect();
        b.close("swiglu", &format!("[{t}, {ff}]"), &got, &want, BOUND);
        let acts = ActRows::quantise(&got, ff)
            .map_err(|e| CudaError::Read { what: "a check".into(), reason: e.to_string() })?;
        let codes: Vec<i8> = (0..t).flat_map(|r| acts.row(r).q.to_vec()).collect();
        let got = b.stream.download(q.all())?;
        b.bits("swiglu", &format!("[{t}, {ff}] codes"), &got, &codes);
    }
    Ok(())
}

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if b.wanted("swiglu") {
        swiglu(b)?;
    }
    if !b.wanted("moe") {
        return Ok(());
    }
    let named = |name: &str| format_by_name(name).unwrap_or(&formats()[0]);
    let [q8, q4k, q5k, q51, pq2, f32, bf16] = ["Q8_0", "Q4_K", "Q5_K", "Q5_1", "PQ2_0", "F32", "BF16"].map(named);
    let case = |gate, up, down, hidden, ff, experts, used| Case { gate, up, down, hidden, ff, experts, used };
    // The shipped shapes with fewer experts and rows of one expert, then small models, then experts of floats.
    check(b, &case(q4k, q4k, q51, 2560, 640, 12, 10), &[1, 2, 7])?;
    check(b, &case(q5k, q5k, q8, 2560, 640, 12, 10), &[1, 3])?;
    check(b, &case(q8, q8, q8, 2560, 128, 12, 10), &[1, 5, 8])?;
    check(b, &case(pq2, pq2, pq2, 2560, 640, 12, 10), &[1, 3])?;
    check(b, &case(q4k, q8, q51, 256, 96, 6, 2), &[1, 4, 8, 19])?;
    check(b, &case(q4k, q4k, q51, 256, 64, 6, 2), &[1, 7])?;
    check(b, &case(f32, f32, f32, 64, 96, 6, 3), &[1, 7])?;
    check(b, &case(bf16, q8, f32, 64, 32, 6, 3), &[1, 7])?;
    for format in formats().iter().filter(|f| f.kind != Kind::Plain) {
        let unit = format.block_elems.max(GROUP);
        check(b, &case(format, format, format, unit, unit, 5, 2), &[3])?;
    }
    if b.options.timed {
        times(b)?;
    }
    Ok(())
}

/// Both nodes in turn, as a decoding step has them: each layer's weights are others than the one before's.
fn times(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let (Some(q4k), Some(q51)) = (format_by_name("Q4_K"), format_by_name("Q5_1")) else { return Ok(()) };
    let (layers, nodes, count, hidden, ff, used) = (4, 48, 512, 2560, 640, 10);
    let mut made: Vec<[DeviceBuffer<u8>; 3]> = vec![];
    for layer in 0..layers {
        let one = |name: &str, format: &'static Format, rows: usize, cols: usize| {
            let bytes = DeviceBuffer::new(
                b.context,
                "experts to time",
                count * rows * cols / format.block_elems * format.block_bytes,
            )?;
            let (key, law) = (synth::tensor_key(layer, name), synth::Law::weights(format, 4, cols as u64));
            launch::synth(b.stream, b.kernels, launch::Synth { format, key, law, first_block: 0, out: bytes.all() })?;
            Ok::<_, CudaError>(bytes)
        };
        made.push([one("gate", q4k, ff, hidden)?, one("up", q4k, ff, hidden)?, one("down", q51, hidden, ff)?]);
    }
    let slab = |format, rows, cols, bytes| DeviceExperts { format, experts: count, rows, cols, bytes };
    for t in [1, 2, 3, 4, 7] {
        let rows = Rows::new(b, t, hidden)?;
        let ids = (0..nodes)
            .map(|_| {
                let ids = route(b, t, used, count);
                b.up(&ids)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let (weights, mid) = (b.rng.floats(t * used, 1.0), b.poisoned::<f32>(t * used * ff)?);
        let (weights, shared) = (b.up(&weights)?, b.poisoned::<f32>(t * hidden)?);
        let (gate, out) = (b.poisoned::<f32>(t)?, b.poisoned::<f32>(t * hidden)?);
        let up = |node: usize| {
            let [g, u, _] = &made[node % made.len()];
            let (gate, up) = (slab(q4k, ff, hidden, g.all()), slab(q4k, ff, hidden, u.all()));
            UpArgs { x: rows.input(), ids: ids[node].all(), gate, up, mid: mid.all(), used }
        };
        let down = |node: usize| {
            let [.., d] = &made[node % made.len()];
            DownArgs {
                mid: Input { rows: t * used, q8: None, floats: Some(mid.all()) },
                ids: ids[node].all(),
                weights: weights.all(),
                down: slab(q51, hidden, ff, d.all()),
                shared: shared.all(),
                shared_gate: gate.all(),
                out: out.all(),
                used,
            }
        };
        let ups = b.time(nodes, 9, |node| moe::up(b.stream, b.kernels, up(node)))?;
        let downs = b.time(nodes, 9, |node| moe::down(b.stream, b.kernels, down(node)))?;
        let both = b.time(nodes, 9, |node| moe::experts(b.stream, b.kernels, up(node), down(node)))?;
        let bytes = |rows: usize, row_bytes: usize| (t * used * rows * row_bytes) as u64;
        let (up_bytes, down_bytes) = (bytes(2 * ff, 1440), bytes(hidden, 480));
        b.timing(UP, &format!("Q4_K 512x[640, 2560] T={t}"), ups, up_bytes);
        b.timing(DOWN, &format!("Q5_1 512x[2560, 640] T={t}"), downs, down_bytes);
        b.timing("moe", &format!("up and down in turn T={t}"), both, up_bytes + down_bytes);
    }
    Ok(())
}
