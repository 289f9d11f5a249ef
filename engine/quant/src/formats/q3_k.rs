//! Q3_K: 256 elements, sixteen sub-blocks of 16 with a six-bit scale each and no offset.

use bytemuck::{Pod, Zeroable};

use crate::{Block, float16::f16_le};

/// `v = d * (sc - 32) * code`, codes -4..=3.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q3K {
    /// Bit g of byte l belongs to element l of group g. A CLEAR bit means "subtract 4".
    pub hmask: [u8; 32],
    /// Low two bits: half n holds elements 128n..; byte l has quarter k at bits 2k.
    pub qs: [[u8; 32]; 2],
    /// Low four bits of sixteen scales in bytes 0..8, high two bits in bytes 8..12.
    pub scales: [u8; 12],
    /// Scale of the scales, binary16. It comes last.
    pub d: [u8; 2],
}

impl Block for Q3K {
    const NAME: &'static str = "Q3_K";
    const GGML_ID: u32 = 11;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 16];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (n, (half, qs)) in codes.as_chunks_mut::<128>().0.iter_mut().zip(&self.qs).enumerate() {
            for (k, quarter) in half.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                for l in 0..32 {
                    let low = (qs[l] >> (2 * k) & 3) as i8;
                    let bit = (self.hmask[l] >> (4 * n + k) & 1) as i8;
                    quarter[l] = low + 4 * bit - 4;
                }
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 16], _wb: &mut [f32; 16]) {
        let d = f16_le(self.d);
        for (s, wa) in wa.iter_mut().enumerate() {
            let low = self.scales[s % 8] >> (4 * (s / 8)) & 15;
            let high = self.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
            *wa = d * f32::from((low | high << 4) as i8 - 32);
        }
    }
}
