//! Panels with AVX2: eight rows a register, the sign of a code moved to the activation as in `dot::avx2`.

use std::arch::x86_64::{
    __m256, __m256i, _mm256_abs_epi8, _mm256_add_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_permute2x128_si256,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8,
    _mm256_storeu_ps, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64,
};

use cudafast_quant::{Format, UnpackedRow};

use super::{Act, Codes, LANES, Lanes, Panel, RUNS, Run, Version, checked_groups};
use crate::dot::{GROUP, unpack};

/// To be called only where the machine has the instructions.
pub(super) const VERSION: Version = Version {
    whole: |_, _, _| false,
    // SAFETY: `rows` takes this version only for `Isa::Avx2`, which was detected on this machine.
    unpack: |format: &Format, bytes: &[u8], row: &mut UnpackedRow| unsafe { unpack::avx2(format, bytes, row) },
    // SAFETY: as above.
    turn: |codes, runs| unsafe { turn(codes, runs) },
    // SAFETY: as above.
    dot: |panel, acts, out| unsafe { dot(panel, acts, out) },
};

/// Rows of one register.
const HALF: usize = LANES / 2;

/// 8 x 8 transpositions of four bytes: rows 0..8, then 8..16.
#[target_feature(enable = "avx2,fma,f16c")]
fn turn(codes: &Codes<'_>, runs: &mut [Run]) {
    for (g, runs) in runs.as_chunks_mut::<RUNS>().0.iter_mut().enumerate() {
        for first in [0, HALF] {
            let mut rows = [_mm256_setzero_si256(); HALF];
            for (r, row) in rows.iter_mut().enumerate() {
                // SAFETY: a group is 32 bytes, what an unaligned load reads.
                *row = unsafe { _mm256_loadu_si256(codes.group(first + r, g).as_ptr().cast()) };
            }
            let low = quarter([rows[0], rows[1], rows[2], rows[3]]);
            let high = quarter([rows[4], rows[5], rows[6], rows[7]]);
            for c in 0..4 {
                store(&mut runs[c], first, _mm256_permute2x128_si256::<0x20>(low[c], high[c]));
                store(&mut runs[c + 4], first, _mm256_permute2x128_si256::<0x31>(low[c], high[c]));
            }
        }
    }
}

/// Transposes 4 x 4 in each 128-bit lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn quarter(rows: [__m256i; 4]) -> [__m256i; 4] {
    let (a, b) = (_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpacklo_epi32(rows[2], rows[3]));
    let (c, d) = (_mm256_unpackhi_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[2], rows[3]));
    [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store(run: &mut Run, first: usize, codes: __m256i) {
    let rows: &mut [[i8; 4]] = &mut run[first..first + HALF];
    // SAFETY: eight rows of four bytes are 32 bytes, what an unaligned store writes.
    unsafe { _mm256_storeu_si256(rows.as_mut_ptr().cast(), codes) }
}

dot_in_tiles!("avx2,fma,f16c", 4, 2, 1);

/// The first `N` activation rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<const HALVES: usize, const OFFSET: bool, const N: usize>(panel: &Panel, acts: &[Act<'_>], out: &mut [Lanes]) {
    let groups = checked_groups::<HALVES, OFFSET, N>(panel, acts, out);
    let ones = _mm256_set1_epi16(1);
    for first in [0, HALF] {
        let mut acc = [_mm256_setzero_ps(); N];
        for g in 0..groups {
            for h in 0..HALVES {
                let mut dots = [_mm256_setzero_si256(); N];
                for k in h * RUNS / HALVES..(h + 1) * RUNS / HALVES {
                    // SAFETY: `g` is below `groups`, `h` below `HALVES`, and the lengths were checked above; eight rows
                    // of a run are 32 bytes, and four bytes of a group start at every fourth.
                    unsafe {
                        let rows = panel.codes.as_ptr().add(g * RUNS + k).cast::<[i8; 4]>().add(first);
                        let codes = _mm256_loadu_si256(rows.cast());
                        let magnitudes = _mm256_abs_epi8(codes);
                        for i in 0..N {
                            let q = acts[i].row.q.as_ptr().add(g * GROUP + 4 * k).cast::<i32>().read_unaligned();
                            let signed = _mm256_sign_epi8(_mm256_set1_epi32(q), codes);
                            let pairs = _mm256_maddubs_epi16(magnitudes, signed);
                            dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(pairs, ones));
                        }
                    }
                }
                // SAFETY: as above.
                let wa = unsafe { lanes(panel.wa.get_unchecked(g * HALVES + h), first) };
                for i in 0..N {
                    // SAFETY: as above.
                    let d = _mm256_set1_ps(unsafe { *acts[i].row.d.get_unchecked(g) });
                    acc[i] = _mm256_fmadd_ps(_mm256_mul_ps(wa, d), _mm256_cvtepi32_ps(dots[i]), acc[i]);
                }
            }
            if OFFSET {
                for h in 0..HALVES {
                    // SAFETY: as above.
                    let wb = unsafe { lanes(panel.wb.get_unchecked(g * HALVES + h), first) };
                    for i in 0..N {
                        let act = &acts[i];
                        // SAFETY: as above.
                        let (d, sum) = unsafe {
                            let half = if HALVES == 2 {
                                *act.half_sums.get_unchecked(2 * g + h)
                            } else {
                                *act.row.sum.get_unchecked(g)
                            };
                            (*act.row.d.get_unchecked(g), half as f32)
                        };
                        acc[i] = _mm256_fmadd_ps(_mm256_mul_ps(wb, _mm256_set1_ps(d)), _mm256_set1_ps(sum), acc[i]);
                    }
                }
            }
        }
        for (out, acc) in out.iter_mut().zip(acc) {
            let rows: &mut [f32] = &mut out[first..first + HALF];
            // SAFETY: eight numbers are 32 bytes, what an unaligned store writes.
            unsafe { _mm256_storeu_ps(rows.as_mut_ptr(), acc) }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lanes(values: &[f32; LANES], first: usize) -> __m256 {
    let rows: &[f32] = &values[first..first + HALF];
    // SAFETY: eight numbers are 32 bytes, what an unaligned load reads.
    unsafe { _mm256_loadu_ps(rows.as_ptr()) }
}
