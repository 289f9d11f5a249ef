//! The int8 dot product of the forward pass: bits of `cudafast_quant::dot_ref::<16>`.
//!
//! Lane `j` of 16 holds the exact integer dots of four consecutive bytes: lanes 0..8 of even groups of 32, lanes 8..16 of
//! odd ones, groups ascending, `acc = fma(f32(wa * d), part, acc)`; offsets fold apart in 8 lanes by `group % 8`; both by
//! the tree. A 512-bit register is one accumulator, two 256-bit ones are the same.

use cudafast_quant::{ActRow, UnpackedRow};

use crate::math::{self, LANES};
use crate::simd::{self, Kernel};

const GROUP: usize = 32;
const OFFSET_LANES: usize = 8;

/// `sum_c w[c] * x[c]` of one weight row and one activation row.
pub(crate) fn dot(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let scaled = if w.halves == 2 { simd::run(Scaled::<2> { w, a }) } else { simd::run(Scaled::<1> { w, a }) };
    if w.wb.is_empty() { scaled } else { scaled + simd::run(Offsets { w, a }) }
}

struct Scaled<'a, const HALVES: usize> {
    w: &'a UnpackedRow,
    a: ActRow<'a>,
}

impl<const HALVES: usize> Kernel for Scaled<'_, HALVES> {
    type Out = f32;
    #[inline(always)]
    fn run(self) -> f32 {
        let (codes, _) = self.w.codes.as_chunks::<GROUP>();
        let (q, _) = self.a.q.as_chunks::<GROUP>();
        let mut acc = [0.0f32; LANES];
        let groups = codes.iter().zip(q).zip(self.w.wa.chunks_exact(HALVES)).zip(self.a.d);
        for (g, (((c, q), wa), d)) in groups.enumerate() {
            let lanes = &mut acc[(g % 2) * (LANES / 2)..][..LANES / 2];
            for (j, lane) in lanes.iter_mut().enumerate() {
                let part: i32 = (4 * j..4 * j + 4).map(|b| i32::from(c[b]) * i32::from(q[b])).sum();
                let scale = wa[j * HALVES / (LANES / 2)] * d;
                *lane = scale.mul_add(part as f32, *lane);
            }
        }
        math::tree(acc)
    }
}

/// `sum_g wb[g] * d[g] * sum(q of g)`; with 16-element sub-blocks, each half has its own offset and its own sum.
struct Offsets<'a> {
    w: &'a UnpackedRow,
    a: ActRow<'a>,
}

impl Kernel for Offsets<'_> {
    type Out = f32;
    #[inline(always)]
    fn run(self) -> f32 {
        let Self { w, a } = self;
        let mut acc = [0.0f32; OFFSET_LANES];
        for (g, (d, sum)) in a.d.iter().zip(a.sum).enumerate() {
            let lane = &mut acc[g % OFFSET_LANES];
            if w.halves == 1 {
                *lane = (w.wb[g] * d).mul_add(*sum as f32, *lane);
            } else {
                let q = &a.q[g * GROUP..(g + 1) * GROUP];
                let first: i32 = q[..GROUP / 2].iter().map(|v| i32::from(*v)).sum();
                *lane = (w.wb[2 * g] * d).mul_add(first as f32, *lane);
                *lane = (w.wb[2 * g + 1] * d).mul_add((sum - first) as f32, *lane);
            }
        }
        let mut step = OFFSET_LANES / 2;
        while step > 0 {
            for j in 0..step {
                acc[j] += acc[j + step];
            }
            step /= 2;
        }
        acc[0]
    }
}
