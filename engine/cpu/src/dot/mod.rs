//! The int8 dot products of the forward pass.
//!
//! Two orders of one sum, each a version of `cudafast_quant::dot_ref`; an operation uses one of them always:
//!
//! * [`rows`], for decode and verification, has the bits of `dot_ref::<16>`. Lane `j` of 16 holds the exact integer dots of
//!   four consecutive bytes: lanes 0..8 of even groups of 32, lanes 8..16 of odd ones, groups ascending,
//!   `acc = fma(f32(wa * d), part, acc)`; offsets fold apart in 8 lanes by `group % 8`; both by the tree. A 512-bit register
//!   is one accumulator. Weights are read row by row, as they lie in memory.
//! * [`panel`], for prefill, has the bits of `dot_ref::<1>`: lanes are weight rows, a group's whole dot is folded at once.
//!   Weights are turned into lanes first, which pays from about three rows on.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod panel;
#[cfg(target_arch = "x86_64")]
mod unpack;

use std::ops::Range;

use cudafast_model::MatrixRef;
use cudafast_quant::{ActRow, ActRows, UnpackedRow};

use crate::isa::Isa;
use crate::math::{self, LANES};
use crate::matmul::{Pick, Sink};
use crate::simd::Kernel;

const GROUP: usize = 32;
const OFFSET_LANES: usize = 8;

/// Weight rows that share one pass over the activations.
const TILE: usize = 4;

/// The most of any version.
const MOST_TILED: usize = 8;

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    unpacked: [UnpackedRow; MOST_TILED],
    panel: panel::Panel,
    half_sums: Vec<i32>,
}

/// What one call computes: the products of weight rows `outputs` and the picked activation rows.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) w: MatrixRef<'a>,
    pub(crate) x: &'a ActRows,
    pub(crate) pick: Pick<'a>,
    pub(crate) sink: Sink<'a>,
}

impl Product<'_> {
    /// Picked activation rows `t..t + N`.
    #[inline(always)]
    fn acts<const N: usize>(&self, t: usize) -> [ActRow<'_>; N] {
        let mut acts = [ActRow { q: &[], d: &[], sum: &[] }; N];
        for (i, act) in acts.iter_mut().enumerate() {
            *act = self.x.row(self.pick.get(t + i));
        }
        acts
    }
}

/// Value `(t, r)` of the sink for every picked row `t` and `r` in `outputs`, in the order of `dot_ref::<16>`.
pub(crate) fn rows(isa: Isa, p: Product<'_>, outputs: Range<usize>, scratch: &mut Scratch) {
    assert!(isa.is_supported(), "{isa} on a machine without it");
    match isa {
        // SAFETY: supported, see the line above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::rows(p, outputs, scratch) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::rows(p, outputs, scratch) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Isa::Dotprod => unsafe { neon::rows(p, outputs, scratch) },
        _ => portable_rows(p, outputs, scratch),
    }
}

/// Asks for weight row `r`, which will be unpacked soon: the hardware follows a row, the rows of another tile are ours to
/// announce. Behind the last row the hint is useless and harmless.
#[inline(always)]
fn prefetch_row(w: MatrixRef<'_>, r: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..w.row_bytes()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint reads nothing, wherever it points; every x86-64 machine has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(w.bytes.as_ptr().wrapping_add(r * w.row_bytes() + at).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (w, r);
}

/// [`rows`] without intrinsics.
fn portable_rows(p: Product<'_>, outputs: Range<usize>, scratch: &mut Scratch) {
    let [unpacked, ..] = &mut scratch.unpacked;
    for r in outputs {
        p.w.format.unpack_row(p.w.row(r), unpacked);
        for t in 0..p.pick.len() {
            // SAFETY: a task has its outputs to itself.
            unsafe { p.sink.put(t, r, &[portable(unpacked, p.x.row(p.pick.get(t)))]) };
        }
    }
}

/// `sum_c w[c] * x[c]` of one weight row and one activation row.
fn portable(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let scaled = if w.halves == 2 { Scaled::<2> { w, a }.run() } else { Scaled::<1> { w, a }.run() };
    if w.wb.is_empty() { scaled } else { scaled + math::tree(Offsets { w, a }.lanes()) }
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

impl Offsets<'_> {
    /// The lanes before their tree.
    #[inline(always)]
    fn lanes(&self) -> [f32; OFFSET_LANES] {
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
        acc
    }
}

#[cfg(test)]
mod tests {
    use cudafast_quant::{ActRows, Kind, dot_ref, formats};
    use proptest::prelude::*;

    use super::*;

    const ROWS: usize = 23;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(192))]

        /// Widths 1..=9, 22 weight rows from the second on: every tile and every remainder of both orders. Activation rows
        /// are picked in reverse.
        #[test]
        fn every_version_has_the_bits_of_the_defining_dot_at_every_width(
            format in 0..formats().len(),
            bytes in proptest::collection::vec(any::<u8>(), ROWS * 6 * 256),
            blocks in 1..6usize,
            width in 1u32..=9,
            outputs in 1..ROWS,
            x in proptest::collection::vec(prop_oneof![100 => -3.0f32..3.0, 1 => -1e-38f32..1e-38], 9 * 6 * 256),
            // Rows of values so small that the reciprocal of their scale is infinite.
            tiny_rows in 0..9usize,
        ) {
            let format = &formats()[format];
            prop_assume!(matches!(format.kind, Kind::Block { .. }));
            let cols = blocks * format.block_elems;
            let view = MatrixRef { format, rows: ROWS, cols, bytes: &bytes[..ROWS * blocks * format.block_bytes] };
            let mut x = x[..9 * cols].to_vec();
            x[..tiny_rows * cols].iter_mut().for_each(|v| *v *= 1e-39);
            let acts = ActRows::quantise(&x, cols).unwrap();
            let pick: Vec<u32> = (0..width).rev().collect();
            let sets = [Isa::Portable, Isa::Dotprod, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.is_supported());
            for (isa, of_panels) in sets.flat_map(|isa| [(isa, false), (isa, true)]) {
                let mut y = vec![f32::NAN; pick.len() * ROWS];
                let sink = Sink::new(&mut y, ROWS, Pick::All(pick.len()));
                let product = Product { w: view, x: &acts, pick: Pick::Some(&pick), sink };
                let version = if of_panels { panel::rows } else { rows };
                let defining = if of_panels { dot_ref::<1> } else { dot_ref::<16> };
                version(isa, product, 1..1 + outputs, &mut Scratch::default());
                let mut w = UnpackedRow::new();
                for r in 1..1 + outputs {
                    format.unpack_row(view.row(r), &mut w);
                    for (t, row) in pick.iter().enumerate() {
                        let (got, want) = (y[t * ROWS + r], defining(&w, acts.row(*row as usize)));
                        prop_assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                            "{isa} {} {cols} columns, width {width}, output {r}: {got} against {want}", format.name);
                    }
                }
            }
        }
    }
}
