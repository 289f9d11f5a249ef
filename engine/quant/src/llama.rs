//! Activation quantisers of another engine (quant-formats.md 4b to 4d), for comparison only.
//!
//! They are not interchangeable with [`ActRows`](crate::ActRows) bit for bit: they round half away from zero, divide
//! instead of multiplying, or store binary16. Nothing in this engine runs on them; they exist so that a difference from
//! that engine's results can be traced to its quantiser.

use crate::{dot::tree, f32_to_f16};

/// A group of 32 as that engine's CUDA kernels feed their vector products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q8_1 {
    /// Codes.
    pub q: [i8; 32],
    /// Scale, binary16 bits.
    pub d: u16,
    /// Float sum of the values (not `d * sum(q)`), binary16 bits.
    pub s: u16,
}

impl Q8_1 {
    /// `d = max|x| / 127`, `q = round-half-away(x / d)`, sum in the order of a 32-lane butterfly.
    pub fn quantise(x: &[f32; 32]) -> Self {
        let d = largest(x) / 127.0;
        let q = x.map(|v| if d == 0.0 { 0 } else { (v / d).round() as i8 });
        Self { q, d: f32_to_f16(d), s: f32_to_f16(tree(*x)) }
    }
}

/// A group of 32 as that engine's CUDA kernels feed their matrix products (layout D4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Q8_1Mmq {
    /// Codes.
    pub q: [i8; 32],
    /// Scale.
    pub d: f32,
}

impl Q8_1Mmq {
    /// `dinv = 127 / max|x|`, `q = round-half-away(x * dinv)`, `d = 1 / dinv`. Zeros give an infinite `dinv`: `d` and all
    /// codes are 0 (NaN casts to 0).
    pub fn quantise(x: &[f32; 32]) -> Self {
        let dinv = 127.0 / largest(x);
        Self { q: x.map(|v| (v * dinv).round() as i8), d: 1.0 / dinv }
    }
}

/// A block of 256 as that engine's CPU code feeds the K, IQ and ternary formats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Q8K {
    /// Codes.
    pub q: [i8; 256],
    /// Scale, of either sign: the value of largest magnitude becomes -127.
    pub d: f32,
    /// Sums of 16 codes.
    pub sums: [i16; 16],
}

impl Q8K {
    /// `m` the value of largest magnitude, `is = -127 / m`, `q = min(127, round-half-even(is * x))`, `d = 1 / is`.
    pub fn quantise(x: &[f32; 256]) -> Self {
        let m = x.iter().fold(0.0_f32, |best, &v| if v.abs() > best.abs() { v } else { best });
        if m == 0.0 {
            return Self { q: [0; 256], d: 0.0, sums: [0; 16] };
        }
        let is = -127.0 / m;
        let q = x.map(|v| (is * v).round_ties_even() as i8);
        let mut sums = [0; 16];
        for (sum, q) in sums.iter_mut().zip(q.chunks_exact(16)) {
            *sum = q.iter().map(|&q| i16::from(q)).sum();
        }
        Self { q, d: 1.0 / is, sums }
    }
}

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max, v| max.max(v.abs()))
}
