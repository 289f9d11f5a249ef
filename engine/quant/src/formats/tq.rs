//! TQ1_0 and TQ2_0: 256 ternary elements, in base 3 and in two bits.

use bytemuck::{Pod, Zeroable};

use crate::{
    Block, Encode,
    float16::{f16_le, to_f16_le},
    formats::{
        base3::{pack, unpack},
        extrema::{largest_magnitude, reciprocal},
    },
};

/// `v = d * (digit - 1)`, five base-3 digits a byte.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Tq1_0 {
    /// Elements 0..160: digit i / 32 of byte i % 32.
    pub qs: [u8; 32],
    /// Elements 160..240: digit i / 16 of byte i % 16, i counted from 160.
    pub qs_tail: [u8; 16],
    /// Elements 240..256: digit i / 4 of byte i % 4, i counted from 240. Four digits a byte.
    pub qh: [u8; 4],
    /// Scale, binary16. It comes last.
    pub d: [u8; 2],
}

/// `v = d * (field - 1)`. Field 3 is legal and means 2d.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Tq2_0 {
    /// Half n holds elements 128n..; byte l has quarter k at bits 2k.
    pub qs: [[u8; 32]; 2],
    /// Scale, binary16. It comes last.
    pub d: [u8; 2],
}

impl Block for Tq1_0 {
    const NAME: &'static str = "TQ1_0";
    const GGML_ID: u32 = 34;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        let (head, rest) = codes.split_at_mut(160);
        let (tail, last) = rest.split_at_mut(80);
        unpack(&self.qs, head);
        unpack(&self.qs_tail, tail);
        unpack(&self.qh, last);
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Tq1_0 {
    fn encode(x: &[f32]) -> Self {
        let (d, fields) = ternary(x);
        Self { qs: pack(&fields[..160]), qs_tail: pack(&fields[160..240]), qh: pack(&fields[240..]), d }
    }
}

impl Block for Tq2_0 {
    const NAME: &'static str = "TQ2_0";
    const GGML_ID: u32 = 35;
    const OFFSET: bool = false;
    type Codes = [i8; 256];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 256]) {
        for (half, qs) in codes.as_chunks_mut::<128>().0.iter_mut().zip(&self.qs) {
            for (k, quarter) in half.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                for l in 0..32 {
                    quarter[l] = (qs[l] >> (2 * k) & 3) as i8 - 1;
                }
            }
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Tq2_0 {
    fn encode(x: &[f32]) -> Self {
        let (d, fields) = ternary(x);
        let byte = |n: usize, l: usize| (0..4).fold(0, |byte, k| byte | fields[128 * n + 32 * k + l] << (2 * k));
        Self { qs: std::array::from_fn(|n| std::array::from_fn(|l| byte(n, l))), d }
    }
}

/// `d = max|x|`, field = round-half-away(x / d) + 1.
fn ternary(x: &[f32]) -> ([u8; 2], [u8; 256]) {
    let d = largest_magnitude(x);
    let id = reciprocal(d);
    (to_f16_le(d), std::array::from_fn(|i| ((x[i] * id).round() + 1.0) as u8))
}
