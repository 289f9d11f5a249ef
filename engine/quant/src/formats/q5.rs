//! Q5_1: a nibble and a fifth bit from a 32-bit plane.

use bytemuck::{Pod, Zeroable};

use crate::{Block, float16::f16_le};

/// `v = d * code + m`, codes 0..=31.
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

/// The 5-bit codes 0..=31 of 32 elements.
#[inline]
fn five_bits(qs: &[u8; 16], qh: [u8; 4], codes: &mut [i8; 32]) {
    const BIT: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    for j in 0..16 {
        let low = if qh[j / 8] & BIT[j % 8] != 0 { 16 } else { 0 };
        let high = if qh[2 + j / 8] & BIT[j % 8] != 0 { 16 } else { 0 };
        codes[j] = (qs[j] & 15 | low) as i8;
        codes[j + 16] = (qs[j] >> 4 | high) as i8;
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
        five_bits(&self.qs, self.qh, codes);
    }

    #[inline]
    fn scales(&self, wa: &mut [f32; 1], wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
        wb[0] = f16_le(self.m);
    }
}
