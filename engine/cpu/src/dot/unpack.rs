//! Weight rows in group form for wider instruction sets: `Format::unpack_row` with the same results.
//!
//! Every format's own code is compiled again, a block at a time: in a function of its own, so that the compiler knows that
//! codes and block do not overlap and uses whole registers. The formats of the shipped experts are written out, since
//! unpacking is what most of their time goes into.

use std::arch::x86_64::{
    __m256i, _mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32, _mm_loadl_epi64, _mm_loadu_si128, _mm_srli_epi16,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32,
    _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set_m128i, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi64x, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    _mm256_storeu_ps, _mm256_storeu_si256,
};

use cudafast_quant::blocks::{Q4K, Q5_1, Q5K};
use cudafast_quant::{Block, BlockVisitor, Format, GROUP, UnpackedRow, unpack_row_with};

/// As `Format::unpack_row`, for block formats.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2(format: &Format, bytes: &[u8], row: &mut UnpackedRow) {
    match format.ggml_id {
        Q4K::GGML_ID => q4_k(bytemuck::cast_slice(bytes), row),
        Q5K::GGML_ID => q5_k(bytemuck::cast_slice(bytes), row),
        Q5_1::GGML_ID => q5_1(bytemuck::cast_slice(bytes), row),
        _ => {
            format.with_block(Unpack { bytes, row });
        }
    }
}

struct Unpack<'a> {
    bytes: &'a [u8],
    row: &'a mut UnpackedRow,
}

impl BlockVisitor for Unpack<'_> {
    type Out = ();
    fn visit<B: Block>(self) {
        // SAFETY: made by `avx2` alone, on a machine that has the instructions.
        let codes = |block: &B, codes: &mut B::Codes| unsafe { block_codes(block, codes) };
        // SAFETY: as above.
        let scales = |block: &B, wa: &mut B::Scales, wb: &mut B::Scales| unsafe { block_scales(block, wa, wb) };
        unpack_row_with::<B>(bytemuck::cast_slice(self.bytes), self.row, codes, scales);
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn block_codes<B: Block>(block: &B, codes: &mut B::Codes) {
    block.codes(codes);
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn block_scales<B: Block>(block: &B, wa: &mut B::Scales, wb: &mut B::Scales) {
    block.scales(wa, wb);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q4_k(blocks: &[Q4K], row: &mut UnpackedRow) {
    row.reshape::<Q4K>(blocks.len() * Q4K::ELEMS);
    let low = _mm256_set1_epi8(15);
    let scales = row.wa.as_chunks_mut::<8>().0.iter_mut().zip(row.wb.as_chunks_mut::<8>().0);
    for ((block, codes), (wa, wb)) in blocks.iter().zip(row.codes.as_chunks_mut::<256>().0).zip(scales) {
        six_bit_scales(block.d, block.dmin, &block.scales, wa, wb);
        for (qs, codes) in block.qs.iter().zip(codes.as_chunks_mut::<64>().0) {
            let qs = load(qs);
            store(codes, 0, _mm256_and_si256(qs, low));
            store(codes, GROUP, _mm256_and_si256(_mm256_srli_epi16::<4>(qs), low));
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q5_k(blocks: &[Q5K], row: &mut UnpackedRow) {
    row.reshape::<Q5K>(blocks.len() * Q5K::ELEMS);
    let (low, one) = (_mm256_set1_epi8(15), _mm256_set1_epi8(1));
    let scales = row.wa.as_chunks_mut::<8>().0.iter_mut().zip(row.wb.as_chunks_mut::<8>().0);
    for ((block, codes), (wa, wb)) in blocks.iter().zip(row.codes.as_chunks_mut::<256>().0).zip(scales) {
        six_bit_scales(block.d, block.dmin, &block.scales, wa, wb);
        // The two bits of a slice come down to bits 0 and 1 before it, and by two after it.
        let mut high = load(&block.qh);
        for (qs, codes) in block.qs.iter().zip(codes.as_chunks_mut::<64>().0) {
            let qs = load(qs);
            let first = _mm256_slli_epi16::<4>(_mm256_and_si256(high, one));
            let second = _mm256_slli_epi16::<4>(_mm256_and_si256(_mm256_srli_epi16::<1>(high), one));
            store(codes, 0, _mm256_or_si256(_mm256_and_si256(qs, low), first));
            store(codes, GROUP, _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16::<4>(qs), low), second));
            high = _mm256_srli_epi16::<2>(high);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q5_1(blocks: &[Q5_1], row: &mut UnpackedRow) {
    row.reshape::<Q5_1>(blocks.len() * Q5_1::ELEMS);
    let low = _mm256_set1_epi8(15);
    // Byte i of the plane's four to bytes 8 i .. 8 i + 8, of which byte j keeps bit j.
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let fifth = _mm256_set1_epi8(16);
    let scales = row.wa.iter_mut().zip(&mut row.wb);
    for ((block, codes), (wa, wb)) in blocks.iter().zip(row.codes.as_chunks_mut::<GROUP>().0).zip(scales) {
        *wa = half(block.d);
        *wb = half(block.m);
        // SAFETY: 16 bytes, what an unaligned load reads.
        let qs = unsafe { _mm_loadu_si128(block.qs.as_ptr().cast()) };
        let nibbles = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(qs), qs), low);
        let plane = _mm256_set1_epi32(i32::from_le_bytes(block.qh));
        let kept = _mm256_and_si256(_mm256_shuffle_epi8(plane, spread), bits);
        let clear = _mm256_cmpeq_epi8(kept, _mm256_set1_epi8(0));
        store(codes, 0, _mm256_or_si256(nibbles, _mm256_andnot_si256(clear, fifth)));
    }
}

/// `wa = f32(d * scale)`, `wb = -f32(dmin * minimum)` of eight groups.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn six_bit_scales(d: [u8; 2], dmin: [u8; 2], packed: &[u8; 12], wa: &mut [f32; 8], wb: &mut [f32; 8]) {
    let (words, _) = packed.as_chunks::<4>();
    let [a, b, c] = [words[0], words[1], words[2]].map(u32::from_le_bytes);
    let (six, four, two) = (0x3F3F_3F3F, 0x0F0F_0F0F, 0x0303_0303);
    let scales = [a & six, c & four | (a >> 6 & two) << 4];
    let minima = [b & six, c >> 4 & four | (b >> 6 & two) << 4];
    store_scaled(scales, half(d), wa);
    store_scaled(minima, -half(dmin), wb);
}

/// Eight bytes times a number: negating it first gives the bits of negating the product.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_scaled(bytes: [u32; 2], scale: f32, out: &mut [f32; 8]) {
    // SAFETY: two words are 8 bytes, what this load reads; eight numbers are 32, what the store writes.
    unsafe {
        let values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast())));
        _mm256_storeu_ps(out.as_mut_ptr(), _mm256_mul_ps(_mm256_set1_ps(scale), values));
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half(bytes: [u8; 2]) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes(bytes)))))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(bytes: &[u8; GROUP]) -> __m256i {
    // SAFETY: 32 bytes, what an unaligned load reads.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// A group's codes at `codes[at..]`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store(codes: &mut [i8], at: usize, values: __m256i) {
    let group = &mut codes[at..at + GROUP];
    // SAFETY: 32 bytes, what an unaligned store writes.
    unsafe { _mm256_storeu_si256(group.as_mut_ptr().cast(), values) }
}
