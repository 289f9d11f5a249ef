//! The int8 dot product with AVX2: the bits of the portable one, two accumulators of eight lanes for even and odd groups.

use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_movehl_ps,
    _mm_set1_ps, _mm_shuffle_ps, _mm256_abs_epi8, _mm256_add_ps, _mm256_broadcastss_ps, _mm256_castps256_ps128,
    _mm256_cvtepi32_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_permute2f128_ps, _mm256_permutevar8x32_ps, _mm256_set1_epi16,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_m128, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_sign_epi8,
    _mm256_storeu_ps,
};

use std::ops::Range;

use cudafast_quant::blocks::Q8_0;
use cudafast_quant::{ActRow, Block, UnpackedRow};

use super::{GROUP, OFFSET_LANES, Offsets, Product, Scratch, TILE, prefetch_row, unpack};

/// As [`super::rows`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn rows(p: Product<'_>, outputs: Range<usize>, scratch: &mut Scratch) {
    if p.w.format.ggml_id == Q8_0::GGML_ID && p.pick.len() == 1 {
        return q8_0_rows(p, outputs);
    }
    let [unpacked, ..] = &mut scratch.unpacked;
    for r in outputs {
        prefetch_row(p.w, r + TILE);
        unpack::avx2(p.w.format, p.w.row(r), unpacked);
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

/// One row of activations: blocks are read as shipped, [`TILE`] weight rows at a time.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0_rows(p: Product<'_>, outputs: Range<usize>) {
    let a = p.x.row(p.pick.get(0));
    let columns = p.w.cols / GROUP;
    let blocks: &[Q8_0] = bytemuck::cast_slice(p.w.bytes);
    let (mut r, end) = (outputs.start, outputs.end);
    while r + TILE <= end {
        let mut out = [0.0; TILE];
        q8_0_tile(&blocks[r * columns..(r + TILE) * columns], columns, a, &mut out);
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(0, r, &out) };
        r += TILE;
    }
    for r in r..end {
        let mut out = [0.0];
        q8_0_tile(&blocks[r * columns..(r + 1) * columns], columns, a, &mut out);
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(0, r, &out) };
    }
}

/// `N` weight rows of `columns` blocks, one behind the other, and one activation row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0_tile<const N: usize>(blocks: &[Q8_0], columns: usize, a: ActRow<'_>, out: &mut [f32; N]) {
    let q = a.q.as_chunks::<GROUP>().0;
    // What every access below stays within: N rows of `columns` blocks, `columns` groups of activations.
    assert!(blocks.len() == N * columns && q.len() == columns && a.d.len() == columns);
    // No closures here: they would be compiled for the baseline and called.
    let mut rows: [&[Q8_0]; N] = [&[]; N];
    for (j, row) in rows.iter_mut().enumerate() {
        *row = &blocks[j * columns..(j + 1) * columns];
    }
    let (mut even, mut odd) = ([_mm256_setzero_ps(); N], [_mm256_setzero_ps(); N]);
    let mut g = 0;
    while g < columns {
        // SAFETY: `g < columns`, and the lengths were checked above.
        even = unsafe { q8_0_group(even, &rows, q, a.d, g) };
        if g + 1 < columns {
            // SAFETY: as above for `g + 1`.
            odd = unsafe { q8_0_group(odd, &rows, q, a.d, g + 1) };
        }
        g += 2;
    }
    for j in 0..N {
        even[j] = _mm256_add_ps(even[j], odd[j]);
    }
    trees(&even, out);
}

/// One group of `N` weight rows.
///
/// # Safety
/// `g` is below the length of every slice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q8_0_group<const N: usize>(
    mut acc: [__m256; N],
    rows: &[&[Q8_0]; N],
    q: &[[i8; GROUP]],
    d: &[f32],
    g: usize,
) -> [__m256; N] {
    // SAFETY: the caller's contract.
    let (q, d) = unsafe { (load(q.get_unchecked(g)), _mm256_set1_ps(*d.get_unchecked(g))) };
    for j in 0..N {
        // SAFETY: the caller's contract.
        let block = unsafe { rows[j].get_unchecked(g) };
        let scale = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes(block.d))));
        acc[j] = fold(acc[j], load(&block.qs), q, _mm256_mul_ps(_mm256_broadcastss_ps(scale), d));
    }
    acc
}

/// Weight row `r` and the picked activation rows `t..t + N`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpacked_tile<const N: usize>(p: Product<'_>, w: &UnpackedRow, r: usize, t: usize) {
    let acts: [ActRow<'_>; N] = p.acts(t);
    let mut out = [0.0; N];
    if w.halves == 2 {
        scaled::<2, N>(w, &acts, &mut out);
    } else {
        scaled::<1, N>(w, &acts, &mut out);
    }
    for (i, (value, a)) in out.iter_mut().zip(acts).enumerate() {
        if !w.wb.is_empty() {
            *value += tree(offset_lanes(w, a));
        }
        // SAFETY: a task has its outputs to itself.
        unsafe { p.sink.put(t + i, r, &[*value]) };
    }
}

/// The offset term of one weight row and one activation row, before its tree.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn offset_lanes(w: &UnpackedRow, a: ActRow<'_>) -> __m256 {
    if w.halves == 1 { offsets(&w.wb, a) } else { half_offsets(w, a) }
}

/// The lanes of formats with an offset a half; the shipped files have none.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn half_offsets(w: &UnpackedRow, a: ActRow<'_>) -> __m256 {
    let lanes = Offsets { w, a }.lanes();
    // SAFETY: eight numbers are 32 bytes, what an unaligned load reads.
    unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
}

/// The scaled part of one weight row and `N` activation rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scaled<const HALVES: usize, const N: usize>(w: &UnpackedRow, acts: &[ActRow<'_>; N], out: &mut [f32; N]) {
    let codes = w.codes.as_chunks::<GROUP>().0;
    let scales = w.wa.as_chunks::<HALVES>().0;
    let groups = codes.len();
    // What every access below stays within.
    assert!(scales.len() == groups);
    for a in acts {
        assert!(a.q.len() == groups * GROUP && a.d.len() == groups);
    }
    let (mut even, mut odd) = ([_mm256_setzero_ps(); N], [_mm256_setzero_ps(); N]);
    let mut g = 0;
    while g < groups {
        // SAFETY: `g < groups`, and the lengths were checked above.
        even = unsafe { unpacked_group(even, codes, scales, acts, g) };
        if g + 1 < groups {
            // SAFETY: as above for `g + 1`.
            odd = unsafe { unpacked_group(odd, codes, scales, acts, g + 1) };
        }
        g += 2;
    }
    for j in 0..N {
        even[j] = _mm256_add_ps(even[j], odd[j]);
    }
    trees(&even, out);
}

/// One group of `N` activation rows.
///
/// # Safety
/// `g` is below the length of every slice, in groups.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpacked_group<const HALVES: usize, const N: usize>(
    mut acc: [__m256; N],
    codes: &[[i8; GROUP]],
    scales: &[[f32; HALVES]],
    acts: &[ActRow<'_>; N],
    g: usize,
) -> [__m256; N] {
    // SAFETY: the caller's contract.
    let (codes, wa) = unsafe { (load(codes.get_unchecked(g)), half_scales(scales.get_unchecked(g))) };
    for t in 0..N {
        // SAFETY: the caller's contract; an activation row's groups are 32 bytes each.
        let (q, d) =
            unsafe { (_mm256_loadu_si256(acts[t].q.as_ptr().add(g * GROUP).cast()), *acts[t].d.get_unchecked(g)) };
        acc[t] = fold(acc[t], codes, q, _mm256_mul_ps(wa, _mm256_set1_ps(d)));
    }
    acc
}

/// The tree 4, 2, 1 over the lanes of each row. Eight rows share its steps: lanes of several rows meet in one register, each
/// still adds the same two numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn trees<const N: usize>(rows: &[__m256; N], out: &mut [f32; N]) {
    if N != 8 {
        for j in 0..N {
            out[j] = tree(rows[j]);
        }
        return;
    }
    // Rows 2 i and 2 i + 1: four sums each.
    let mut pairs = [_mm256_setzero_ps(); 4];
    for i in 0..4 {
        let (a, b) = (rows[2 * i], rows[2 * i + 1]);
        pairs[i] = _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
    }
    // Rows 4 i, 4 i + 2 | 4 i + 1, 4 i + 3: two sums each.
    let mut fours = [_mm256_setzero_ps(); 2];
    for i in 0..2 {
        let (a, b) = (pairs[2 * i], pairs[2 * i + 1]);
        fours[i] = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b));
    }
    // Rows 0, 2, 4, 6 | 1, 3, 5, 7.
    let (a, b) = (fours[0], fours[1]);
    let sums = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b));
    let ordered = _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    // SAFETY: eight numbers are 32 bytes, what an unaligned store writes.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), ordered) }
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
fn fold(acc: __m256, codes: __m256i, q: __m256i, scale: __m256) -> __m256 {
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes));
    let parts = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(parts), acc)
}

/// The lanes of formats with one offset a group: lane `g % 8`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn offsets(wb: &[f32], a: ActRow<'_>) -> __m256 {
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
    acc
}

/// The last steps of the tree: 4, 2, 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn tree(lanes: __m256) -> f32 {
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
