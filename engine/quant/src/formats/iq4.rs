//! IQ4_NL and IQ4_XS: nibbles that index a table of uneven steps.

use bytemuck::{Pod, Zeroable};

use crate::{Block, float16::f16_le};

/// What a nibble means.
pub(crate) const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `v = d * STEPS[nibble]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Iq4Nl {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Byte j: element j low, element j + 16 high.
    pub qs: [u8; 16],
}

/// Eight groups of 32: `v = d * (ls - 32) * STEPS[nibble]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Iq4Xs {
    /// Scale of the scales, binary16.
    pub d: [u8; 2],
    /// High two bits of the scale of group g at bits 2g.
    pub scales_h: [u8; 2],
    /// Low four bits of the scale of group g: byte g / 2, even groups low.
    pub scales_l: [u8; 4],
    /// A run of 16 bytes a group. Byte j: element j low, element j + 16 high.
    pub qs: [[u8; 16]; 8],
}

/// The codes of 16 nibble pairs, low nibbles first.
#[inline(always)]
pub(crate) fn lookup(qs: &[u8; 16], table: &[i8; 16], codes: &mut [i8; 32]) {
    for j in 0..16 {
        codes[j] = table[usize::from(qs[j] & 15)];
        codes[j + 16] = table[usize::from(qs[j] >> 4)];
    }
}

impl Block for Iq4Nl {
    const NAME: &'static str = "IQ4_NL";
    const GGML_ID: u32 = 20;
    const OFFSET: bool = false;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        lookup(&self.qs, &STEPS, codes);
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Block for Iq4Xs {
    const NAME: &'static str = "IQ4_XS";
    const GGML_ID: u32 = 23;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 8];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (codes, qs) in codes.as_chunks_mut::<32>().0.iter_mut().zip(&self.qs) {
            lookup(qs, &STEPS, codes);
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 8], _wb: &mut [f32; 8]) {
        let (d, high) = (f16_le(self.d), u16::from_le_bytes(self.scales_h));
        for (g, wa) in wa.iter_mut().enumerate() {
            let low = self.scales_l[g / 2] >> (4 * (g % 2)) & 15;
            *wa = d * f32::from((low | ((high >> (2 * g) & 3) as u8) << 4) as i8 - 32);
        }
    }
}
