//! IQ4_NL: nibbles that index a table of uneven steps.

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

/// The codes of 16 nibble pairs, low nibbles first.
#[inline]
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

    #[inline]
    fn codes(&self, codes: &mut [i8; 32]) {
        lookup(&self.qs, &STEPS, codes);
    }

    #[inline]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}
