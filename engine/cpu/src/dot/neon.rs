//! The int8 dot product on aarch64 with the dot-product instructions: the bits of the portable one, two accumulators of
//! eight lanes for even and odd groups, each of them two registers.

use std::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, vadd_f32, vaddq_f32, vcvt_f32_f16, vcvtq_f32_s32, vdup_n_u16, vdupq_n_f32,
    vdupq_n_s32, vfmaq_n_f32, vget_high_f32, vget_low_f32, vgetq_lane_f32, vld1q_s8, vpadds_f32, vreinterpret_f16_u16,
};
use std::arch::asm;
use std::ops::Range;

use cudafast_quant::blocks::Q8_0;
use cudafast_quant::{ActRow, Block, UnpackedRow};

use super::{GROUP, OFFSET_LANES, Offsets, Product, Scratch, TILE};
use crate::math;

/// As [`super::rows`].
#[target_feature(enable = "neon,dotprod")]
pub(super) fn rows(p: Product<'_>, outputs: Range<usize>, scratch: &mut Scratch) {
    if p.w.format.ggml_id == Q8_0::GGML_ID && p.pick.len() == 1 {
        return q8_0_rows(p, outputs);
    }
    let [unpacked, ..] = &mut scratch.unpacked;
    for r in outputs {
        p.w.format.unpack_row(p.w.row(r), unpacked);
        let mut t = 0;
        while t < p.pick.len() {
            match p.pick.len() - t {
                1 => unpacked_tile::<1>(p, unpacked, r, t),
                2 => unpacked_tile::<2>(p, unpacked, r, t),
                3 => unpacked_tile::<3>(p, unpacked, r, t),
                _ => unpacked_tile::<TILE>(p, unpacked, r, t),
            }
            t += TILE;
        }
    }
}

/// Eight lanes of one row.
type Lanes = [float32x4_t; 2];

/// One row of activations: blocks are read as shipped, [`TILE`] weight rows at a time.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn q8_0_rows(p: Product<'_>, outputs: Range<usize>) {
    let a = p.x.row(p.pick.get(0));
    let columns = p.w.cols / GROUP;
    let blocks: &[Q8_0] = bytemuck::cast_slice(p.w.bytes);
    let (mut r, end) = (outputs.start, outputs.end);
    while r + TILE <= end {
        let out: [f32; TILE] = q8_0_tile(&blocks[r * columns..(r + TILE) * columns], columns, a);
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(0, r, &out) };
        r += TILE;
    }
    for r in r..end {
        let out: [f32; 1] = q8_0_tile(&blocks[r * columns..(r + 1) * columns], columns, a);
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(0, r, &out) };
    }
}

/// `N` weight rows of `columns` blocks, one behind the other, and one activation row.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn q8_0_tile<const N: usize>(blocks: &[Q8_0], columns: usize, a: ActRow<'_>) -> [f32; N] {
    // Cut to one length, which spares most accesses below their check.
    let (q, d) = (&a.q.as_chunks::<GROUP>().0[..columns], &a.d[..columns]);
    // No closures here: what calls them would have to have this function's instructions.
    let mut rows: [&[Q8_0]; N] = [&[]; N];
    for (j, row) in rows.iter_mut().enumerate() {
        *row = &blocks[j * columns..][..columns];
    }
    let (mut even, mut odd) = ([zero(); N], [zero(); N]);
    let mut g = 0;
    while g < columns {
        even = q8_0_group(even, &rows, &q[g], d[g], g);
        if g + 1 < columns {
            odd = q8_0_group(odd, &rows, &q[g + 1], d[g + 1], g + 1);
        }
        g += 2;
    }
    trees(even, odd)
}

/// Group `g` of `N` weight rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn q8_0_group<const N: usize>(
    mut acc: [Lanes; N],
    rows: &[&[Q8_0]; N],
    q: &[i8; GROUP],
    d: f32,
    g: usize,
) -> [Lanes; N] {
    let q = load(q);
    for j in 0..N {
        let block = &rows[j][g];
        let scale = half_to_single(u16::from_le_bytes(block.d)) * d;
        acc[j] = fold(acc[j], load(&block.qs), q, [scale; 2]);
    }
    acc
}

/// Weight row `r` and the picked activation rows `t..t + N`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn unpacked_tile<const N: usize>(p: Product<'_>, w: &UnpackedRow, r: usize, t: usize) {
    let acts: [ActRow<'_>; N] = p.acts(t);
    let out = if w.halves == 2 { scaled::<2, N>(w, &acts) } else { scaled::<1, N>(w, &acts) };
    for i in 0..N {
        let value = match (w.wb.is_empty(), w.halves) {
            (true, _) => out[i],
            (false, 1) => out[i] + math::tree(offsets(&w.wb, acts[i])),
            (false, _) => out[i] + math::tree(Offsets { w, a: acts[i] }.lanes()),
        };
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(t + i, r, &[value]) };
    }
}

/// The scaled part of one weight row and `N` activation rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn scaled<const HALVES: usize, const N: usize>(w: &UnpackedRow, acts: &[ActRow<'_>; N]) -> [f32; N] {
    let codes = w.codes.as_chunks::<GROUP>().0;
    let groups = codes.len();
    let scales = &w.wa.as_chunks::<HALVES>().0[..groups];
    let (mut q, mut d): ([&[[i8; GROUP]]; N], [&[f32]; N]) = ([&[]; N], [&[]; N]);
    for t in 0..N {
        (q[t], d[t]) = (&acts[t].q.as_chunks().0[..groups], &acts[t].d[..groups]);
    }
    let (mut even, mut odd) = ([zero(); N], [zero(); N]);
    let mut g = 0;
    while g < groups {
        even = unpacked_group(even, &codes[g], &scales[g], &q, &d, g);
        if g + 1 < groups {
            odd = unpacked_group(odd, &codes[g + 1], &scales[g + 1], &q, &d, g + 1);
        }
        g += 2;
    }
    trees(even, odd)
}

/// Group `g` of `N` activation rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn unpacked_group<const HALVES: usize, const N: usize>(
    mut acc: [Lanes; N],
    codes: &[i8; GROUP],
    wa: &[f32; HALVES],
    q: &[&[[i8; GROUP]]; N],
    d: &[&[f32]; N],
    g: usize,
) -> [Lanes; N] {
    let codes = load(codes);
    for t in 0..N {
        let d = d[t][g];
        acc[t] = fold(acc[t], codes, load(&q[t][g]), [wa[0] * d, wa[HALVES - 1] * d]);
    }
    acc
}

/// `acc = fma(scale, dot of four bytes, acc)` in each lane; one scale for each half of the group.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn fold(mut acc: Lanes, codes: [int8x16_t; 2], q: [int8x16_t; 2], scales: [f32; 2]) -> Lanes {
    for h in 0..2 {
        let part = dot4(vdupq_n_s32(0), codes[h], q[h]);
        acc[h] = vfmaq_n_f32(acc[h], vcvtq_f32_s32(part), scales[h]);
    }
    acc
}

/// `sums[i] += a[4 i..4 i + 4] . b[4 i..4 i + 4]`, exact. Assembly, since the intrinsic is not stable in Rust.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dot4(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: reads and writes the named registers only; callers have `dotprod`, as this function does.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// The tree over both accumulators of each row: 8, 4, 2, 1.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn trees<const N: usize>(even: [Lanes; N], odd: [Lanes; N]) -> [f32; N] {
    let mut out = [0.0; N];
    for j in 0..N {
        let four = vaddq_f32(vaddq_f32(even[j][0], odd[j][0]), vaddq_f32(even[j][1], odd[j][1]));
        out[j] = vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
    }
    out
}

/// [`Offsets`] of formats without halves. Plain Rust, eight groups at a time: the compiler makes two registers of the lanes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn offsets(wb: &[f32], a: ActRow<'_>) -> [f32; OFFSET_LANES] {
    let (wb, wb_tail) = wb.as_chunks::<OFFSET_LANES>();
    let (d, d_tail) = a.d.as_chunks::<OFFSET_LANES>();
    let (sum, sum_tail) = a.sum.as_chunks::<OFFSET_LANES>();
    let mut acc = [0.0f32; OFFSET_LANES];
    for ((wb, d), sum) in wb.iter().zip(d).zip(sum) {
        for j in 0..OFFSET_LANES {
            acc[j] = (wb[j] * d[j]).mul_add(sum[j] as f32, acc[j]);
        }
    }
    for (((lane, wb), d), sum) in acc.iter_mut().zip(wb_tail).zip(d_tail).zip(sum_tail) {
        *lane = (wb * d).mul_add(*sum as f32, *lane);
    }
    acc
}

/// Exact, subnormals and all; one instruction of the base set.
#[inline]
#[target_feature(enable = "neon")]
fn half_to_single(bits: u16) -> f32 {
    vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))))
}

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> Lanes {
    [vdupq_n_f32(0.0); 2]
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[i8; GROUP]) -> [int8x16_t; 2] {
    // SAFETY: the array is 32 bytes, what the two loads read.
    unsafe { [vld1q_s8(bytes.as_ptr()), vld1q_s8(bytes[GROUP / 2..].as_ptr())] }
}
