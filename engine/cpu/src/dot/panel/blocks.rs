//! Panels of the shipped formats straight from their blocks, with AVX-512: the bytes of 16 rows are turned as they lie in
//! the file, and codes and scales come out of them in lanes that are rows already. Other formats, and the last rows of a
//! matrix, are unpacked row by row and turned then, to the same panel.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm_setr_epi32, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_cvtepi32_epi16, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
    _mm512_inserti32x4, _mm512_mask_add_epi8, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_ps,
    _mm512_ternarylogic_epi32, _mm512_test_epi8_mask, _mm512_xor_ps, _mm512_xor_si512,
};

use cudafast_model::MatrixRef;
use cudafast_quant::blocks::{Q4K, Q5_1, Q5K, Q8_0};
use cudafast_quant::{Block, GROUP};

use super::avx512::{quarter, store};
use super::{LANES, Lanes, Panel, RUNS};

/// Takes rows `first..first + LANES` where the format has code here; says whether it did. The rows behind them, which
/// are asked for meanwhile, may not exist.
///
/// # Panics
/// When the matrix ends before `first + LANES`.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn fill(w: MatrixRef<'_>, first: usize, panel: &mut Panel) -> bool {
    match w.format.ggml_id {
        Q4K::GGML_ID => q4_k(Blocks::new(w, first), panel),
        Q5K::GGML_ID => q5_k(Blocks::new(w, first), panel),
        Q5_1::GGML_ID => q5_1(Blocks::new(w, first), panel),
        Q8_0::GGML_ID => q8_0(Blocks::new(w, first), panel),
        _ => return false,
    }
    true
}

/// 16 rows of blocks, one row behind the other.
#[derive(Clone, Copy)]
struct Blocks<'a, B> {
    blocks: &'a [B],
    /// Blocks of a row.
    columns: usize,
}

impl<'a, B: Block> Blocks<'a, B> {
    #[inline(always)]
    fn new(w: MatrixRef<'a>, first: usize) -> Self {
        let row_bytes = w.row_bytes();
        let bytes = &w.bytes[first * row_bytes..(first + LANES) * row_bytes];
        Self { blocks: bytemuck::cast_slice(bytes), columns: row_bytes / B::BYTES }
    }

    /// Makes room in a panel.
    #[inline(always)]
    fn reshape(&self, panel: &mut Panel) {
        assert_eq!(self.blocks.len(), LANES * self.columns, "blocks of a panel");
        let groups = self.columns * (B::ELEMS / GROUP);
        panel.halves = 1;
        panel.codes.resize(groups * RUNS, [[0; 4]; LANES]);
        panel.wa.resize(groups, [0.0; LANES]);
        panel.wb.resize(if B::OFFSET { groups } else { 0 }, [0.0; LANES]);
    }

    /// Four words of block `b` of every row from byte `at` on, turned: word `c` of all rows in register `c`.
    ///
    /// # Safety
    /// `b < columns` and `at + 16 <= B::BYTES`, of 16 rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn words(&self, b: usize, at: usize) -> [__m512i; 4] {
        let mut rows = [_mm512_setzero_si512(); 4];
        for (r, row) in rows.iter_mut().enumerate() {
            // SAFETY: the caller's contract; a load takes 16 bytes of one block.
            unsafe {
                let from = self.blocks.as_ptr().add(b + r * self.columns).cast::<u8>().add(at);
                let four_rows = 4 * self.columns * B::BYTES;
                let first = _mm512_castsi128_si512(_mm_loadu_si128(from.cast()));
                let two = _mm512_inserti32x4::<1>(first, _mm_loadu_si128(from.add(four_rows).cast()));
                let three = _mm512_inserti32x4::<2>(two, _mm_loadu_si128(from.add(2 * four_rows).cast()));
                *row = _mm512_inserti32x4::<3>(three, _mm_loadu_si128(from.add(3 * four_rows).cast()));
            }
        }
        quarter(rows)
    }

    /// Asks for the next panel's share of block `b`: it lies behind this one, so lines in order cover it once. Into the
    /// second cache, since this panel fills the first.
    #[inline(always)]
    fn prefetch_next(&self, b: usize) {
        let share = LANES * B::BYTES;
        let next = self.blocks.as_ptr().wrapping_add(self.blocks.len()).cast::<i8>();
        for at in (b * share..(b + 1) * share).step_by(64) {
            // SAFETY: a hint reads nothing, wherever it points.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(at)) }
        }
    }
}

/// `a & b | c`, bit by bit.
const AND_OR: i32 = 0xEA;

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q4_k(rows: Blocks<'_, Q4K>, panel: &mut Panel) {
    rows.reshape(panel);
    let (low, top) = (_mm512_set1_epi8(15), _mm512_set1_epi8(i8::MIN));
    let scales = panel.wa.as_chunks_mut::<8>().0.iter_mut().zip(panel.wb.as_chunks_mut::<8>().0);
    for ((b, runs), (wa, wb)) in panel.codes.as_chunks_mut::<{ 8 * RUNS }>().0.iter_mut().enumerate().zip(scales) {
        rows.prefetch_next(b);
        // SAFETY: the panel has as many blocks as a row, and every piece of 16 bytes is inside a block.
        unsafe {
            six_bit_scales(rows.words(b, 0), wa, wb);
            for piece in 0..8 {
                let qs = rows.words(b, size_of::<Q4K>() - 128 + 16 * piece);
                let first = piece / 2 * 2 * RUNS + piece % 2 * 4;
                for c in 0..4 {
                    store(&mut runs[first + c], _mm512_ternarylogic_epi32::<AND_OR>(qs[c], low, top));
                    let high = _mm512_srli_epi32::<4>(qs[c]);
                    store(&mut runs[first + RUNS + c], _mm512_ternarylogic_epi32::<AND_OR>(high, low, top));
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q5_k(rows: Blocks<'_, Q5K>, panel: &mut Panel) {
    rows.reshape(panel);
    let (low, fifth, top) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16), _mm512_set1_epi8(i8::MIN));
    let scales = panel.wa.as_chunks_mut::<8>().0.iter_mut().zip(panel.wb.as_chunks_mut::<8>().0);
    for ((b, runs), (wa, wb)) in panel.codes.as_chunks_mut::<{ 8 * RUNS }>().0.iter_mut().enumerate().zip(scales) {
        rows.prefetch_next(b);
        // SAFETY: the panel has as many blocks as a row, and every piece of 16 bytes is inside a block.
        unsafe {
            six_bit_scales(rows.words(b, 0), wa, wb);
            for half in 0..2 {
                // The two bits of a slice come down to bits 0 and 1 before it, and by two after it.
                let mut plane = rows.words(b, 16 + 16 * half);
                for slice in 0..4 {
                    let qs = rows.words(b, size_of::<Q5K>() - 128 + 32 * slice + 16 * half);
                    let first = slice * 2 * RUNS + half * 4;
                    for c in 0..4 {
                        let codes = _mm512_ternarylogic_epi32::<AND_OR>(qs[c], low, top);
                        let bits = _mm512_slli_epi32::<4>(plane[c]);
                        store(&mut runs[first + c], _mm512_ternarylogic_epi32::<AND_OR>(bits, fifth, codes));
                        let codes = _mm512_ternarylogic_epi32::<AND_OR>(_mm512_srli_epi32::<4>(qs[c]), low, top);
                        let bits = _mm512_slli_epi32::<3>(plane[c]);
                        store(&mut runs[first + RUNS + c], _mm512_ternarylogic_epi32::<AND_OR>(bits, fifth, codes));
                        plane[c] = _mm512_srli_epi32::<2>(plane[c]);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q5_1(rows: Blocks<'_, Q5_1>, panel: &mut Panel) {
    rows.reshape(panel);
    let (low, fifth, top) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16), _mm512_set1_epi8(i8::MIN));
    // Bit `4 k + j` of a row's plane belongs to byte `j` of run `k`: byte `k / 2` of the plane goes to all four, of which
    // byte `j` looks at bit `j`, or `j + 4` for an odd run.
    let bits = [_mm512_set1_epi32(0x0804_0201), _mm512_set1_epi32(0x8040_2010_u32.cast_signed())];
    // The first byte of each word, for all four, in each 128-bit lane.
    let first_byte = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0C0C_0C0C));
    let scales = panel.wa.iter_mut().zip(&mut panel.wb);
    for ((b, runs), (wa, wb)) in panel.codes.as_chunks_mut::<RUNS>().0.iter_mut().enumerate().zip(scales) {
        rows.prefetch_next(b);
        // SAFETY: the panel has as many blocks as a row, and every piece of 16 bytes is inside a block.
        let ([scales, plane, ..], qs) = unsafe { (rows.words(b, 0), rows.words(b, 8)) };
        put(wa, low_half(scales));
        put(wb, low_half(_mm512_srli_epi32::<16>(scales)));
        for c in 0..4 {
            // Low nibbles are elements 0..16, runs 0..4; high ones runs 4..8, whose bits are two bytes on.
            let byte = i8::from(c >= 2);
            let low_bits = _mm512_shuffle_epi8(plane, _mm512_or_si512(first_byte, _mm512_set1_epi8(byte)));
            let set = _mm512_test_epi8_mask(low_bits, bits[c % 2]);
            let codes = _mm512_ternarylogic_epi32::<AND_OR>(qs[c], low, top);
            store(&mut runs[c], _mm512_mask_add_epi8(codes, set, codes, fifth));
            let high_bits = _mm512_shuffle_epi8(plane, _mm512_or_si512(first_byte, _mm512_set1_epi8(byte + 2)));
            let set = _mm512_test_epi8_mask(high_bits, bits[c % 2]);
            let codes = _mm512_ternarylogic_epi32::<AND_OR>(_mm512_srli_epi32::<4>(qs[c]), low, top);
            store(&mut runs[c + 4], _mm512_mask_add_epi8(codes, set, codes, fifth));
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn q8_0(rows: Blocks<'_, Q8_0>, panel: &mut Panel) {
    rows.reshape(panel);
    let top = _mm512_set1_epi8(i8::MIN);
    for ((b, runs), wa) in panel.codes.as_chunks_mut::<RUNS>().0.iter_mut().enumerate().zip(&mut panel.wa) {
        rows.prefetch_next(b);
        // SAFETY: the panel has as many blocks as a row, and every piece of 16 bytes is inside a block.
        let (scales, pieces) = unsafe { (rows.words(b, 0)[0], [rows.words(b, 2), rows.words(b, 18)]) };
        put(wa, low_half(scales));
        for c in 0..4 {
            store(&mut runs[c], _mm512_xor_si512(pieces[0][c], top));
            store(&mut runs[c + 4], _mm512_xor_si512(pieces[1][c], top));
        }
    }
}

/// `wa = f32(d * scale)`, `wb = -f32(dmin * minimum)` of eight groups, from the first four words of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn six_bit_scales([halves, a, b, c]: [__m512i; 4], wa: &mut [Lanes; 8], wb: &mut [Lanes; 8]) {
    let (six, four, two) = (_mm512_set1_epi8(63), _mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
    // The upper two bits of the last four lie above the first four's six.
    let high_a = _mm512_and_si512(_mm512_srli_epi32::<2>(a), two);
    let high_b = _mm512_and_si512(_mm512_srli_epi32::<2>(b), two);
    let scales = [_mm512_and_si512(a, six), _mm512_ternarylogic_epi32::<AND_OR>(c, four, high_a)];
    let high_c = _mm512_srli_epi32::<4>(c);
    let minima = [_mm512_and_si512(b, six), _mm512_ternarylogic_epi32::<AND_OR>(high_c, four, high_b)];
    put_scaled(scales, low_half(halves), wa);
    // Negating the factor first gives the bits of negating the product.
    let sign = _mm512_set1_ps(-0.0);
    put_scaled(minima, _mm512_xor_ps(low_half(_mm512_srli_epi32::<16>(halves)), sign), wb);
}

/// Eight bytes of each row times a number of its own.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn put_scaled(bytes: [__m512i; 2], scale: __m512, out: &mut [Lanes; 8]) {
    let lowest = _mm512_set1_epi32(0xFF);
    let [first, last] = bytes;
    let (out, rest) = out.split_at_mut(4);
    for (mut word, out) in [(first, out), (last, rest)] {
        for out in out {
            put(out, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_and_si512(word, lowest))));
            word = _mm512_srli_epi32::<8>(word);
        }
    }
}

/// The low half of each word, a binary16 number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn low_half(words: __m512i) -> __m512 {
    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn put(lanes: &mut Lanes, values: __m512) {
    // SAFETY: 16 numbers are 64 bytes, what an unaligned store writes.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), values) }
}

#[cfg(test)]
mod tests {
    use cudafast_quant::formats;
    use proptest::prelude::*;

    use super::super::{Version, avx512};
    use super::*;
    use crate::isa::Isa;

    const COLUMNS: usize = 2 * 256;

    fn bits(lanes: &[Lanes]) -> Vec<u32> {
        let bits = |v: &f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
        lanes.as_flattened().iter().map(bits).collect()
    }

    proptest! {
        #[test]
        fn a_panel_from_blocks_is_the_panel_from_unpacked_rows(
            bytes in proptest::collection::vec(any::<u8>(), 2 * LANES * COLUMNS * 2),
            first in 0..LANES,
        ) {
            prop_assume!(Isa::Avx512.is_supported());
            let mut versions = 0;
            for format in formats() {
                let len = 2 * LANES * (COLUMNS / format.block_elems) * format.block_bytes;
                // Plain floats take no part, and are wider than the bytes made.
                let Some(bytes) = bytes.get(..len) else { continue };
                let w = MatrixRef { format, rows: 2 * LANES, cols: COLUMNS, bytes };
                let mut panel = Panel::default();
                // SAFETY: supported, see above.
                if !unsafe { fill(w, first, &mut panel) } {
                    continue;
                }
                let mut want = Panel::default();
                want.fill(Version { whole: |_, _, _| false, ..avx512::VERSION }, w, first..first + LANES);
                prop_assert_eq!(panel.halves, want.halves);
                prop_assert!(panel.codes == want.codes, "codes of {}", format.name);
                prop_assert!(bits(&panel.wa) == bits(&want.wa), "scales of {}", format.name);
                prop_assert!(bits(&panel.wb) == bits(&want.wb), "offsets of {}", format.name);
                versions += 1;
            }
            prop_assert_eq!(versions, 4);
        }
    }
}
