//! MXFP4: 32 E2M1 floats under one power of two.

use bytemuck::{Pod, Zeroable};

use crate::{
    Block, Encode,
    formats::{extrema::largest_magnitude, iq4::lookup, q4::nibbles},
};

/// The E2M1 values, doubled to be integers.
pub(crate) const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `v = 2^(e - 128) * E2M1_DOUBLED[nibble]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Mxfp4 {
    /// E8M0 exponent. There is no NaN rule for 255; a large exponent overflows to infinity.
    pub e: u8,
    /// Byte j: element j low, element j + 16 high.
    pub qs: [u8; 16],
}

/// Half of `2^(e - 127)`, which undoes the doubling of the codes; subnormal for `e` 0 and 1.
#[inline(always)]
fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

impl Block for Mxfp4 {
    const NAME: &'static str = "MXFP4";
    const GGML_ID: u32 = 39;
    const OFFSET: bool = false;
    type Codes = [i8; 32];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 32]) {
        lookup(&self.qs, &E2M1_DOUBLED, codes);
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = half_power(self.e);
    }
}

impl Encode for Mxfp4 {
    fn encode(x: &[f32]) -> Self {
        // floor(log2 max|x|) - 2 + 127 is the biased exponent of max|x| less 2, read from its bits.
        let e = (largest_magnitude(x).to_bits() >> 23).saturating_sub(2) as u8;
        let scale = half_power(e);
        let distance = |k: u8, v: f32| (scale * f32::from(E2M1_DOUBLED[usize::from(k)]) - v).abs();
        // Strictly nearer, so the first of equals stays.
        let code = |v: f32| (1..16).fold(0, |best, k| if distance(k, v) < distance(best, v) { k } else { best });
        Self { e, qs: nibbles(x, code) }
    }
}
