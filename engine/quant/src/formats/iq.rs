//! IQ2_XXS, IQ2_XS and IQ3_XXS: rows of a grid of magnitudes under packed signs (quant-formats.md 2.3).

use bytemuck::{Pod, Zeroable};

use crate::{
    Block,
    float16::f16_le,
    formats::iq_grids::{IQ2_XS, IQ2_XXS, IQ3_XXS},
};

/// Eight groups of 32; a group is four grid rows, 28 sign bits and a four-bit scale.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Iq2Xxs {
    /// Scale of the scales, binary16.
    pub d: [u8; 2],
    /// Per group: four grid indices, then a word: seven sign bits for each eight elements, the scale on top.
    pub groups: [[u8; 8]; 8],
}

/// Sixteen sub-blocks of 16; eight elements are a grid row and seven sign bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Iq2Xs {
    /// Scale of the scales, binary16.
    pub d: [u8; 2],
    /// Per eight elements: grid row in the low nine bits, signs above.
    pub qs: [[u8; 2]; 32],
    /// A nibble a sub-block, even ones low.
    pub scales: [u8; 8],
}

/// Eight groups of 32; a group is eight grid rows of 4, 28 sign bits and a four-bit scale.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Iq3Xxs {
    /// Scale of the scales, binary16.
    pub d: [u8; 2],
    /// Grid indices, one for each four elements.
    pub qs: [[u8; 8]; 8],
    /// Per group a word: seven sign bits for each eight elements, the scale on top.
    pub words: [[u8; 4]; 8],
}

/// The sign byte of seven stored bits: the eighth makes the number of minus signs even.
#[inline(always)]
pub(crate) fn even_signs(seven: u8) -> u8 {
    seven | ((seven.count_ones() & 1) as u8) << 7
}

/// `row` with element j negated where bit j of `signs` is set.
#[inline(always)]
fn apply_signs(row: [i8; 8], signs: u8, codes: &mut [i8; 8]) {
    const BIT: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    for j in 0..8 {
        codes[j] = if signs & BIT[j] != 0 { -row[j] } else { row[j] };
    }
}

/// The signs of elements 8k.. of a group from its word.
#[inline(always)]
fn word_signs(word: u32, k: usize) -> u8 {
    even_signs((word >> (7 * k) & 127) as u8)
}

/// `f32(f32(d * (0.5 + scale)) * step)`.
#[inline(always)]
fn grid_scale(d: f32, scale: u32, step: f32) -> f32 {
    d * (0.5 + scale as f32) * step
}

#[inline(always)]
fn word_of(group: &[u8; 8]) -> u32 {
    u32::from_le_bytes([group[4], group[5], group[6], group[7]])
}

impl Block for Iq2Xxs {
    const NAME: &'static str = "IQ2_XXS";
    const GGML_ID: u32 = 16;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 8];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (codes, group) in codes.as_chunks_mut::<32>().0.iter_mut().zip(&self.groups) {
            for (k, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                apply_signs(IQ2_XXS[usize::from(group[k])], word_signs(word_of(group), k), codes);
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 8], _wb: &mut [f32; 8]) {
        let d = f16_le(self.d);
        for (wa, group) in wa.iter_mut().zip(&self.groups) {
            *wa = grid_scale(d, word_of(group) >> 28, 0.25);
        }
    }
}

impl Block for Iq2Xs {
    const NAME: &'static str = "IQ2_XS";
    const GGML_ID: u32 = 17;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 16];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (codes, &q) in codes.as_chunks_mut::<8>().0.iter_mut().zip(&self.qs) {
            let q = u16::from_le_bytes(q);
            apply_signs(IQ2_XS[usize::from(q & 511)], even_signs((q >> 9) as u8), codes);
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 16], _wb: &mut [f32; 16]) {
        let d = f16_le(self.d);
        for (s, wa) in wa.iter_mut().enumerate() {
            *wa = grid_scale(d, u32::from(self.scales[s / 2] >> (4 * (s % 2)) & 15), 0.25);
        }
    }
}

impl Block for Iq3Xxs {
    const NAME: &'static str = "IQ3_XXS";
    const GGML_ID: u32 = 18;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 8];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for ((codes, qs), &word) in codes.as_chunks_mut::<32>().0.iter_mut().zip(&self.qs).zip(&self.words) {
            let word = u32::from_le_bytes(word);
            for (k, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let [a, b, c, d] = IQ3_XXS[usize::from(qs[2 * k])];
                let [e, f, g, h] = IQ3_XXS[usize::from(qs[2 * k + 1])];
                apply_signs([a, b, c, d, e, f, g, h], word_signs(word, k), codes);
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 8], _wb: &mut [f32; 8]) {
        let d = f16_le(self.d);
        for (wa, &word) in wa.iter_mut().zip(&self.words) {
            *wa = grid_scale(d, u32::from_le_bytes(word) >> 28, 0.5);
        }
    }
}
