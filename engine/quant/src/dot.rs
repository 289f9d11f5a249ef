//! The defining integer dots (quant-formats.md 5).

use crate::{ActRow, GROUP, UnpackedRow};

/// The dot of one weight row and one activation row: exact integer partials, f32 folds in a fixed order.
///
/// With `t = f32(wa * d)` of the group (or half) and `o = f32(wb * d)`:
///
/// * `LANES = 1`: groups ascending, one accumulator: `acc = fma(t, dot, acc)` (first half, then second), then
///   `acc = fma(o, sum, acc)` (same), where dot and sum are the exact integers of the group or half. This is order (i) of
///   quant-formats.md 5, pinned by `dots.json`.
/// * `LANES = 8`: lane j holds the exact partial dot of elements 4j..4j+3 of each group, groups ascending,
///   `acc[j] = fma(t, part[j], acc[j])`, where lanes 4..8 take the second half's `t`. These are the 32-bit lanes of one
///   256-bit register.
/// * `LANES = 16`: the same in two sets of eight: even groups go to lanes 0..8, odd groups to lanes 8..16.
/// * Offsets, for 8 and 16 lanes alike: `off[g % 8] = fma(o, sum, off[g % 8])`, first half, then second.
/// * Last: the tree `x[i] += x[i + step]`, step LANES/2, .., 2, 1 over `acc`, the tree 4, 2, 1 over `off`, and
///   `acc[0] + off[0]` when the format has offsets.
///
/// # Panics
/// When the rows do not have the same number of elements.
pub fn dot_ref<const LANES: usize>(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    const { assert!(LANES == 1 || LANES == 8 || LANES == 16, "the dot is defined for 1, 8 and 16 lanes") };
    assert_eq!(w.cols(), a.q.len(), "weight and activation row lengths");
    if LANES == 1 { ascending(w, a) } else { in_lanes::<LANES>(w, a) }
}

fn ascending(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let mut acc = 0.0_f32;
    for (g, (codes, q)) in groups(w, a).enumerate() {
        for (h, (codes, q)) in halves(w, codes).zip(halves(w, q)).enumerate() {
            acc = (w.wa[g * w.halves + h] * a.d[g]).mul_add(dot(codes, q) as f32, acc);
        }
        if !w.wb.is_empty() {
            for (h, q) in halves(w, q).enumerate() {
                acc = (w.wb[g * w.halves + h] * a.d[g]).mul_add(sum(q) as f32, acc);
            }
        }
    }
    acc
}

fn in_lanes<const LANES: usize>(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let (mut acc, mut off) = ([0.0_f32; LANES], [0.0_f32; 8]);
    for (g, (codes, q)) in groups(w, a).enumerate() {
        let first_lane = 8 * g % LANES;
        for (j, (codes, q)) in codes.chunks_exact(4).zip(q.chunks_exact(4)).enumerate() {
            let half = j / (8 / w.halves);
            let t = w.wa[g * w.halves + half] * a.d[g];
            acc[first_lane + j] = t.mul_add(dot(codes, q) as f32, acc[first_lane + j]);
        }
        if !w.wb.is_empty() {
            for (h, q) in halves(w, q).enumerate() {
                let o = w.wb[g * w.halves + h] * a.d[g];
                off[g % 8] = o.mul_add(sum(q) as f32, off[g % 8]);
            }
        }
    }
    if w.wb.is_empty() { tree(acc) } else { tree(acc) + tree(off) }
}

fn groups<'a>(w: &'a UnpackedRow, a: ActRow<'a>) -> impl Iterator<Item = (&'a [i8], &'a [i8])> {
    w.codes.chunks_exact(GROUP).zip(a.q.chunks_exact(GROUP))
}

fn halves<'a>(w: &UnpackedRow, group: &'a [i8]) -> std::slice::ChunksExact<'a, i8> {
    group.chunks_exact(GROUP / w.halves)
}

/// Exact; at most 32 * 128 * 127 < 2^24, so it is exact as f32 too.
fn dot(codes: &[i8], q: &[i8]) -> i32 {
    codes.iter().zip(q).map(|(&c, &q)| i32::from(c) * i32::from(q)).sum()
}

fn sum(q: &[i8]) -> i32 {
    q.iter().map(|&q| i32::from(q)).sum()
}

/// `x[i] += x[i + step]`, step N/2, .., 2, 1: the order of a butterfly over N lanes.
pub(crate) fn tree<const N: usize>(mut x: [f32; N]) -> f32 {
    let mut step = N / 2;
    while step > 0 {
        for i in 0..step {
            x[i] += x[i + step];
        }
        step /= 2;
    }
    x[0]
}
