//! F32, F16, BF16: one float an element.

use crate::{Error, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

pub(crate) fn decode_f32(bytes: &[u8], out: &mut [f32]) {
    widen(bytes, out, f32::from_le_bytes);
}

pub(crate) fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    widen(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b)));
}

pub(crate) fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    widen(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b)));
}

pub(crate) fn encode_f32(x: &[f32], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend(x.iter().flat_map(|v| v.to_le_bytes()));
    Ok(())
}

pub(crate) fn encode_f16(x: &[f32], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend(x.iter().flat_map(|&v| f32_to_f16(v).to_le_bytes()));
    Ok(())
}

pub(crate) fn encode_bf16(x: &[f32], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend(x.iter().flat_map(|&v| f32_to_bf16(v).to_le_bytes()));
    Ok(())
}

fn widen<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (elements, rest) = bytes.as_chunks::<N>();
    assert!(rest.is_empty() && elements.len() == out.len(), "{} bytes for {} floats of {N}", bytes.len(), out.len());
    for (out, &bytes) in out.iter_mut().zip(elements) {
        *out = value(bytes);
    }
}
