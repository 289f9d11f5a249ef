//! The int8 dot product of the forward pass: bits of `cudafast_quant::dot_ref::<16>`.
//!
//! Lane `j` of 16 holds the exact integer dots of four consecutive bytes: lanes 0..8 of even groups of 32, lanes 8..16 of
//! odd ones, groups ascending, `acc = fma(f32(wa * d), part, acc)`; offsets fold apart in 8 lanes by `group % 8`; both by
//! the tree. A 512-bit register is one accumulator, two 256-bit ones are the same.

#[cfg(target_arch = "x86_64")]
mod x86;

use cudafast_model::MatrixRef;
use cudafast_quant::{ActRow, ActRows, UnpackedRow};

use crate::math::{self, LANES};
use crate::matmul::Pick;
use crate::simd::{self, Kernel};

const GROUP: usize = 32;
const OFFSET_LANES: usize = 8;

/// Outputs `first..` of the picked activation rows, by output: `out: [outputs][picked]`.
pub(crate) fn rows(
    w: MatrixRef<'_>,
    first: usize,
    x: &ActRows,
    pick: Pick<'_>,
    out: &mut [f32],
    unpacked: &mut UnpackedRow,
) {
    #[cfg(target_arch = "x86_64")]
    {
        if x86::supported() {
            // SAFETY: the features were detected on this machine one line above.
            return unsafe { x86::rows(w, first, x, pick, out, unpacked) };
        }
    }
    portable_rows(w, first, x, pick, out, unpacked);
}

/// [`rows`] without intrinsics.
fn portable_rows(
    w: MatrixRef<'_>,
    first: usize,
    x: &ActRows,
    pick: Pick<'_>,
    out: &mut [f32],
    unpacked: &mut UnpackedRow,
) {
    for (i, values) in out.chunks_exact_mut(pick.len()).enumerate() {
        w.format.unpack_row(w.row(first + i), unpacked);
        for (t, value) in values.iter_mut().enumerate() {
            *value = portable(unpacked, x.row(pick.get(t)));
        }
    }
}

/// `sum_c w[c] * x[c]` of one weight row and one activation row.
fn portable(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
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
        math::tree(acc)
    }
}

#[cfg(test)]
mod tests {
    use cudafast_quant::{ActRows, Kind, dot_ref, formats};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Widths 1..=9 and five weight rows: every tile and every remainder. Activation rows are picked in reverse.
        #[test]
        fn every_version_has_the_bits_of_the_defining_dot_at_every_width(
            format in 0..formats().len(),
            bytes in proptest::collection::vec(any::<u8>(), 5 * 6 * 256),
            blocks in 1..6usize,
            width in 1u32..=9,
            x in proptest::collection::vec(-3.0f32..3.0, 9 * 6 * 256),
        ) {
            let format = &formats()[format];
            prop_assume!(matches!(format.kind, Kind::Block { .. }));
            let cols = blocks * format.block_elems;
            let view = MatrixRef { format, rows: 5, cols, bytes: &bytes[..5 * blocks * format.block_bytes] };
            let acts = ActRows::quantise(&x[..9 * cols], cols).unwrap();
            let pick: Vec<u32> = (0..width).rev().collect();
            for version in [rows, portable_rows] {
                let mut out = vec![f32::NAN; 4 * pick.len()];
                version(view, 1, &acts, Pick::Some(&pick), &mut out, &mut UnpackedRow::new());
                let mut w = UnpackedRow::new();
                for (r, out) in out.chunks_exact(pick.len()).enumerate() {
                    format.unpack_row(view.row(1 + r), &mut w);
                    for (t, got) in pick.iter().zip(out) {
                        let want = dot_ref::<16>(&w, acts.row(*t as usize));
                        prop_assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                            "{} {} columns, width {}: {} against {}", format.name, cols, width, got, want);
                    }
                }
            }
        }
    }
}
