//! Q4_K and Q5_K: 256 elements, eight groups of 32 with a six-bit scale and a six-bit minimum each.

use bytemuck::{Pod, Zeroable};

use crate::{Block, float16::f16_le};

/// `v = d * sc * code - dmin * mn`, codes 0..=15.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q4K {
    /// Scale of the scales, binary16.
    pub d: [u8; 2],
    /// Scale of the minima, binary16.
    pub dmin: [u8; 2],
    /// Eight scales and eight minima of six bits.
    pub scales: [u8; 12],
    /// Byte l of slice p: group 2p low, group 2p + 1 high.
    pub qs: [[u8; 32]; 4],
}

/// `v = d * sc * code - dmin * mn`, codes 0..=31.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q5K {
    /// Scale of the scales, binary16.
    pub d: [u8; 2],
    /// Scale of the minima, binary16.
    pub dmin: [u8; 2],
    /// Eight scales and eight minima of six bits.
    pub scales: [u8; 12],
    /// Bit g of byte l is bit 4 of element l of group g.
    pub qh: [u8; 32],
    /// Byte l of slice p: group 2p low, group 2p + 1 high.
    pub qs: [[u8; 32]; 4],
}

/// `wa = f32(d * sc)`, `wb = -f32(dmin * mn)`.
#[inline(always)]
fn six_bit_scales(d: [u8; 2], dmin: [u8; 2], s: &[u8; 12], wa: &mut [f32; 8], wb: &mut [f32; 8]) {
    let (d, dmin) = (f16_le(d), f16_le(dmin));
    for g in 0..4 {
        wa[g] = d * f32::from(s[g] & 63);
        wb[g] = -(dmin * f32::from(s[g + 4] & 63));
        wa[g + 4] = d * f32::from(s[g + 8] & 15 | s[g] >> 6 << 4);
        wb[g + 4] = -(dmin * f32::from(s[g + 8] >> 4 | s[g + 4] >> 6 << 4));
    }
}

impl Block for Q4K {
    const NAME: &'static str = "Q4_K";
    const GGML_ID: u32 = 12;
    const OFFSET: bool = true;
    type Codes = [i8; 256];
    type Scales = [f32; 8];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (codes, qs) in codes.as_chunks_mut::<64>().0.iter_mut().zip(&self.qs) {
            for l in 0..32 {
                codes[l] = (qs[l] & 15) as i8;
                codes[l + 32] = (qs[l] >> 4) as i8;
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 8], wb: &mut [f32; 8]) {
        six_bit_scales(self.d, self.dmin, &self.scales, wa, wb);
    }
}

impl Block for Q5K {
    const NAME: &'static str = "Q5_K";
    const GGML_ID: u32 = 13;
    const OFFSET: bool = true;
    type Codes = [i8; 256];
    type Scales = [f32; 8];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (p, (codes, qs)) in codes.as_chunks_mut::<64>().0.iter_mut().zip(&self.qs).enumerate() {
            for l in 0..32 {
                codes[l] = (qs[l] & 15 | (self.qh[l] >> (2 * p) & 1) << 4) as i8;
                codes[l + 32] = (qs[l] >> 4 | (self.qh[l] >> (2 * p + 1) & 1) << 4) as i8;
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 8], wb: &mut [f32; 8]) {
        six_bit_scales(self.d, self.dmin, &self.scales, wa, wb);
    }
}
