//! Reads the published vectors under `testdata/quants`.

use serde_json::Value;

pub(crate) fn vectors(file: &str) -> Value {
    let path = format!("{}/../../testdata/quants/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))).unwrap()
}

pub(crate) fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hex text");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

pub(crate) fn f32s(value: &Value) -> Vec<f32> {
    hex(value).as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

pub(crate) fn i32s(value: &Value) -> Vec<i32> {
    hex(value).as_chunks::<4>().0.iter().map(|&b| i32::from_le_bytes(b)).collect()
}

pub(crate) fn u16s(value: &Value) -> Vec<u16> {
    hex(value).as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b)).collect()
}

pub(crate) fn i8s(value: &Value) -> Vec<i8> {
    hex(value).into_iter().map(u8::cast_signed).collect()
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Bits, with both zeros alike: the decode vectors let zeros carry either sign.
pub(crate) fn bits_but_zero_sign(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if *v == 0.0 { 0 } else { v.to_bits() }).collect()
}
