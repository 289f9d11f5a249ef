//! The int8 dot product with AVX2: the bits of the portable one, two accumulators of eight lanes for even and odd groups.

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_movehl_ps,
    _mm_set1_ps, _mm_shuffle_ps, _mm256_abs_epi8, _mm256_add_ps, _mm256_broadcastss_ps, _mm256_castps256_ps128,
    _mm256_cvtepi32_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi16, _mm256_set1_ps, _mm256_setr_m128, _mm256_setzero_ps,
    _mm256_sign_epi8, _mm256_storeu_ps,
};

use cudafast_model::MatrixRef;
use cudafast_quant::blocks::Q8_0;
use cudafast_quant::{ActRow, ActRows, Block, UnpackedRow};

use super::{GROUP, OFFSET_LANES, Offsets};
use crate::matmul::Pick;
use crate::simd::Kernel;

/// Whether [`rows`] may be called on this machine.
pub(super) fn supported() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("f16c")
}

/// As [`super::rows`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn rows(
    w: MatrixRef<'_>,
    first: usize,
    x: &ActRows,
    pick: Pick<'_>,
    out: &mut [f32],
    unpacked: &mut UnpackedRow,
) {
    let direct = w.format.ggml_id == Q8_0::GGML_ID && pick.len() < TILE;
    for (i, values) in out.chunks_exact_mut(pick.len()).enumerate() {
        let bytes = w.row(first + i);
        if direct {
            let blocks: &[Q8_0] = bytemuck::cast_slice(bytes);
            for (t, value) in values.iter_mut().enumerate() {
                *value = q8_0_row(blocks, x.row(pick.get(t)));
            }
            continue;
        }
        w.format.unpack_row(bytes, unpacked);
        let mut t = 0;
        let (tiles, rest) = values.as_chunks_mut::<TILE>();
        for tile in tiles {
            let acts = std::array::from_fn(|j| x.row(pick.get(t + j)));
            *tile = if unpacked.halves == 2 {
                scaled::<2, TILE>(unpacked, acts)
            } else {
                scaled::<1, TILE>(unpacked, acts)
            };
            add_offsets(tile, unpacked, acts);
            t += TILE;
        }
        for value in rest {
            let acts = [x.row(pick.get(t))];
            let mut one =
                if unpacked.halves == 2 { scaled::<2, 1>(unpacked, acts) } else { scaled::<1, 1>(unpacked, acts) };
            add_offsets(&mut one, unpacked, acts);
            [*value] = one;
            t += 1;
        }
    }
}

/// Activation rows that share one pass over an unpacked weight row: eight accumulators fill half the registers.
const TILE: usize = 4;

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_offsets<const N: usize>(values: &mut [f32; N], w: &UnpackedRow, acts: [ActRow<'_>; N]) {
    if w.wb.is_empty() {
        return;
    }
    for (value, a) in values.iter_mut().zip(acts) {
        *value += if w.halves == 1 { offsets(&w.wb, a) } else { Offsets { w, a }.run() };
    }
}

/// Blocks as shipped: nothing to unpack.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0_row(blocks: &[Q8_0], a: ActRow<'_>) -> f32 {
    let (q, _) = a.q.as_chunks::<GROUP>();
    let mut lanes = [_mm256_setzero_ps(); 2];
    let mut groups = blocks.iter().zip(q).zip(a.d);
    while let Some(((w, q), d)) = groups.next() {
        lanes[0] = fold(lanes[0], load(&w.qs), q, q8_0_scale(w, d));
        if let Some(((w, q), d)) = groups.next() {
            lanes[1] = fold(lanes[1], load(&w.qs), q, q8_0_scale(w, d));
        }
    }
    tree(_mm256_add_ps(lanes[0], lanes[1]))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0_scale(w: &Q8_0, d: &f32) -> __m256 {
    let scale = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes(w.d))));
    _mm256_mul_ps(_mm256_broadcastss_ps(scale), _mm256_set1_ps(*d))
}

/// The scaled part of one weight row and `N` activation rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scaled<const HALVES: usize, const N: usize>(w: &UnpackedRow, acts: [ActRow<'_>; N]) -> [f32; N] {
    let (codes, _) = w.codes.as_chunks::<GROUP>();
    let (scales, _) = w.wa.as_chunks::<HALVES>();
    let q = acts.map(|a| a.q.as_chunks::<GROUP>().0);
    let groups = codes.len().min(scales.len());
    // One length for all, so that the loop below needs no further checks.
    let q = q.map(|q| &q[..groups]);
    let d = acts.map(|a| &a.d[..groups]);
    let mut lanes = [[_mm256_setzero_ps(); 2]; N];
    for (g, (codes, wa)) in codes.iter().zip(scales).enumerate() {
        let codes = load(codes);
        let wa = half_scales(wa);
        for t in 0..N {
            let scale = _mm256_mul_ps(wa, _mm256_set1_ps(d[t][g]));
            lanes[t][g % 2] = fold(lanes[t][g % 2], codes, &q[t][g], scale);
        }
    }
    lanes.map(|[even, odd]| tree(_mm256_add_ps(even, odd)))
}

/// `wa` in each lane, the first half's scale in lanes 0..4.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_scales<const HALVES: usize>(wa: &[f32; HALVES]) -> __m256 {
    if HALVES == 2 { _mm256_setr_m128(_mm_set1_ps(wa[0]), _mm_set1_ps(wa[HALVES - 1])) } else { _mm256_set1_ps(wa[0]) }
}

/// `acc = fma(scale, dot of four bytes, acc)` in each lane.
///
/// `maddubs` takes one unsigned operand, so the code's sign moves to the activation: `|c| * (sign(c) a)`. Activations stay
/// within -127..=127, so negating one never wraps; `|-128| = 128` is right as an unsigned byte; and a pair sum is at most
/// `2 * 128 * 127 = 32512`, so the saturating add never saturates.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fold(acc: __m256, codes: __m256i, q: &[i8; GROUP], scale: __m256) -> __m256 {
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(load(q), codes));
    let parts = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(parts), acc)
}

/// The offset term of formats with one offset a group: lane `g % 8`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn offsets(wb: &[f32], a: ActRow<'_>) -> f32 {
    let (wb8, wb_tail) = wb.as_chunks::<OFFSET_LANES>();
    let (d8, d_tail) = a.d.as_chunks::<OFFSET_LANES>();
    let (sum8, sum_tail) = a.sum.as_chunks::<OFFSET_LANES>();
    let mut acc = _mm256_setzero_ps();
    for ((wb, d), sum) in wb8.iter().zip(d8).zip(sum8) {
        // SAFETY: each array is 32 bytes, what an unaligned load reads.
        let (wb, d, sum) = unsafe {
            (_mm256_loadu_ps(wb.as_ptr()), _mm256_loadu_ps(d.as_ptr()), _mm256_loadu_si256(sum.as_ptr().cast()))
        };
        acc = _mm256_fmadd_ps(_mm256_mul_ps(wb, d), _mm256_cvtepi32_ps(sum), acc);
    }
    if !wb_tail.is_empty() {
        let mut lanes = [0.0f32; OFFSET_LANES];
        // SAFETY: `lanes` is 32 bytes, what an unaligned store writes.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), acc) };
        for (((lane, wb), d), sum) in lanes.iter_mut().zip(wb_tail).zip(d_tail).zip(sum_tail) {
            *lane = (wb * d).mul_add(*sum as f32, *lane);
        }
        // SAFETY: as above, read back.
        acc = unsafe { _mm256_loadu_ps(lanes.as_ptr()) };
    }
    tree(acc)
}

/// The last steps of the tree: 4, 2, 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tree(lanes: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(bytes: &[i8; GROUP]) -> __m256i {
    // SAFETY: the array is 32 bytes, what an unaligned load reads.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}
