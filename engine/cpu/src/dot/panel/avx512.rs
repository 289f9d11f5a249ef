//! Panels with AVX-512 VNNI. Codes have 128 added, see `dot::avx512`; here a group's dot starts at `-128 * sum(q)`.

use std::arch::x86_64::{
    __m512, __m512i, _mm256_loadu_si256, _mm512_castsi256_si512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_inserti64x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_permutex2var_epi64,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_epi64, _mm512_setzero_ps, _mm512_setzero_si512,
    _mm512_slli_epi32, _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use cudafast_quant::{Format, UnpackedRow};

use super::{Act, Codes, LANES, Lanes, Panel, RUNS, Run, Version, blocks, checked_groups};
use crate::dot::{GROUP, unpack};

/// To be called only where the machine has the instructions.
pub(super) const VERSION: Version = Version {
    // SAFETY: as below.
    whole: |w, first, panel| unsafe { blocks::fill(w, first, panel) },
    // SAFETY: `rows` takes this version only for `Isa::Avx512`, which was detected on this machine.
    unpack: |format: &Format, bytes: &[u8], row: &mut UnpackedRow| unsafe { unpack::avx2(format, bytes, row) },
    // SAFETY: as above.
    turn: |codes, runs| unsafe { turn(codes, runs) },
    // SAFETY: as above.
    dot: |panel, acts, out| unsafe { dot(panel, acts, out) },
};

/// Two 8 x 8 transpositions of four bytes at once: rows 0..8 in the low half of each register, 8..16 in the high one.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn turn(codes: &Codes<'_>, runs: &mut [Run]) {
    let even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    let top = _mm512_set1_epi8(i8::MIN);
    for (g, runs) in runs.as_chunks_mut::<RUNS>().0.iter_mut().enumerate() {
        let mut rows = [_mm512_setzero_si512(); RUNS];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = pair(codes.group(r, g), codes.group(r + 8, g));
        }
        // Four rows each: column c of run 4 l + c in 128-bit lane l.
        let (low, high) =
            (quarter([rows[0], rows[1], rows[2], rows[3]]), quarter([rows[4], rows[5], rows[6], rows[7]]));
        for c in 0..4 {
            store(&mut runs[c], _mm512_xor_si512(_mm512_permutex2var_epi64(low[c], even, high[c]), top));
            store(&mut runs[c + 4], _mm512_xor_si512(_mm512_permutex2var_epi64(low[c], odd, high[c]), top));
        }
    }
}

/// Transposes 4 x 4 in each 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn quarter(rows: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3]));
    let (c, d) = (_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3]));
    [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b), _mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn pair(low: &[u8; GROUP], high: &[u8; GROUP]) -> __m512i {
    // SAFETY: each array is 32 bytes, what an unaligned load reads.
    unsafe {
        let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.as_ptr().cast()));
        _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.as_ptr().cast()))
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn store(run: &mut Run, codes: __m512i) {
    // SAFETY: a run is 64 bytes, what an unaligned store writes.
    unsafe { _mm512_storeu_si512(run.as_mut_ptr().cast(), codes) }
}

dot_in_tiles!("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c", 8, 4, 3, 2, 1);

/// The first `N` activation rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<const HALVES: usize, const OFFSET: bool, const N: usize>(panel: &Panel, acts: &[Act<'_>], out: &mut [Lanes]) {
    let groups = checked_groups::<HALVES, OFFSET, N>(panel, acts, out);
    let mut acc = [_mm512_setzero_ps(); N];
    for g in 0..groups {
        for h in 0..HALVES {
            let mut dots = [_mm512_setzero_si512(); N];
            for i in 0..N {
                // SAFETY: `g` is below `groups`, `h` below `HALVES`, and the lengths were checked above.
                let sum = _mm512_set1_epi32(unsafe { half_sum::<HALVES>(&acts[i], g, h) });
                dots[i] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32::<7>(sum));
            }
            for k in h * RUNS / HALVES..(h + 1) * RUNS / HALVES {
                // SAFETY: as above; a run is 64 bytes, and four bytes of a group start at every fourth.
                unsafe {
                    let codes = _mm512_loadu_si512(panel.codes.as_ptr().add(g * RUNS + k).cast());
                    for i in 0..N {
                        let q = acts[i].row.q.as_ptr().add(g * GROUP + 4 * k).cast::<i32>().read_unaligned();
                        dots[i] = _mm512_dpbusd_epi32(dots[i], codes, _mm512_set1_epi32(q));
                    }
                }
            }
            // SAFETY: as above.
            let wa = unsafe { lanes(panel.wa.get_unchecked(g * HALVES + h)) };
            for i in 0..N {
                // SAFETY: as above.
                let d = _mm512_set1_ps(unsafe { *acts[i].row.d.get_unchecked(g) });
                acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(wa, d), _mm512_cvtepi32_ps(dots[i]), acc[i]);
            }
        }
        if OFFSET {
            for h in 0..HALVES {
                // SAFETY: as above.
                let wb = unsafe { lanes(panel.wb.get_unchecked(g * HALVES + h)) };
                for i in 0..N {
                    // SAFETY: as above.
                    let (d, sum) = unsafe { (*acts[i].row.d.get_unchecked(g), half_sum::<HALVES>(&acts[i], g, h)) };
                    let sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(sum));
                    acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(wb, _mm512_set1_ps(d)), sum, acc[i]);
                }
            }
        }
    }
    for (out, acc) in out.iter_mut().zip(acc) {
        // SAFETY: 16 numbers are 64 bytes, what an unaligned store writes.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), acc) }
    }
}

/// # Safety
/// Group `g` and half `h` exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn half_sum<const HALVES: usize>(act: &Act<'_>, g: usize, h: usize) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { if HALVES == 2 { *act.half_sums.get_unchecked(2 * g + h) } else { *act.row.sum.get_unchecked(g) } }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn lanes(values: &[f32; LANES]) -> __m512 {
    // SAFETY: 16 numbers are 64 bytes, what an unaligned load reads.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}
