//! Q8_0: a scale and 32 bytes.

use bytemuck::{Pod, Zeroable};

use crate::{
    Block, Encode,
    float16::{f16_le, to_f16_le},
    formats::extrema::{largest_magnitude, reciprocal},
};

/// `v = d * code`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Q8_0 {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Codes.
    pub qs: [i8; 32],
}

impl Block for Q8_0 {
    const NAME: &'static str = "Q8_0";
    const GGML_ID: u32 = 8;
    const OFFSET: bool = false;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        *codes = self.qs;
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Q8_0 {
    /// The codes use the scale before it is rounded to binary16.
    fn encode(x: &[f32]) -> Self {
        let d = largest_magnitude(x) / 127.0;
        let id = reciprocal(d);
        let mut qs = [0; 32];
        for (q, v) in qs.iter_mut().zip(x) {
            *q = (v * id).round() as i8;
        }
        Self { d: to_f16_le(d), qs }
    }
}
