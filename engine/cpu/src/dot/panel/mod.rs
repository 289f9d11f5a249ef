//! The int8 dot for many activation rows: bits of `cudafast_quant::dot_ref::<1>`, lanes are weight rows.
//!
//! A [`Panel`] is 16 weight rows turned on their side: for each group of 32, eight runs of four bytes of every row, then
//! scales and offsets of every row. Four bytes of an activation, broadcast, meet 16 rows in one instruction, a group's dot
//! is whole after eight, and one fold serves 16 values; [`super::rows`] folds every 4 bytes. Turning costs about as much as
//! two activation rows; an expert of a prompt has seldom more of them, so the formats of the shipped experts have code that
//! turns their blocks as they are (`blocks`).

/// `dot` of a version: its `tile` for the panel's form, over activation rows `$width` at a time, widest first.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! dot_in_tiles {
    ($features:literal, $($width:literal),+) => {
        #[target_feature(enable = $features)]
        fn dot(panel: &Panel, acts: &[Act<'_>], out: &mut [Lanes]) {
            match (panel.halves, panel.wb.is_empty()) {
                (2, true) => tiles::<2, false>(panel, acts, out),
                (2, false) => tiles::<2, true>(panel, acts, out),
                (_, true) => tiles::<1, false>(panel, acts, out),
                (_, false) => tiles::<1, true>(panel, acts, out),
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn tiles<const HALVES: usize, const OFFSET: bool>(panel: &Panel, acts: &[Act<'_>], out: &mut [Lanes]) {
            let mut t = 0;
            $(while acts.len() - t >= $width {
                tile::<HALVES, OFFSET, $width>(panel, &acts[t..], &mut out[t..]);
                t += $width;
            })+
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod blocks;
#[cfg(target_arch = "aarch64")]
mod neon;

use std::ops::Range;

use cudafast_model::MatrixRef;
use cudafast_quant::blocks::Q8_0;
use cudafast_quant::{ActRow, Block, Kind, UnpackedRow, f16_to_f32};

use super::{GROUP, Product, Scratch, prefetch_row};
use crate::isa::Isa;

/// Weight rows of a panel.
pub(crate) const LANES: usize = 16;

/// Runs of four bytes in a group.
const RUNS: usize = GROUP / 4;

/// Four bytes of each row.
type Run = [[i8; 4]; LANES];

/// A number for each row.
type Lanes = [f32; LANES];

/// 16 weight rows, or fewer and copies of the last.
#[derive(Default)]
pub(crate) struct Panel {
    /// `[groups][RUNS]`. The AVX-512 version keeps codes with their top bit turned.
    codes: Vec<Run>,
    /// `[groups][halves]`.
    wa: Vec<Lanes>,
    /// As `wa`, or empty.
    wb: Vec<Lanes>,
    halves: usize,
    rows: [UnpackedRow; LANES],
}

/// Where the codes of a panel's rows are read from: row `r`, group `g` at `start[r] + g * step`.
struct Codes<'a> {
    start: [&'a [u8]; LANES],
    step: usize,
}

impl Codes<'_> {
    /// The 32 codes of one row's group.
    #[inline(always)]
    fn group(&self, row: usize, g: usize) -> &[u8; GROUP] {
        let bytes = &self.start[row][g * self.step..];
        // Each row was cut to reach the end of its last group.
        bytes.first_chunk().unwrap_or(&[0; GROUP])
    }
}

/// What differs between instruction sets.
#[derive(Clone, Copy)]
struct Version {
    /// Takes 16 whole rows from the first given on, or says that the format is not one it can: rows are unpacked then.
    whole: fn(MatrixRef<'_>, usize, &mut Panel) -> bool,
    unpack: fn(&cudafast_quant::Format, &[u8], &mut UnpackedRow),
    turn: fn(&Codes<'_>, &mut [Run]),
    dot: fn(&Panel, &[Act<'_>], &mut [Lanes]),
}

/// An activation row and the exact sums of its groups' halves, where the format has halves.
struct Act<'a> {
    row: ActRow<'a>,
    half_sums: &'a [i32],
}

/// Activation rows that one call of a version's `dot` takes at most.
const MOST_ROWS: usize = 8;

/// As [`super::rows`], in the order of `dot_ref::<1>`.
pub(crate) fn rows(isa: Isa, p: Product<'_>, outputs: Range<usize>, scratch: &mut Scratch) {
    assert!(isa.is_supported(), "{isa} on a machine without it");
    let version = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::VERSION,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::VERSION,
        #[cfg(target_arch = "aarch64")]
        Isa::Dotprod => neon::VERSION,
        _ => PORTABLE,
    };
    let Scratch { panel, half_sums, .. } = scratch;
    // Taken once for all panels.
    let halves = matches!(p.w.format.kind, Kind::Block { sub: 16, .. });
    half_sums.clear();
    if halves {
        for t in 0..p.pick.len() {
            half_sums.extend(p.x.row(p.pick.get(t)).q.as_chunks::<16>().0.iter().map(sum));
        }
    }
    let sums = if halves { p.w.cols / 16 } else { 0 };
    let mut acts = Vec::with_capacity(p.pick.len());
    for t in 0..p.pick.len() {
        acts.push(Act { row: p.x.row(p.pick.get(t)), half_sums: &half_sums[t * sums..(t + 1) * sums] });
    }
    let mut out = [[0.0; LANES]; MOST_ROWS];
    for first in outputs.clone().step_by(LANES) {
        let count = LANES.min(outputs.end - first);
        panel.fill(version, p.w, first..first + count);
        for (i, acts) in acts.chunks(MOST_ROWS).enumerate() {
            out.fill([0.0; LANES]);
            (version.dot)(panel, acts, &mut out[..acts.len()]);
            for (j, values) in out[..acts.len()].iter().enumerate() {
                // SAFETY: a task has its outputs to itself.
                unsafe { p.sink.put(i * MOST_ROWS + j, first, &values[..count]) };
            }
        }
    }
}

fn sum(q: &[i8; 16]) -> i32 {
    q.iter().map(|q| i32::from(*q)).sum()
}

impl Panel {
    /// Takes weight rows `rows`, at most 16.
    fn fill(&mut self, version: Version, w: MatrixRef<'_>, rows: Range<usize>) {
        let groups = w.cols / GROUP;
        if rows.len() == LANES && (version.whole)(w, rows.start, self) {
            return;
        }
        let at = |r: usize| (rows.start + r).min(rows.end - 1);
        self.codes.resize(groups * RUNS, [[0; 4]; LANES]);
        if w.format.ggml_id == Q8_0::GGML_ID {
            // Codes lie in the blocks as they are wanted.
            self.halves = 1;
            self.wa.resize(groups, [0.0; LANES]);
            self.wb.clear();
            let blocks: [&[Q8_0]; LANES] = std::array::from_fn(|r| bytemuck::cast_slice(w.row(at(r))));
            for (r, blocks) in blocks.iter().enumerate() {
                for (wa, block) in self.wa.iter_mut().zip(*blocks) {
                    wa[r] = f16_to_f32(u16::from_le_bytes(block.d));
                }
            }
            let start = std::array::from_fn(|r| &w.row(at(r))[size_of::<u16>()..]);
            return (version.turn)(&Codes { start, step: Q8_0::BYTES }, &mut self.codes);
        }
        for r in 0..rows.len() {
            prefetch_row(w, rows.start + LANES + r);
            (version.unpack)(w.format, w.row(at(r)), &mut self.rows[r]);
        }
        let unpacked: [&UnpackedRow; LANES] = std::array::from_fn(|r| &self.rows[r.min(rows.len() - 1)]);
        self.halves = unpacked[0].halves;
        turn_scales(&unpacked.map(|row| &row.wa[..]), &mut self.wa);
        turn_scales(&unpacked.map(|row| &row.wb[..]), &mut self.wb);
        let start = unpacked.map(|row| bytemuck::cast_slice(&row.codes));
        (version.turn)(&Codes { start, step: GROUP }, &mut self.codes);
    }
}

/// Groups of the panel. Checks what every access of an unchecked tile stays within.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn checked_groups<const HALVES: usize, const OFFSET: bool, const N: usize>(
    panel: &Panel,
    acts: &[Act<'_>],
    out: &[Lanes],
) -> usize {
    let groups = panel.codes.len() / RUNS;
    assert!(acts.len() >= N && out.len() >= N && panel.wa.len() == groups * HALVES);
    assert!(!OFFSET || panel.wb.len() == groups * HALVES);
    for act in &acts[..N] {
        let a = act.row;
        assert!(a.q.len() == groups * GROUP && a.d.len() == groups && a.sum.len() == groups);
        assert!(HALVES == 1 || act.half_sums.len() == groups * HALVES);
    }
    groups
}

fn turn_scales(rows: &[&[f32]; LANES], lanes: &mut Vec<Lanes>) {
    const SIDE: usize = 8;
    let scales = rows[0].len();
    lanes.resize(scales, [0.0; LANES]);
    // Squares of 8 x 8, so that loads and stores are whole lines.
    for start in (0..scales).step_by(SIDE) {
        let end = scales.min(start + SIDE);
        for (r, row) in rows.iter().enumerate() {
            for (lanes, scale) in lanes[start..end].iter_mut().zip(&row[start..end]) {
                lanes[r] = *scale;
            }
        }
    }
}

/// Without intrinsics.
const PORTABLE: Version = Version { whole: |_, _, _| false, unpack: cudafast_quant::Format::unpack_row, turn, dot };

fn turn(codes: &Codes<'_>, runs: &mut [Run]) {
    for (g, runs) in runs.as_chunks_mut::<RUNS>().0.iter_mut().enumerate() {
        for r in 0..LANES {
            let group: &[i8; GROUP] = bytemuck::cast_ref(codes.group(r, g));
            for (run, bytes) in runs.iter_mut().zip(group.as_chunks::<4>().0) {
                run[r] = *bytes;
            }
        }
    }
}

fn dot(panel: &Panel, acts: &[Act<'_>], out: &mut [Lanes]) {
    let halves = panel.halves;
    for (act, acc) in acts.iter().zip(out) {
        let a = act.row;
        for (g, (runs, q)) in panel.codes.as_chunks::<RUNS>().0.iter().zip(a.q.as_chunks::<GROUP>().0).enumerate() {
            let q = q.as_chunks::<4>().0;
            for (h, (runs, q)) in runs.chunks_exact(RUNS / halves).zip(q.chunks_exact(RUNS / halves)).enumerate() {
                let mut dots = [0_i32; LANES];
                for (run, q) in runs.iter().zip(q) {
                    for (dot, codes) in dots.iter_mut().zip(run) {
                        *dot += (0..4).map(|b| i32::from(codes[b]) * i32::from(q[b])).sum::<i32>();
                    }
                }
                let wa = &panel.wa[g * halves + h];
                for r in 0..LANES {
                    acc[r] = (wa[r] * a.d[g]).mul_add(dots[r] as f32, acc[r]);
                }
            }
            if !panel.wb.is_empty() {
                for h in 0..halves {
                    let sum = if halves == 2 { act.half_sums[2 * g + h] } else { a.sum[g] };
                    let wb = &panel.wb[g * halves + h];
                    for r in 0..LANES {
                        acc[r] = (wb[r] * a.d[g]).mul_add(sum as f32, acc[r]);
                    }
                }
            }
        }
    }
}
