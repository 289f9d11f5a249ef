//! Rows in and out against `cudafast-quant` and plain loops.

use std::time::Instant;

use bytemuck::cast_slice;
use cudafast_quant::{ActRows, Kind, formats, synth};

use super::Bench;
use crate::{
    error::CudaError,
    launch::{self, Argmax, DeviceMatrix, Ids, Q8Rows, RowsById},
    upload::{self, Upload},
};

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if b.wanted("upload") {
        upload(b)?;
    }
    if b.wanted("quantise_rows") {
        quantise(b)?;
    }
    if b.wanted("rows_by_id") {
        rows(b)?;
    }
    if b.wanted("argmax") {
        argmax(b)?;
    }
    Ok(())
}

/// Sizes around those of a staging buffer, and more of them than there are buffers.
fn upload(b: &mut Bench<'_>) -> Result<(), CudaError> {
    let sizes = [1, 0, 4096, (8 << 20) - 1, (8 << 20) + 1, 300 << 20, 77];
    let host: Vec<Vec<u8>> = sizes.iter().map(|&n| (0..n).map(|_| b.rng.next() as u8).collect()).collect();
    let device = sizes.iter().map(|&n| b.poisoned::<u8>(n)).collect::<Result<Vec<_>, _>>()?;
    let uploads: Vec<_> = host.iter().zip(&device).map(|(h, d)| Upload { from: h, to: d.all() }).collect();
    let (mut seen, start) = (0, Instant::now());
    upload::upload(b.stream, &uploads, &mut |bytes| {
        seen = bytes;
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    for ((host, device), size) in host.iter().zip(&device).zip(sizes).filter(|(_, size)| *size > 0) {
        let got = b.stream.download(device.all())?;
        b.bits("upload", &format!("{size} bytes"), &got, host);
    }
    let all: usize = sizes.iter().sum();
    b.bits("upload", "progress", &[seen], &[all as u64]);
    if b.options.timed {
        b.timing("upload", "from memory, staging made too", seconds * 1e6, all as u64);
    }
    Ok(())
}

fn quantise(b: &mut Bench<'_>) -> Result<(), CudaError> {
    for (t, cols) in [(1, 2560), (7, 10240), (3, 32), (8, 640), (300, 2560)] {
        let mut x = b.rng.floats(t * cols, 3.0);
        // Groups that are zero, tiny, huge, not finite, and with a tie of rounding.
        let edges: [&[f32]; 6] =
            [&[0.0; 32], &[1e-42; 32], &[3e38, 1.0], &[f32::INFINITY, 1.0], &[f32::NAN, 2.0], &[127.0, 0.5, 1.5, -2.5]];
        for (group, edge) in x.chunks_exact_mut(32).zip(edges.iter().take(cols * t / 64)) {
            group[..edge.len()].copy_from_slice(edge);
        }
        let want = ActRows::quantise(&x, cols).map_err(|e| refused(e.to_string()))?;
        let (dx, q, d) = (b.up(&x)?, b.poisoned::<i8>(t * cols)?, b.poisoned::<f32>(t * cols / 32)?);
        launch::quantise_rows(b.stream, b.kernels, dx.all(), Q8Rows { q: q.all(), d: d.all(), cols })?;
        let (q, d) = (b.stream.download(q.all())?, b.stream.download(d.all())?);
        let want_q: Vec<i8> = (0..t).flat_map(|r| want.row(r).q.to_vec()).collect();
        let want_d: Vec<u32> = (0..t).flat_map(|r| want.row(r).d.to_vec()).map(canonical).collect();
        let shape = format!("[{t}, {cols}]");
        b.bits("quantise_rows", &format!("{shape} codes"), &q, &want_q);
        b.bits("quantise_rows", &format!("{shape} scales"), &d.into_iter().map(canonical).collect::<Vec<_>>(), &want_d);
    }
    Ok(())
}

/// Bits, with one NaN for all: which one a division makes is the machine's choice.
fn canonical(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }
}

fn refused(reason: String) -> CudaError {
    CudaError::Read { what: "a check".into(), reason }
}

fn rows(b: &mut Bench<'_>) -> Result<(), CudaError> {
    for format in formats() {
        let (table_rows, cols) =
            (97, if format.kind == Kind::Plain { 160 } else { 32_usize.max(format.block_elems) * 5 });
        let row_bytes = cols / format.block_elems * format.block_bytes;
        let mut table = vec![0; table_rows * row_bytes];
        let key = synth::tensor_key(b.rng.next(), "table");
        synth::fill(format, key, synth::Law::weights(format, 4, 64), 0, &mut table);
        let ids: Vec<u32> = (0..6).map(|_| (b.rng.next() % table_rows as u64) as u32).chain([96, 0]).collect();
        let wide: Vec<u64> = ids.iter().map(|&i| i.into()).collect();
        let copies = 4;
        let mut want = vec![];
        for &id in &ids {
            let mut row = vec![0.0; cols];
            format.decode(&table[id as usize * row_bytes..][..row_bytes], &mut row);
            (0..copies).for_each(|_| want.extend_from_slice(&row));
        }
        let (bytes, ids, wide) = (b.up(&table)?, b.up(&ids)?, b.up(&wide)?);
        let table = DeviceMatrix { format, rows: table_rows, cols, bytes: bytes.all() };
        for ids in [Ids::Narrow(ids.all()), Ids::Wide(wide.all())] {
            let out = b.poisoned::<f32>(want.len())?;
            launch::rows_by_id(b.stream, b.kernels, RowsById { table, ids, copies, out: out.all() })?;
            let out = b.stream.download(out.all())?;
            let width = if matches!(ids, Ids::Narrow(_)) { 32 } else { 64 };
            b.bits("rows_by_id", &format!("{} [{table_rows}, {cols}] u{width}", format.name), &out, &want);
        }
    }
    Ok(())
}

fn argmax(b: &mut Bench<'_>) -> Result<(), CudaError> {
    for (t, cols) in [(1, 248_320), (7, 248_320), (3, 5), (2, 512)] {
        let mut x = b.rng.floats(t * cols, 30.0);
        let mut want = vec![];
        for (r, row) in x.chunks_exact_mut(cols).enumerate() {
            // A tie everywhere: the lowest must win; and one row with a NaN, which has no largest value.
            let at = (b.rng.next() % cols as u64) as usize;
            (row[at], row[cols - 1]) = (31.0, 31.0);
            if r == 2 {
                row[cols / 2] = f32::NAN;
            }
            let first = row.iter().position(|&v| v == 31.0).unwrap_or(cols);
            want.push(if r == 2 { cols as u32 } else { first as u32 });
        }
        let (dx, keys, id) = (b.up(&x)?, b.poisoned::<u64>(t * Argmax::SLICES)?, b.poisoned::<u32>(t)?);
        launch::argmax(b.stream, b.kernels, Argmax { x: dx.all(), cols, keys: keys.all(), id: id.all() })?;
        let id = b.stream.download(id.all())?;
        b.bits("argmax", &format!("[{t}, {cols}]"), cast_slice::<u32, u32>(&id), &want);
    }
    Ok(())
}
