//! Q6_K: 256 elements, sixteen sub-blocks of 16 with a scale each and no offset.

use bytemuck::{Pod, Zeroable};

use crate::{Block, float16::f16_le};

/// `v = d * scale * code`, codes -32..=31.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q6K {
    /// Low four bits: half n holds elements 128n..; byte l of slice k has quarter k low, quarter k + 2 high.
    pub ql: [[[u8; 32]; 2]; 2],
    /// High two bits: byte l of half n has quarter k at bits 2k.
    pub qh: [[u8; 32]; 2],
    /// A scale for each 16 elements.
    pub scales: [i8; 16],
    /// Scale of the scales, binary16. It comes last.
    pub d: [u8; 2],
}

impl Block for Q6K {
    const NAME: &'static str = "Q6_K";
    const GGML_ID: u32 = 14;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 16];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for ((half, ql), qh) in codes.as_chunks_mut::<128>().0.iter_mut().zip(&self.ql).zip(&self.qh) {
            for k in 0..2 {
                for l in 0..32 {
                    half[32 * k + l] = (ql[k][l] & 15 | (qh[l] >> (2 * k) & 3) << 4) as i8 - 32;
                    half[32 * (k + 2) + l] = (ql[k][l] >> 4 | (qh[l] >> (2 * k + 4) & 3) << 4) as i8 - 32;
                }
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 16], _wb: &mut [f32; 16]) {
        let d = f16_le(self.d);
        for (wa, &scale) in wa.iter_mut().zip(&self.scales) {
            *wa = d * f32::from(scale);
        }
    }
}
