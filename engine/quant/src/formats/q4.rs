//! Q4_0 and Q4_1: 32 nibbles, without and with a minimum.

use bytemuck::{Pod, Zeroable};

use crate::{
    Block, Encode,
    float16::{f16_le, to_f16_le},
    formats::extrema::{min_and_max, of_largest_magnitude, reciprocal},
};

/// `v = d * (nibble - 8)`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_0 {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Byte j: element j low, element j + 16 high.
    pub qs: [u8; 16],
}

/// `v = d * nibble + m`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_1 {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Minimum, binary16.
    pub m: [u8; 2],
    /// Byte j: element j low, element j + 16 high.
    pub qs: [u8; 16],
}

impl Block for Q4_0 {
    const NAME: &'static str = "Q4_0";
    const GGML_ID: u32 = 2;
    const OFFSET: bool = false;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        for j in 0..16 {
            codes[j] = (self.qs[j] & 15) as i8 - 8;
            codes[j + 16] = (self.qs[j] >> 4) as i8 - 8;
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Q4_0 {
    fn encode(x: &[f32]) -> Self {
        let d = of_largest_magnitude(x) / -8.0;
        let id = reciprocal(d);
        let code = |v: f32| ((v * id + 8.5) as u8).min(15);
        Self { d: to_f16_le(d), qs: nibbles(x, code) }
    }
}

impl Block for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const GGML_ID: u32 = 3;
    const OFFSET: bool = true;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        for j in 0..16 {
            codes[j] = (self.qs[j] & 15) as i8;
            codes[j + 16] = (self.qs[j] >> 4) as i8;
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
        wb[0] = f16_le(self.m);
    }
}

impl Encode for Q4_1 {
    fn encode(x: &[f32]) -> Self {
        let (min, max) = min_and_max(x);
        let d = (max - min) / 15.0;
        let id = reciprocal(d);
        let code = |v: f32| (((v - min) * id + 0.5) as u8).min(15);
        Self { d: to_f16_le(d), m: to_f16_le(min), qs: nibbles(x, code) }
    }
}

/// Packs the nibble codes of 32 values in the order of the 32-element formats.
pub(crate) fn nibbles(x: &[f32], code: impl Fn(f32) -> u8) -> [u8; 16] {
    std::array::from_fn(|j| code(x[j]) | code(x[j + 16]) << 4)
}
