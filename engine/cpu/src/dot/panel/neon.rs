//! Panels with the dot-product instructions of aarch64: four rows a register, eight rows a pass.

use std::arch::aarch64::{
    float32x4_t, int8x16_t, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s8, vdupq_n_s32, vfmaq_f32, vfmaq_n_f32, vld1q_f32,
    vld1q_s8, vmulq_n_f32, vreinterpretq_s8_s32, vst1q_f32,
};

use super::{Act, LANES, Lanes, PORTABLE, Panel, RUNS, Run, Version};
use crate::dot::GROUP;
use crate::dot::neon::dot4;

/// To be called only where the machine has the instructions. Rows are turned by the portable code: it moves words.
pub(super) const VERSION: Version = Version {
    // SAFETY: `rows` takes this version only for `Isa::Dotprod`, which was detected on this machine.
    dot: |panel, acts, out| unsafe { dot(panel, acts, out) },
    ..PORTABLE
};

/// Registers of rows in a pass: with four activation rows, dots and accumulators fill half of all registers.
const QUADS: usize = 2;

/// Rows of a pass.
const ROWS: usize = 4 * QUADS;

dot_in_tiles!("neon,dotprod", 4, 2, 1);

/// The first `N` activation rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile<const HALVES: usize, const OFFSET: bool, const N: usize>(panel: &Panel, acts: &[Act<'_>], out: &mut [Lanes]) {
    let groups = panel.codes.as_chunks::<RUNS>().0;
    let acts = &acts[..N];
    for first in (0..LANES).step_by(ROWS) {
        let mut acc = [[vdupq_n_f32(0.0); QUADS]; N];
        for (g, runs) in groups.iter().enumerate() {
            for (h, runs) in runs.chunks_exact(RUNS / HALVES).enumerate() {
                let mut dots = [[vdupq_n_s32(0); QUADS]; N];
                for (k, run) in runs.iter().enumerate() {
                    let codes = codes(run, first);
                    for (dots, act) in dots.iter_mut().zip(acts) {
                        let q = four_times(&act.row.q[g * GROUP + h * GROUP / HALVES + 4 * k..]);
                        for j in 0..QUADS {
                            dots[j] = dot4(dots[j], codes[j], q);
                        }
                    }
                }
                let wa = lanes(&panel.wa[g * HALVES + h], first);
                for (i, act) in acts.iter().enumerate() {
                    for j in 0..QUADS {
                        let scale = vmulq_n_f32(wa[j], act.row.d[g]);
                        acc[i][j] = vfmaq_f32(acc[i][j], scale, vcvtq_f32_s32(dots[i][j]));
                    }
                }
            }
            for h in 0..if OFFSET { HALVES } else { 0 } {
                let wb = lanes(&panel.wb[g * HALVES + h], first);
                for (i, act) in acts.iter().enumerate() {
                    let sum = if HALVES == 2 { act.half_sums[2 * g + h] } else { act.row.sum[g] };
                    for j in 0..QUADS {
                        acc[i][j] = vfmaq_n_f32(acc[i][j], vmulq_n_f32(wb[j], act.row.d[g]), sum as f32);
                    }
                }
            }
        }
        for (out, acc) in out.iter_mut().zip(acc) {
            for (out, acc) in out[first..first + ROWS].as_chunks_mut::<4>().0.iter_mut().zip(acc) {
                // SAFETY: four numbers are 16 bytes, what the store writes.
                unsafe { vst1q_f32(out.as_mut_ptr(), acc) }
            }
        }
    }
}

/// The codes of [`ROWS`] rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn codes(run: &Run, first: usize) -> [int8x16_t; QUADS] {
    let mut quads = [vdupq_n_s8(0); QUADS];
    for (quad, rows) in quads.iter_mut().zip(run[first..first + ROWS].as_chunks::<4>().0) {
        // SAFETY: four rows of four bytes are 16 bytes, what the load reads.
        *quad = unsafe { vld1q_s8(rows.as_ptr().cast()) };
    }
    quads
}

/// The first four bytes, beside each other four times.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn four_times(q: &[i8]) -> int8x16_t {
    let bytes: &[i8] = &q[..4];
    // SAFETY: four bytes are what is read; nothing is asked of their alignment.
    vreinterpretq_s8_s32(vdupq_n_s32(unsafe { bytes.as_ptr().cast::<i32>().read_unaligned() }))
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn lanes(values: &Lanes, first: usize) -> [float32x4_t; QUADS] {
    let mut lanes = [vdupq_n_f32(0.0); QUADS];
    for (lanes, values) in lanes.iter_mut().zip(values[first..first + ROWS].as_chunks::<4>().0) {
        // SAFETY: four numbers are 16 bytes, what the load reads.
        *lanes = unsafe { vld1q_f32(values.as_ptr()) };
    }
    lanes
}
