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

/// The codes 0..=31 of 32 elements.
#[inline]
fn unpack(qs: &[u8; 16], qh: [u8; 4], codes: &mut [i8; 32]) {
    // A byte-wide mask per element instead of a shift per element: baseline x86-64 has no per-lane shift.
    const BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let plane: [u8; 32] = std::array::from_fn(|i| qh[i / 8]);
    for j in 0..16 {
        let low = if plane[j] & BIT[j] != 0 { 16 } else { 0 };
        let high = if plane[j + 16] & BIT[j] != 0 { 16 } else { 0 };
        codes[j] = (qs[j] & 15 | low) as i8;
        codes[j + 16] = (qs[j] >> 4 | high) as i8;
    }
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

    #[inline]
    fn codes(&self, codes: &mut [i8; 32]) {
        unpack(&self.qs, self.qh, codes);
        for code in codes {
            *code -= 16;
        }
    }

    #[inline]
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

    #[inline]
    fn codes(&self, codes: &mut [i8; 32]) {
        unpack(&self.qs, self.qh, codes);
    }

    #[inline]
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
