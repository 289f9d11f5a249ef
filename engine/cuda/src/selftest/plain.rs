//! Scalar f64 arithmetic that the checks along the sequence compare with, and comparisons they share.

use cudafast_quant::ActRows;

use super::Bench;
use crate::{driver::DeviceBuffer, error::CudaError, launch::Q8Rows};

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub(super) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| v.into()).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// One over the root mean square.
pub(super) fn rinv(x: &[f64], eps: f32) -> f64 {
    1.0 / (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt()
}

/// `x / rms(x) * gain`.
pub(super) fn rms(x: &[f64], gain: &[f32], eps: f32) -> Vec<f64> {
    let r = rinv(x, eps);
    x.iter().zip(gain).map(|(x, g)| x * r * f64::from(*g)).collect()
}

/// A bf16 as its value.
pub(super) fn bf16(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}

/// Poisoned int8 rows.
pub(super) struct Codes {
    pub(super) q: DeviceBuffer<i8>,
    pub(super) d: DeviceBuffer<f32>,
    pub(super) cols: usize,
}

impl Codes {
    pub(super) fn new(b: &Bench<'_>, rows: usize, cols: usize) -> Result<Self, CudaError> {
        Ok(Self { q: b.poisoned(rows * cols)?, d: b.poisoned(rows * cols / 32)?, cols })
    }

    pub(super) fn rows(&self) -> Q8Rows<'_> {
        Q8Rows { q: self.q.all(), d: self.d.all(), cols: self.cols }
    }

    /// Must be the bits that `cudafast-quant` makes of `values`, scales times `scale(group)`.
    pub(super) fn check(
        &self,
        b: &mut Bench<'_>,
        op: &str,
        shape: &str,
        values: &[f32],
        scale: impl Fn(usize) -> f32,
    ) -> Result<(), CudaError> {
        let refused = |e: cudafast_quant::Error| CudaError::Read { what: "a check".into(), reason: e.to_string() };
        let want = ActRows::quantise(values, self.cols).map_err(refused)?;
        let rows = values.len() / self.cols;
        let q: Vec<i8> = (0..rows).flat_map(|r| want.row(r).q.to_vec()).collect();
        let d: Vec<f32> =
            (0..rows).flat_map(|r| want.row(r).d.to_vec()).enumerate().map(|(g, d)| d * scale(g)).collect();
        let got = (b.stream.download(self.q.all())?, b.stream.download(self.d.all())?);
        b.bits(op, &format!("{shape} codes"), &got.0, &q);
        b.bits(op, &format!("{shape} scales"), &got.1, &d);
        Ok(())
    }
}
