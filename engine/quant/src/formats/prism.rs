//! PQ2_0 and PTQ1_0: 128 ternary elements, in two bits and in base 3. Their type numbers are private to one fork.

use bytemuck::{Pod, Zeroable};

use crate::{
    Block, Encode,
    float16::{f16_le, to_f16_le},
    formats::{
        base3::{pack, unpack},
        extrema::{largest_magnitude, reciprocal},
    },
};

/// `v = d * (field - 1)`.
///
/// A ternary file uses fields 0, 1 and 2. Field 3 is legal and means 2d: a kernel must not make it 0 or refuse it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Pq2_0 {
    /// Scale, binary16.
    pub d: [u8; 2],
    /// Element j: byte j / 4 at bits 2 * (j % 4).
    pub qs: [u8; 32],
}

/// `v = d * (digit - 1)`, five base-3 digits a byte.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Ptq1_0 {
    /// Elements 0..80: digit i / 16 of byte i % 16.
    pub qs: [u8; 16],
    /// Elements 80..120: digit i / 8 of byte i % 8, i counted from 80.
    pub qs_tail: [u8; 8],
    /// Elements 120..128: digit i / 2 of byte i % 2, i counted from 120. Four digits a byte.
    pub qh: [u8; 2],
    /// Scale, binary16. It comes last.
    pub d: [u8; 2],
}

impl Block for Pq2_0 {
    const NAME: &'static str = "PQ2_0";
    const GGML_ID: u32 = 142;
    const OFFSET: bool = false;
    type Codes = [i8; 128];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 128]) {
        // A word per byte: its four fields spread to four bytes. Two plain loops, so that both vectorise.
        let mut spread = [0; 32];
        for (word, &byte) in spread.iter_mut().zip(&self.qs) {
            let byte = u32::from(byte);
            *word = ((byte | byte << 6 | byte << 12 | byte << 18) & 0x0303_0303).to_le();
        }
        *codes = bytemuck::cast(spread);
        for code in codes {
            *code -= 1;
        }
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Pq2_0 {
    /// The lowbitFlash converter's rule, which made the files in use: the scale is the mean magnitude.
    fn encode(x: &[f32]) -> Self {
        let (d, fields) = about_the_mean(x);
        Self::of_fields(d, fields)
    }
}

impl Pq2_0 {
    /// The Prism reference quantiser's rule: the scale is the largest magnitude, fields are rounded half away from 0.
    pub fn encode_about_the_largest(x: &[f32; 128]) -> Self {
        let d = largest_magnitude(x);
        let id = reciprocal(d);
        // `as u8` saturates at 0; no value is beyond the largest, but the reference clamps to 3 and so does this.
        Self::of_fields(to_f16_le(d), std::array::from_fn(|i| (((x[i] * id).round() + 1.0) as u8).min(3)))
    }

    fn of_fields(d: [u8; 2], fields: [u8; 128]) -> Self {
        let byte = |f: &[u8; 4]| f[0] | f[1] << 2 | f[2] << 4 | f[3] << 6;
        let quads = fields.as_chunks::<4>().0;
        Self { d, qs: std::array::from_fn(|b| byte(&quads[b])) }
    }
}

impl Block for Ptq1_0 {
    const NAME: &'static str = "PTQ1_0";
    const GGML_ID: u32 = 143;
    const OFFSET: bool = false;
    type Codes = [i8; 128];
    type Scales = [f32; 1];

    #[inline(always)]
    fn codes(&self, codes: &mut [i8; 128]) {
        let (head, rest) = codes.split_at_mut(80);
        let (tail, last) = rest.split_at_mut(40);
        unpack(&self.qs, head);
        unpack(&self.qs_tail, tail);
        unpack(&self.qh, last);
    }

    #[inline(always)]
    fn scales(&self, wa: &mut [f32; 1], _wb: &mut [f32; 1]) {
        wa[0] = f16_le(self.d);
    }
}

impl Encode for Ptq1_0 {
    /// The same values as [`Pq2_0::encode`].
    fn encode(x: &[f32]) -> Self {
        let (d, fields) = about_the_mean(x);
        Self { qs: pack(&fields[..80]), qs_tail: pack(&fields[80..120]), qh: pack(&fields[120..]), d }
    }
}

/// `d = f16(mean |x|)`, field = clip(round-half-even(x / f32(d)), -1, 1) + 1, all ones when d is 0.
fn about_the_mean(x: &[f32]) -> ([u8; 2], [u8; 128]) {
    // The converter's mean sums eight interleaved lanes, then pairs of lanes. Another order could move the last bit of
    // the mean, and with it, rarely, the binary16 scale.
    let mut lanes = [0.0_f32; 8];
    for eight in x.as_chunks::<8>().0 {
        for (lane, v) in lanes.iter_mut().zip(eight) {
            *lane += v.abs();
        }
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let stored = to_f16_le((((a + b) + (c + d)) + ((e + f) + (g + h))) / 128.0);
    let d = f16_le(stored);
    let field = |v: f32| if d > 0.0 { ((v / d).round_ties_even().clamp(-1.0, 1.0) + 1.0) as u8 } else { 1 };
    (stored, std::array::from_fn(|i| field(x[i])))
}
