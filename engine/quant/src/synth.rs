//! Blocks made from a counter: what stands in for weights where no file is.
//!
//! Every block is a pure function of (seed, tensor name, block index), in integer arithmetic alone, so that any device
//! makes the same bytes in any order. All numbers below are u64 and wrap; `>>` is a logical shift.
//!
//! **Words.** With `G = 0x9E3779B97F4A7C15` and
//!
//! ```text
//! mix(z):  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;  z = (z ^ z >> 27) * 0x94D049BB133111EB;  z ^ z >> 31
//! fnv(s):  h = 0xCBF29CE484222325;  for each byte b of s:  h = (h ^ b) * 0x100000001B3
//! key     = mix(fnv(name) ^ mix(seed + G))
//! word(n) = mix(key + (n + 1) * G)                      the n-th output of splitmix64 started at `key`
//! ```
//!
//! a format takes `k` words a block: block `b` (counted over the whole tensor, in file order) owns words
//! `b*k .. b*k + k`. The first of them is its *head word* `w`; the others, written one after the other as little-endian
//! bytes, are its *payload* `p[0], p[1], ..` (of the last word maybe not all bytes are used).
//!
//! **Law.** A tensor has two numbers, made once by the host ([`Law`]), in fixed point with 36 fraction bits: `centre` (an
//! i64) and `spread`. A block format's block has the scale `v = spread * (192 + (w & 127)) >> 8`, also with 36 fraction
//! bits, and the sign bit `s = w >> 7 & 1`.
//!
//! **Floats.** `half(x, f)` and `single(x, f)` are the bits of the binary16 and binary32 nearest to `x * 2^-f` towards
//! zero, `x` being an unsigned integer: with `t` the number of its highest set bit, exponent field `t - f + 15` (or
//! `t - f + 127`), and the 10 (or 23) bits below the highest as mantissa, lower ones cut off. A `half` whose exponent field
//! would be less than 1 is the subnormal `x >> (f - 24)`; more than 30 cannot be (`spread` is bounded) and gives 0x7BFF.
//!
//! **Formats.** `d = half(v, 36)`; byte layouts are those of quant-formats.md 2; "= p[a..]" copies payload bytes in order.
//!
//! | format | k | block |
//! |---|---|---|
//! | F32, F16, BF16 | 1 | one element: `r = (w >> 40) - 2^23`, `x = (centre << 23) + r * spread` (i64); the sign of x and `single(abs x, 59)`, `half(abs x, 59)`, or the upper 16 bits of `single` |
//! | Q4_0 | 3 | `d` with sign s; nibbles = p[0..16] |
//! | Q4_1 | 3 | `d`; m = -half(15*v, 37); nibbles = p[0..16] |
//! | Q5_0 | 4 | `d` with sign s; qh = p[0..4]; nibbles = p[4..20] |
//! | Q5_1 | 4 | `d`; m = -half(31*v, 37); qh = p[0..4]; nibbles = p[4..20] |
//! | Q8_0 | 5 | `d`; codes = p[0..32], 0x80 becoming 0 |
//! | Q2_K | 11 | scale byte i: `c = p[i] & 15`, `(c + (p[i] >> 4 & 1)) >> 1` as min, i < 16; `qs = p[16..80]`; `d`; dmin = half(3*v, 36) |
//! | Q3_K | 15 | hmask, qs, scales = p[0..108]; `d` |
//! | Q4_K | 18 | `d`; dmin = half(15*v, 36); group i: scale `c = p[i] & 63`, min `(c + (p[i] >> 6 & 1)) >> 1`, i < 8; nibbles = p[8..136] |
//! | Q5_K | 22 | as Q4_K with dmin = half(31*v, 36); qh, nibbles = p[8..168] |
//! | Q6_K | 27 | ql, qh = p[0..192]; scale i = p[192+i] as i8, shifted right by 2 with its sign; `d` |
//! | IQ2_XXS, IQ2_XS, IQ3_XXS | 9, 10, 13 | `d`; the rest = p[0..64], p[0..72], p[0..96] |
//! | IQ4_NL | 3 | `d` with sign s; nibbles = p[0..16] |
//! | IQ4_XS | 18 | `d`; the rest = p[0..134] |
//! | TQ1_0 | 8 | `qs` byte i = `five(p[i])`, i < 48; `qh` byte i = `four(p[48+i])`; `d` |
//! | TQ2_0 | 9 | byte i = `two_bit(p[i])`, i < 64; `d` |
//! | MXFP4 | 3 | e = t - 36 + 128, t the highest set bit of v; nibbles = p[0..16] |
//! | PQ2_0 | 5 | `d`; byte i = `two_bit(p[i])`, i < 32 |
//! | PTQ1_0 | 5 | `qs` byte i = `five(p[i])`, i < 24; `qh` byte i = `four(p[24+i])`; `d` |
//!
//! `five(b) = ((b*243 >> 8) * 256 + 242) / 243` and `four(b) = ((b*81 >> 8) * 768 + 242) / 243` are packed base-3 digits.
//! `two_bit(b)`, with `c = b*81 >> 8`, is `c % 3 | c/3 % 3 << 2 | c/9 % 3 << 4 | c/27 << 6`.

use crate::Format;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Fraction bits of [`Law`] and of a block's scale.
const FRACTION: u32 = 36;

/// The key of a tensor's words.
pub fn tensor_key(seed: u64, name: &str) -> u64 {
    let fnv = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
    mix(fnv ^ mix(seed.wrapping_add(GOLDEN)))
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn word(key: u64, n: u64) -> u64 {
    mix(key.wrapping_add(n.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// How large a tensor's values are, in fixed point with 36 fraction bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Law {
    /// Middle of the values of a plain format; block formats are made around 0 and ignore it.
    pub centre: i64,
    /// Of a plain format the largest distance from the centre; of a block format the mean block scale `d`.
    pub spread: u64,
}

impl Law {
    /// Values around 0 with a standard deviation of `quarters / 4 / sqrt(fan_in)`: a product of `fan_in` of them with
    /// values of variance 1 has the standard deviation `quarters / 4`. At most 16, that is 64 quarters.
    pub fn weights(format: &Format, quarters: u32, fan_in: u64) -> Self {
        let quarters = u128::from(quarters.min(64));
        // spread^2 = (quarters / 4)^2 / (fan_in * moment), with 72 fraction bits
        let moment = u128::from(recipe(format).moment_48ths);
        let squared = ((quarters * quarters * 48) << (2 * FRACTION)) / (16 * u128::from(fan_in.max(1)) * moment);
        Self { centre: 0, spread: squared.isqrt() as u64 } // at most 64 * 2^36
    }

    /// Values of a plain format from `centre - half_width` to `centre + half_width`, both in 64ths and less than 8.
    pub fn around(centre_64ths: i32, half_width_64ths: u32) -> Self {
        let unit = FRACTION - 6;
        let centre = i64::from(centre_64ths.clamp(-511, 511)) << unit;
        Self { centre, spread: u64::from(half_width_64ths.min(511)) << unit }
    }
}

/// Writes the blocks from number `first_block` on into `out`.
///
/// # Panics
/// When `out` is not a whole number of blocks.
pub fn fill(format: &Format, key: u64, law: Law, first_block: u64, out: &mut [u8]) {
    assert_eq!(out.len() % format.block_bytes, 0, "{}: whole blocks", format.name);
    (recipe(format).fill)(Run { key, law, first_block }, out);
}

/// What the blocks of one call have in common.
#[derive(Clone, Copy)]
struct Run {
    key: u64,
    law: Law,
    first_block: u64,
}

/// How blocks of a format are made.
struct Recipe {
    ggml_id: u32,
    /// 48 times the mean square of the values at a scale of 1. Of a plain format, a third: it is uniform.
    moment_48ths: u64,
    fill: fn(Run, &mut [u8]),
}

/// The recipe of every format: a test holds it against the registry.
fn recipe(format: &Format) -> &'static Recipe {
    // Format's fields are private in part, so every `Format` is one of the registry.
    RECIPES.iter().find(|r| r.ggml_id == format.ggml_id).unwrap_or(&RECIPES[0])
}

#[rustfmt::skip]
static RECIPES: [Recipe; 23] = [
    Recipe { ggml_id: 0, moment_48ths: 16, fill: |run, out| elements(run, out, single) },
    Recipe { ggml_id: 1, moment_48ths: 16, fill: |run, out| elements(run, out, half) },
    Recipe { ggml_id: 2, moment_48ths: 1_032, fill: |run, out| blocks(run, out, q4_0) },
    Recipe { ggml_id: 3, moment_48ths: 1_020, fill: |run, out| blocks(run, out, q4_1) },
    Recipe { ggml_id: 6, moment_48ths: 4_104, fill: |run, out| blocks(run, out, q5_0) },
    Recipe { ggml_id: 7, moment_48ths: 4_092, fill: |run, out| blocks(run, out, q5_1) },
    Recipe { ggml_id: 8, moment_48ths: 259_080, fill: |run, out| blocks(run, out, q8_0) },
    Recipe { ggml_id: 10, moment_48ths: 4_704, fill: |run, out| blocks(run, out, q2_k) },
    Recipe { ggml_id: 11, moment_48ths: 90_156, fill: |run, out| blocks(run, out, q3_k) },
    Recipe { ggml_id: 12, moment_48ths: 1_361_520, fill: |run, out| blocks(run, out, q4_k) },
    Recipe { ggml_id: 13, moment_48ths: 5_462_448, fill: |run, out| blocks(run, out, q5_k) },
    Recipe { ggml_id: 14, moment_48ths: 5_597_868, fill: |run, out| blocks(run, out, q6_k) },
    Recipe { ggml_id: 16, moment_48ths: 137_000, fill: |run, out| blocks(run, out, scale_first::<66, 64>) },
    Recipe { ggml_id: 17, moment_48ths: 149_000, fill: |run, out| blocks(run, out, scale_first::<74, 72>) },
    Recipe { ggml_id: 18, moment_48ths: 969_000, fill: |run, out| blocks(run, out, scale_first::<98, 96>) },
    Recipe { ggml_id: 20, moment_48ths: 218_304, fill: |run, out| blocks(run, out, signed_scale_first::<18, 16>) },
    Recipe { ggml_id: 23, moment_48ths: 74_550_816, fill: |run, out| blocks(run, out, scale_first::<136, 136>) },
    Recipe { ggml_id: 30, moment_48ths: 16, fill: |run, out| elements(run, out, bfloat) },
    Recipe { ggml_id: 34, moment_48ths: 32, fill: |run, out| blocks(run, out, base_3::<54, 56, 48, 4>) },
    Recipe { ggml_id: 35, moment_48ths: 32, fill: |run, out| blocks(run, out, tq2_0) },
    Recipe { ggml_id: 39, moment_48ths: 1_000, fill: |run, out| blocks(run, out, mxfp4) },
    Recipe { ggml_id: 142, moment_48ths: 32, fill: |run, out| blocks(run, out, pq2_0) },
    Recipe { ggml_id: 143, moment_48ths: 32, fill: |run, out| blocks(run, out, base_3::<28, 32, 24, 2>) },
];

/// What a block is made of, apart from its payload.
struct Head {
    /// Its scale, with [`FRACTION`] fraction bits.
    scale: u64,
    /// 0x8000 or 0: the sign of a binary16.
    sign: u16,
}

/// Makes every block of `out`, with `PAYLOAD` a multiple of 8.
fn blocks<const BYTES: usize, const PAYLOAD: usize>(
    run: Run,
    out: &mut [u8],
    make: impl Fn(&mut [u8; BYTES], Head, &[u8; PAYLOAD]),
) {
    const { assert!(PAYLOAD.is_multiple_of(8)) };
    let words = 1 + PAYLOAD as u64 / 8;
    let mut payload = [0; PAYLOAD];
    let (blocks, _) = out.as_chunks_mut::<BYTES>();
    for (i, block) in (0..).zip(blocks) {
        let first = run.first_block.wrapping_add(i).wrapping_mul(words);
        let w = word(run.key, first);
        for (n, eight) in (1..).zip(payload.as_chunks_mut::<8>().0) {
            *eight = word(run.key, first.wrapping_add(n)).to_le_bytes();
        }
        let scale = run.law.spread.wrapping_mul(192 + (w & 127)) >> 8;
        make(block, Head { scale, sign: ((w >> 7 & 1) << 15) as u16 }, &payload);
    }
}

/// Makes every element of `out` by the uniform law, narrowed by `bits`.
fn elements<const BYTES: usize>(run: Run, out: &mut [u8], bits: impl Fn(bool, u64) -> [u8; BYTES]) {
    let (elements, _) = out.as_chunks_mut::<BYTES>();
    for (i, element) in (0..).zip(elements) {
        let r = (word(run.key, run.first_block.wrapping_add(i)) >> 40) as i64 - (1 << 23);
        let x = (run.law.centre << 23).wrapping_add(r.wrapping_mul(run.law.spread as i64));
        *element = bits(x < 0, x.unsigned_abs());
    }
}

/// Fraction bits of an element.
const ELEMENT_FRACTION: u32 = FRACTION + 23;

fn single(negative: bool, magnitude: u64) -> [u8; 4] {
    (single_bits(magnitude) | u32::from(negative) << 31).to_le_bytes()
}

fn bfloat(negative: bool, magnitude: u64) -> [u8; 2] {
    ((single_bits(magnitude) >> 16) as u16 | u16::from(negative) << 15).to_le_bytes()
}

fn half(negative: bool, magnitude: u64) -> [u8; 2] {
    (half_bits(magnitude, ELEMENT_FRACTION) | u16::from(negative) << 15).to_le_bytes()
}

fn single_bits(magnitude: u64) -> u32 {
    if magnitude == 0 {
        return 0;
    }
    let zeros = magnitude.leading_zeros();
    let exponent = 63 - zeros + 127 - ELEMENT_FRACTION; // 68 to 131: always a normal number
    exponent << 23 | (magnitude << zeros >> 40) as u32 & 0x7F_FFFF
}

/// The binary16 towards zero of `magnitude * 2^-fraction`.
fn half_bits(magnitude: u64, fraction: u32) -> u16 {
    let zeros = (magnitude | 1).leading_zeros();
    match (63 - zeros + 15).saturating_sub(fraction) {
        0 => (magnitude >> (fraction - 24)) as u16,
        exponent @ 1..31 => (exponent as u16) << 10 | (magnitude << zeros >> 53) as u16 & 0x3FF,
        _ => 0x7BFF,
    }
}

/// A block's scale times `factor / 2^shift`, as a field of the block.
fn scale(head: &Head, factor: u64, shift: u32) -> [u8; 2] {
    half_bits(head.scale.wrapping_mul(factor), FRACTION + shift).to_le_bytes()
}

fn signed_scale(head: &Head) -> [u8; 2] {
    (half_bits(head.scale, FRACTION) | head.sign).to_le_bytes()
}

/// Minus half of `factor` scales.
fn minus_half(head: &Head, factor: u64) -> [u8; 2] {
    (half_bits(head.scale.wrapping_mul(factor), FRACTION + 1) | 0x8000).to_le_bytes()
}

fn scale_first<const BYTES: usize, const PAYLOAD: usize>(out: &mut [u8; BYTES], head: Head, payload: &[u8; PAYLOAD]) {
    out[..2].copy_from_slice(&scale(&head, 1, 0));
    out[2..].copy_from_slice(&payload[..BYTES - 2]);
}

/// For codes that are not as far below 0 as above it: the sign makes up for it.
fn signed_scale_first<const BYTES: usize, const PAYLOAD: usize>(
    out: &mut [u8; BYTES],
    head: Head,
    payload: &[u8; PAYLOAD],
) {
    out[..2].copy_from_slice(&signed_scale(&head));
    out[2..].copy_from_slice(&payload[..BYTES - 2]);
}

fn q4_0(out: &mut [u8; 18], head: Head, payload: &[u8; 16]) {
    signed_scale_first(out, head, payload);
}

fn q4_1(out: &mut [u8; 20], head: Head, payload: &[u8; 16]) {
    out[..2].copy_from_slice(&scale(&head, 1, 0));
    out[2..4].copy_from_slice(&minus_half(&head, 15));
    out[4..].copy_from_slice(payload);
}

fn q5_0(out: &mut [u8; 22], head: Head, payload: &[u8; 24]) {
    signed_scale_first(out, head, payload);
}

fn q5_1(out: &mut [u8; 24], head: Head, payload: &[u8; 24]) {
    out[..2].copy_from_slice(&scale(&head, 1, 0));
    out[2..4].copy_from_slice(&minus_half(&head, 31));
    out[4..].copy_from_slice(&payload[..20]);
}

fn q8_0(out: &mut [u8; 34], head: Head, payload: &[u8; 32]) {
    out[..2].copy_from_slice(&scale(&head, 1, 0));
    for (code, &byte) in out[2..].iter_mut().zip(payload) {
        *code = if byte == 0x80 { 0 } else { byte };
    }
}

fn q2_k(out: &mut [u8; 84], head: Head, payload: &[u8; 80]) {
    for (byte, &p) in out.iter_mut().zip(&payload[..16]) {
        let c = p & 15;
        *byte = c | ((c + (p >> 4 & 1)) >> 1) << 4;
    }
    out[16..80].copy_from_slice(&payload[16..]);
    out[80..82].copy_from_slice(&scale(&head, 1, 0));
    out[82..].copy_from_slice(&scale(&head, 3, 0));
}

fn q3_k(out: &mut [u8; 110], head: Head, payload: &[u8; 112]) {
    out[..108].copy_from_slice(&payload[..108]);
    out[108..].copy_from_slice(&scale(&head, 1, 0));
}

fn q4_k(out: &mut [u8; 144], head: Head, payload: &[u8; 136]) {
    k_scales(out, &head, 15, payload);
    out[16..].copy_from_slice(&payload[8..]);
}

fn q5_k(out: &mut [u8; 176], head: Head, payload: &[u8; 168]) {
    k_scales(out, &head, 31, payload);
    out[16..].copy_from_slice(&payload[8..]);
}

/// The first 16 bytes of Q4_K and Q5_K, whose codes are 0 to `top`: a min is half of its group's scale (so that the two
/// are never mistaken for each other unnoticed) and `dmin` is `top` times `d`, which puts the middle code at 0.
fn k_scales(out: &mut [u8], head: &Head, top: u64, payload: &[u8]) {
    out[..2].copy_from_slice(&scale(head, 1, 0));
    out[2..4].copy_from_slice(&scale(head, top, 0));
    let group = |i: usize| {
        let c = payload[i] & 63;
        (c, (c + (payload[i] >> 6 & 1)) >> 1)
    };
    for i in 0..4 {
        let ((low, low_min), (high, high_min)) = (group(i), group(i + 4));
        out[4 + i] = low | high >> 4 << 6;
        out[8 + i] = low_min | high_min >> 4 << 6;
        out[12 + i] = high & 15 | high_min << 4;
    }
}

fn q6_k(out: &mut [u8; 210], head: Head, payload: &[u8; 208]) {
    out[..192].copy_from_slice(&payload[..192]);
    for (code, &p) in out[192..208].iter_mut().zip(&payload[192..]) {
        *code = (p as i8 >> 2) as u8;
    }
    out[208..].copy_from_slice(&scale(&head, 1, 0));
}

fn tq2_0(out: &mut [u8; 66], head: Head, payload: &[u8; 64]) {
    for (byte, &p) in out.iter_mut().zip(payload) {
        *byte = two_bit(p);
    }
    out[64..].copy_from_slice(&scale(&head, 1, 0));
}

fn pq2_0(out: &mut [u8; 34], head: Head, payload: &[u8; 32]) {
    out[..2].copy_from_slice(&scale(&head, 1, 0));
    for (byte, &p) in out[2..].iter_mut().zip(payload) {
        *byte = two_bit(p);
    }
}

/// `FIVE` bytes of five digits, `FOUR` of four, then the scale.
fn base_3<const BYTES: usize, const PAYLOAD: usize, const FIVE: usize, const FOUR: usize>(
    out: &mut [u8; BYTES],
    head: Head,
    payload: &[u8; PAYLOAD],
) {
    let packed = |value: u32| (value * 256).div_ceil(243) as u8;
    for (i, (byte, &p)) in out.iter_mut().zip(&payload[..FIVE + FOUR]).enumerate() {
        let p = u32::from(p);
        *byte = if i < FIVE { packed((p * 243) >> 8) } else { packed(((p * 81) >> 8) * 3) };
    }
    out[FIVE + FOUR..].copy_from_slice(&scale(&head, 1, 0));
}

/// Four fields of two bits, each 0, 1 or 2: a ternary file uses no other.
fn two_bit(byte: u8) -> u8 {
    let c = ((u16::from(byte) * 81) >> 8) as u8;
    (c % 3) | ((c / 3 % 3) << 2) | (c / 9 % 3) << 4 | (c / 27) << 6
}

fn mxfp4(out: &mut [u8; 17], head: Head, payload: &[u8; 16]) {
    let top = 63 - (head.scale | 1).leading_zeros();
    out[0] = (top + 128 - FRACTION) as u8;
    out[1..].copy_from_slice(payload);
}

#[cfg(test)]
mod tests;
