//! Q5_0 and Q5_1: 32 nibbles with a fifth bit each from a 32-bit plane, without and with a minimum.

use bytemuck::{Pod, Zeroable};

use crate::{
    Block, Encode,
    float16::{f16_le, to_f16_le},
    formats::extrema::{min_and_max, of_largest_magnitude, reciprocal},
};

/// `v = d * (five bits - 16)`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_0 {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Bit i is bit 4 of element i.
    pub qh: [u8; 4],
    /// Byte j: element j low, element j + 16 high.
    pub qs: [u8; 16],
}

/// `v = d * five bits + m`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_1 {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Minimum, binary16.
    pub m: [u8; 2],
    /// Bit i is bit 4 of element i.
    pub qh: [u8; 4],
    /// Byte j: element j low, element j + 16 high.
    pub qs: [u8; 16],
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The codes 0..=31 of 32 elements, eight bytes at a time in one word: baseline x86-64 has no shift per byte, and masks
/// per byte came out four times slower.
#[inline(always)]
fn unpack(qs: &[u8; 16], qh: [u8; 4], codes: &mut [i8; 32]) {
    const NIBBLES: u64 = 0x0F * ONES;
    let (low, high) = codes.split_at_mut(16);
    let pairs = low.as_chunks_mut::<8>().0.iter_mut().zip(high.as_chunks_mut::<8>().0);
    for (k, (qs, (low, high))) in qs.as_chunks::<8>().0.iter().zip(pairs).enumerate() {
        let qs = u64::from_le_bytes(*qs);
        *low = bytemuck::cast((qs & NIBBLES | fifth_bits(qh[k])).to_le());
        *high = bytemuck::cast((qs >> 4 & NIBBLES | fifth_bits(qh[k + 2])).to_le());
    }
}

/// Bit j of `plane` as bit 4 of byte j.
#[inline(always)]
fn fifth_bits(plane: u8) -> u64 {
    // A copy in every byte, of which byte j keeps bit j; adding 127 carries any bit into bit 7.
    let kept = (u64::from(plane) * ONES) & 0x8040_2010_0804_0201;
    (kept + 0x7F * ONES) >> 3 & (0x10 * ONES)
}

/// Packs the five-bit codes of 32 values; returns `(qs, qh)`.
fn pack(x: &[f32], code: impl Fn(f32) -> u8) -> ([u8; 16], [u8; 4]) {
    let codes: [u8; 32] = std::array::from_fn(|i| code(x[i]));
    let plane = codes.iter().enumerate().fold(0_u32, |plane, (i, c)| plane | u32::from(c >> 4) << i);
    (std::array::from_fn(|j| codes[j] & 15 | codes[j + 16] << 4), plane.to_le_bytes())
}

impl Block for Q5_0 {
    const NAME: &'static str = "Q5_0";
    const GGML_ID: u32 = 6;
    const OFFSET: bool = false;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        unpack(&self.qs, self.qh, codes);
        for code in codes {
            *code -= 16;
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Q5_0 {
    fn encode(x: &[f32]) -> Self {
        let d = of_largest_magnitude(x) / -16.0;
        let id = reciprocal(d);
        let (qs, qh) = pack(x, |v| ((v * id + 16.5) as u8).min(31));
        Self { d: to_f16_le(d), qh, qs }
    }
}

impl Block for Q5_1 {
    const NAME: &'static str = "Q5_1";
    const GGML_ID: u32 = 7;
    const OFFSET: bool = true;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        unpack(&self.qs, self.qh, codes);
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
        wb[0] = f16_le(self.m);
    }
}

impl Encode for Q5_1 {
    fn encode(x: &[f32]) -> Self {
        let (min, max) = min_and_max(x);
        let d = (max - min) / 31.0;
        let id = reciprocal(d);
        let (qs, qh) = pack(x, |v| (((v - min) * id + 0.5) as u8).min(31));
        Self { d: to_f16_le(d), m: to_f16_le(min), qh, qs }
    }
}
