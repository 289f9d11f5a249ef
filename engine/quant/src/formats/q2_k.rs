//! Q2_K: 256 elements, sixteen sub-blocks of 16 with a four-bit scale and a four-bit minimum each.

use bytemuck::{Pod, Zeroable};

use crate::{Block, float16::f16_le};

/// `v = d * sc * code - dmin * mn`, codes 0..=3.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q2K {
    /// Scale low, minimum high, a byte a sub-block.
    pub scales: [u8; 16],
    /// Half n holds elements 128n..; byte l has quarter k at bits 2k.
    pub qs: [[u8; 32]; 2],
    /// Scale of the scales, binary16. It comes after the codes.
    pub d: [u8; 2],
    /// Scale of the minima, binary16.
    pub dmin: [u8; 2],
}

impl Block for Q2K {
    const NAME: &'static str = "Q2_K";
    const GGML_ID: u32 = 10;
    const OFFSET: bool = true;
    type Codes = [i8; 256];
    type Scales = [f32; 16];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (half, qs) in codes.as_chunks_mut::<128>().0.iter_mut().zip(&self.qs) {
            for (k, quarter) in half.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                for l in 0..32 {
                    quarter[l] = (qs[l] >> (2 * k) & 3) as i8;
                }
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 16], wb: &mut [f32; 16]) {
        let (d, dmin) = (f16_le(self.d), f16_le(self.dmin));
        for s in 0..16 {
            wa[s] = d * f32::from(self.scales[s] & 15);
            wb[s] = -(dmin * f32::from(self.scales[s] >> 4));
        }
    }
}
