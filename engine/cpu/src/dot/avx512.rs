//! [`super::rows`] with AVX-512 VNNI: one 512-bit accumulator a value, two groups of 32 a step.
//!
//! `vpdpbusd` wants one unsigned operand, so codes have 128 added (their top bit turned) and each accumulator starts at
//! `-128 * sum(q)` of its four bytes: the integers, and with them the bits, are those of the signed product.

use std::arch::x86_64::{
    __m256, __m512, __m512i, _MM_HINT_T0, _mm_castpd_ps, _mm_load_sd, _mm_load_ss, _mm_loadu_ps, _mm_prefetch,
    _mm256_add_ps, _mm256_castpd_ps, _mm256_loadu_si256, _mm256_mask_set1_epi16, _mm256_set1_epi16, _mm256_setzero_ps,
    _mm512_castps_pd, _mm512_castps128_ps512, _mm512_castps512_ps256, _mm512_castsi256_si512, _mm512_cvtepi32_ps,
    _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_extractf64x4_pd, _mm512_fmadd_ps, _mm512_inserti64x4,
    _mm512_loadu_si512, _mm512_mask3_fmadd_ps, _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_set1_epi8,
    _mm512_setr_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_sub_epi32, _mm512_xor_si512,
};
use std::ops::Range;

use cudafast_quant::blocks::Q8_0;
use cudafast_quant::{ActRow, Block, UnpackedRow};

use super::{GROUP, Product, Scratch, TILE, avx2, prefetch_row, unpack};

/// As [`super::rows`].
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn rows(p: Product<'_>, outputs: Range<usize>, scratch: &mut Scratch) {
    let direct = p.w.format.ggml_id == Q8_0::GGML_ID;
    // One activation row leaves room for twice the weight rows.
    let wide = p.pick.len() == 1;
    let mut r = outputs.start;
    while r < outputs.end {
        let left = outputs.end - r;
        r += if wide && left >= WIDE_TILE {
            weight_rows::<WIDE_TILE>(p, r, direct, scratch)
        } else if left >= TILE {
            weight_rows::<TILE>(p, r, direct, scratch)
        } else {
            weight_rows::<1>(p, r, direct, scratch)
        };
    }
}

/// Weight rows that share one pass over one activation row.
const WIDE_TILE: usize = super::MOST_TILED;

/// Weight rows `r..r + R` and every picked activation row; returns `R`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn weight_rows<const R: usize>(p: Product<'_>, r: usize, direct: bool, scratch: &mut Scratch) -> usize {
    if direct {
        let bytes = &p.w.bytes[r * p.w.row_bytes()..(r + R) * p.w.row_bytes()];
        activation_rows::<DIRECT, R>(p, r, Weights { blocks: bytemuck::cast_slice(bytes), unpacked: &[] });
        return R;
    }
    for (j, unpacked) in scratch.unpacked.iter_mut().take(R).enumerate() {
        prefetch_row(p.w, r + R + j);
        unpack::avx2(p.w.format, p.w.row(r + j), unpacked);
    }
    let weights = Weights { blocks: &[], unpacked: &scratch.unpacked[..R] };
    if scratch.unpacked[0].halves == 2 {
        activation_rows::<2, R>(p, r, weights);
    } else {
        activation_rows::<1, R>(p, r, weights);
    }
    R
}

/// Rows of weights: Q8_0 blocks as shipped, one row behind the other, or another format's unpacked; what the other has is
/// empty. Small, since a row of the narrowest matrices is a single group: what a tile sets up costs as much as its dots.
#[derive(Clone, Copy)]
struct Weights<'a> {
    blocks: &'a [Q8_0],
    unpacked: &'a [UnpackedRow],
}

impl Weights<'_> {
    #[inline(always)]
    fn hold(&self, rows: usize, groups: usize, form: usize) -> bool {
        if form == DIRECT {
            return self.blocks.len() == rows * groups;
        }
        let mut hold = self.unpacked.len() == rows;
        for row in self.unpacked {
            hold &= row.codes.len() == groups * GROUP && row.wa.len() == groups * form;
        }
        hold
    }
}

/// In place of the number of halves: the row is Q8_0 blocks.
const DIRECT: usize = 0;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn activation_rows<const FORM: usize, const R: usize>(p: Product<'_>, r: usize, weights: Weights<'_>) {
    let mut t = 0;
    while t < p.pick.len() {
        match p.pick.len() - t {
            1 => tile::<FORM, R, 1>(p, r, t, weights),
            2 => tile::<FORM, R, 2>(p, r, t, weights),
            3 => tile::<FORM, R, 3>(p, r, t, weights),
            _ => tile::<FORM, R, TILE>(p, r, t, weights),
        }
        t += TILE;
    }
}

/// `R` weight rows and the picked activation rows `t..t + N`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<const FORM: usize, const R: usize, const N: usize>(p: Product<'_>, r: usize, t: usize, weights: Weights<'_>) {
    let acts: [ActRow<'_>; N] = p.acts(t);
    let groups = p.w.cols / GROUP;
    // What every access below stays within.
    for a in &acts {
        assert!(a.q.len() == groups * GROUP && a.d.len() == groups);
    }
    assert!(weights.hold(R, groups, FORM));
    let mut acc = [[_mm512_setzero_ps(); N]; R];
    let mut g = 0;
    while g + 2 <= groups {
        // SAFETY: groups `g` and `g + 1` exist, and the lengths were checked above.
        acc = unsafe { step::<FORM, R, N, true>(acc, weights, groups, &acts, g) };
        g += 2;
    }
    if g < groups {
        // SAFETY: group `g` exists.
        acc = unsafe { step::<FORM, R, N, false>(acc, weights, groups, &acts, g) };
    }
    for i in 0..N {
        let mut halves = [_mm256_setzero_ps(); R];
        for j in 0..R {
            halves[j] = fold_halves(acc[j][i]);
        }
        let mut out = [0.0; R];
        avx2::trees(&halves, &mut out);
        if FORM != DIRECT && !weights.unpacked[0].wb.is_empty() {
            for (half, row) in halves.iter_mut().zip(weights.unpacked) {
                *half = if FORM == 1 { avx2::offsets(&row.wb, acts[i]) } else { avx2::half_offsets(row, acts[i]) };
            }
            let mut offsets = [0.0; R];
            avx2::trees(&halves, &mut offsets);
            for (out, offset) in out.iter_mut().zip(offsets) {
                *out += offset;
            }
        }
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(t + i, r, &out) };
    }
}

/// Groups `g` and, if `PAIR`, `g + 1`.
///
/// # Safety
/// They exist in every row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn step<const FORM: usize, const R: usize, const N: usize, const PAIR: bool>(
    mut acc: [[__m512; N]; R],
    weights: Weights<'_>,
    groups: usize,
    acts: &[ActRow<'_>; N],
    g: usize,
) -> [[__m512; N]; R] {
    let top = _mm512_set1_epi8(i8::MIN);
    let zero = _mm512_setzero_si512();
    let (mut q, mut d, mut start) = ([zero; N], [_mm512_setzero_ps(); N], [zero; N]);
    for i in 0..N {
        // SAFETY: the caller's contract.
        unsafe {
            q[i] = bytes::<PAIR>(acts[i].q.as_ptr().add(g * GROUP));
            d[i] = two_scales::<PAIR>(acts[i].d.as_ptr().add(g));
        }
        start[i] = _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, top, q[i]));
    }
    for (j, acc) in acc.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        let (codes, wa) = unsafe { weight_groups::<FORM, R, PAIR>(weights, groups, j, g) };
        let codes = _mm512_xor_si512(codes, top);
        for i in 0..N {
            let part = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start[i], codes, q[i]));
            let scale = _mm512_mul_ps(wa, d[i]);
            acc[i] = if PAIR {
                _mm512_fmadd_ps(scale, part, acc[i])
            } else {
                // The lanes of the odd group stay as they are.
                _mm512_mask3_fmadd_ps(scale, part, acc[i], 0x00FF)
            };
        }
    }
    acc
}

/// Codes of groups `g` and `g + 1` of row `j` of `R`, and their scales in each lane.
///
/// # Safety
/// They exist; without `PAIR`, the first. A row has `groups` groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn weight_groups<const FORM: usize, const R: usize, const PAIR: bool>(
    w: Weights<'_>,
    groups: usize,
    j: usize,
    g: usize,
) -> (__m512i, __m512) {
    // SAFETY: the caller's contract.
    unsafe {
        if FORM == DIRECT {
            let first = w.blocks.as_ptr().add(j * groups + g);
            let second = if PAIR { first.add(1) } else { first };
            let low = _mm512_castsi256_si512(_mm256_loadu_si256((&raw const (*first).qs).cast()));
            let codes = _mm512_inserti64x4::<1>(low, _mm256_loadu_si256((&raw const (*second).qs).cast()));
            // The rows of the next tile: the hardware follows a row, the jump to the next one is ours to announce. An
            // address behind the matrix is only a useless hint.
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(R * groups).cast());
            let low = _mm256_set1_epi16(i16::from_le_bytes((*first).d));
            let both = _mm256_mask_set1_epi16(low, 0xFF00, i16::from_le_bytes((*second).d));
            return (codes, _mm512_cvtph_ps(both));
        }
        let row = w.unpacked.get_unchecked(j);
        let codes = bytes::<PAIR>(row.codes.as_ptr().add(g * GROUP));
        let wa = row.wa.as_ptr().add(g * FORM);
        if FORM == 2 {
            let scales = if PAIR { _mm_loadu_ps(wa) } else { _mm_castpd_ps(_mm_load_sd(wa.cast())) };
            (codes, _mm512_permutexvar_ps(lanes::<2>(), _mm512_castps128_ps512(scales)))
        } else {
            (codes, two_scales::<PAIR>(wa))
        }
    }
}

/// 64 bytes, or 32 and zeros.
///
/// # Safety
/// `from` may be read that far.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn bytes<const PAIR: bool>(from: *const i8) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        if PAIR {
            _mm512_loadu_si512(from.cast())
        } else {
            _mm512_inserti64x4::<0>(_mm512_setzero_si512(), _mm256_loadu_si256(from.cast()))
        }
    }
}

/// The first scale in lanes 0..8, the second, if there is one, in lanes 8..16.
///
/// # Safety
/// One may be read, two if `PAIR`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn two_scales<const PAIR: bool>(from: *const f32) -> __m512 {
    // SAFETY: the caller's contract.
    let scales = unsafe { if PAIR { _mm_castpd_ps(_mm_load_sd(from.cast())) } else { _mm_load_ss(from) } };
    _mm512_permutexvar_ps(lanes::<1>(), _mm512_castps128_ps512(scales))
}

/// Which scale each lane takes, `HALVES` a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn lanes<const HALVES: usize>() -> __m512i {
    if HALVES == 2 {
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
    } else {
        _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
    }
}

/// The first step of the tree over 16 lanes: 8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn fold_halves(lanes: __m512) -> __m256 {
    let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(lanes)));
    _mm256_add_ps(_mm512_castps512_ps256(lanes), high)
}
