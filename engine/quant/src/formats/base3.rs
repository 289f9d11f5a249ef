//! Base-3 packing of ternary elements (quant-formats.md 2.4): element i is digit `i / N` of byte `i % N`.

/// Codes -1..=1 of `bytes`, four or five digits each as `codes` is long. Any byte is legal.
///
/// Digit n of byte B is `((B * 3^n mod 256) * 3) >> 8`.
#[inline(always)]
pub(crate) fn unpack<const N: usize>(bytes: &[u8; N], codes: &mut [i8]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    for (codes, power) in codes.as_chunks_mut::<N>().0.iter_mut().zip(POWERS) {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as i8 - 1;
        }
    }
}

/// Bytes of digits 0..=2, first digit most significant: `ceil(v * 256 / 243)`, where four digits count as five with a
/// last 0.
pub(crate) fn pack<const N: usize>(digits: &[u8]) -> [u8; N] {
    std::array::from_fn(|b| {
        let at = |n: usize| digits.get(n * N + b).map_or(0, |&d| u32::from(d));
        let value = (0..5).fold(0, |value, n| value * 3 + at(n));
        (value * 256_u32).div_ceil(243) as u8
    })
}
