//! binary16 and bfloat16 against binary32 (quant-formats.md 2.5).
//!
//! Narrowing goes through the `half` crate. Widening a binary16 is done here without branches, so that it inlines into
//! the unpack loops; the test compares all 65,536 patterns with `half`.

/// The binary16 `bits`, widened exactly; subnormals are kept.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    // Exponent and mantissa land 112 too low in the binary32 exponent; one exact multiply mends normals and subnormals
    // alike. Only infinity and NaN need their exponent forced.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * REBIAS;
    let special = if bits & 0x7C00 == 0x7C00 { 0x7F80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

/// A little-endian binary16 field of a block.
#[inline(always)]
pub(crate) fn f16_le(bytes: [u8; 2]) -> f32 {
    f16_to_f32(u16::from_le_bytes(bytes))
}

/// `value` as a little-endian binary16 field of a block.
pub(crate) fn to_f16_le(value: f32) -> [u8; 2] {
    f32_to_f16(value).to_le_bytes()
}

/// `value` as binary16: to nearest, ties to even; overflow becomes infinity, subnormals are kept.
pub fn f32_to_f16(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

/// The bfloat16 `bits`, widened exactly.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `value` as bfloat16: to nearest, ties to even; NaN is made quiet.
pub fn f32_to_bf16(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}
