//! Scalar functions and f32 folds whose bits do not depend on the machine.
//!
//! `exp` is a polynomial in fused arithmetic instead of the C library's, so that every instruction set and every platform
//! agrees, and so that loops over it vectorise.

use std::cmp::Ordering;

use crate::pool::Pool;
use crate::simd::{self, Kernel};

/// Lanes of an f32 dot product: lane `j` folds elements `16 i + j`, ascending, then the tree 8, 4, 2, 1.
pub(crate) const LANES: usize = 16;

/// `e^x` within 2 ulp; 0 below the normal range, infinity above it. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts: the first has trailing zeros, so `n * LN2_HI` is exact for every n that occurs.
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    // 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, ties to even.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.4, 88.8);
    let n = clamped.mul_add(LOG2_E, ROUND) - ROUND;
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, clamped));
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let poly = (p * r).mul_add(r, r) + 1.0;
    // Two halves, so that neither power of two leaves the exponent range.
    let half = (n as i32) >> 1;
    let rest = n as i32 - half;
    let scaled = poly * power_of_two(half) * power_of_two(rest);
    if x < -87.336_54 {
        0.0
    } else if x > 88.722_84 {
        f32::INFINITY
    } else {
        scaled
    }
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `ln(1 + e^x)`, linear above 20 (qwen4exp.md 4). One value per head, so f64 costs nothing.
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { f64::from(x).exp().ln_1p() as f32 }
}

/// Folds a power of two of lanes by halves: 16 as 8, 4, 2, 1.
#[inline(always)]
pub(crate) fn tree<const N: usize>(mut lanes: [f32; N]) -> f32 {
    let mut step = N / 2;
    while step > 0 {
        for j in 0..step {
            lanes[j] += lanes[j + step];
        }
        step /= 2;
    }
    lanes[0]
}

/// `sum a[i] * b[i]` in the order of [`LANES`], fused. Inlined into the caller's instruction set.
#[inline(always)]
pub(crate) fn dot_inline(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [0.0f32; LANES];
    let (a_body, a_tail) = a.as_chunks::<LANES>();
    let (b_body, b_tail) = b.as_chunks::<LANES>();
    for (x, y) in a_body.iter().zip(b_body) {
        fold(&mut acc, x, y);
    }
    for (j, (x, y)) in a_tail.iter().zip(b_tail).enumerate() {
        acc[j] = x.mul_add(*y, acc[j]);
    }
    tree(acc)
}

/// `sum x[i]^2` in the order of [`LANES`].
#[inline(always)]
pub(crate) fn sum_squares(x: &[f32]) -> f32 {
    dot_inline(x, x)
}

/// `acc[i] += s * x[i]`, fused.
#[inline(always)]
pub(crate) fn axpy(acc: &mut [f32], s: f32, x: &[f32]) {
    for (a, v) in acc.iter_mut().zip(x) {
        *a = s.mul_add(*v, *a);
    }
}

/// Index order of top-k choices: larger value first, then the lower index (design 3.4). Both zeros are one value.
pub(crate) fn best_first(values: &[f32]) -> impl Fn(&u32, &u32) -> Ordering + Copy + '_ {
    let key = |i: &u32| values[*i as usize] + 0.0;
    move |a, b| key(b).total_cmp(&key(a)).then(a.cmp(b))
}

/// `x = f(x)` for every value, in the widest instruction set.
pub(crate) fn map_in_place(pool: &Pool, x: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    struct Map<'a, F>(&'a mut [f32], &'a F);
    impl<F: Fn(f32) -> f32> Kernel for Map<'_, F> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            for v in self.0 {
                *v = (self.1)(*v);
            }
        }
    }
    let bytes = ELEMENTWISE * size_of_val(x);
    pool.split(x, 1, bytes, |_, x| simd::run(Map(x, &f)));
}

/// `x = f(x, y)` for every pair, in the widest instruction set.
pub(crate) fn zip_in_place(pool: &Pool, x: &mut [f32], y: &[f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    struct Zip<'a, F>(&'a mut [f32], &'a [f32], &'a F);
    impl<F: Fn(f32, f32) -> f32> Kernel for Zip<'_, F> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            for (v, y) in self.0.iter_mut().zip(self.1) {
                *v = (self.2)(*v, *y);
            }
        }
    }
    let bytes = ELEMENTWISE * size_of_val(x);
    pool.split(x, 1, bytes, |first, x| simd::run(Zip(x, &y[first..], &f)));
}

/// What an exponential of a value costs, in values read: these loops have one.
const ELEMENTWISE: usize = 2;

/// RMS norm in place over groups of `group` channels, gain included (qwen4exp.md 2). `gain` covers one row or repeats
/// every `gain.len()` channels.
pub(crate) fn rms_norm(pool: &Pool, x: &mut [f32], gain: &[f32], group: usize, eps: f32) {
    let bytes = size_of_val(x);
    pool.split(x, gain.len(), bytes, |_, x| rms_norm_here(x, gain, group, eps));
}

/// [`rms_norm`] on the calling thread.
pub(crate) fn rms_norm_here(x: &mut [f32], gain: &[f32], group: usize, eps: f32) {
    struct Rms<'a>(&'a mut [f32], &'a [f32], usize, f32);
    impl Kernel for Rms<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            let Rms(x, gain, group, eps) = self;
            for row in x.chunks_exact_mut(gain.len()) {
                for (part, g) in row.chunks_exact_mut(group).zip(gain.chunks_exact(group)) {
                    let scale = 1.0 / (sum_squares(part) / group as f32 + eps).sqrt();
                    for (v, g) in part.iter_mut().zip(g) {
                        *v = *v * scale * g;
                    }
                }
            }
        }
    }
    simd::run(Rms(x, gain, group, eps));
}

/// `c[i] = sum_k a[i, k] * b[k]` for `a: [n, k]`, `b: [k, m]`, `c: [n, m]`: k ascending, fused, so a row of `c` has the
/// same bits whatever `n` is. Overwrites `c`.
#[inline(always)]
pub(crate) fn small_gemm(a: &[f32], k: usize, b: &[f32], m: usize, c: &mut [f32]) {
    const ROWS: usize = 4;
    if k == 0 {
        return c.fill(0.0);
    }
    let whole = a.len() / k / ROWS * ROWS;
    let (a_tiles, a_rest) = a.split_at(whole * k);
    let (c_tiles, c_rest) = c.split_at_mut(whole * m);
    for (a, c) in a_tiles.chunks_exact(ROWS * k).zip(c_tiles.chunks_exact_mut(ROWS * m)) {
        gemm_four_rows(a, k, b, m, c);
    }
    for (a, c) in a_rest.chunks_exact(k).zip(c_rest.chunks_exact_mut(m)) {
        gemm_row(a, b, m, c);
    }
}

/// One row of [`small_gemm`]: as many columns at once as make enough independent sums.
#[inline(always)]
fn gemm_row(a: &[f32], b: &[f32], m: usize, c: &mut [f32]) {
    const TILE: usize = 4 * LANES;
    let whole = m - m % TILE;
    for start in (0..whole).step_by(TILE) {
        let mut acc = [0.0f32; TILE];
        for (s, b) in a.iter().zip(b.chunks_exact(m)) {
            let b: &[f32; TILE] = b[start..].first_chunk().unwrap_or(&[0.0; TILE]);
            for j in 0..TILE {
                acc[j] = s.mul_add(b[j], acc[j]);
            }
        }
        c[start..start + TILE].copy_from_slice(&acc);
    }
    gemm_columns(a, b, m, whole, c);
}

/// Four rows of [`small_gemm`], `b` read once for all.
#[inline(always)]
fn gemm_four_rows(a: &[f32], k: usize, b: &[f32], m: usize, c: &mut [f32]) {
    let row = |i| &a[i * k..(i + 1) * k];
    let (a0, a1, a2, a3) = (row(0), row(1), row(2), row(3));
    let whole = m - m % LANES;
    for start in (0..whole).step_by(LANES) {
        // Four arrays and not one of four: that would live in memory.
        let mut acc = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for ((((b, a0), a1), a2), a3) in b.chunks_exact(m).zip(a0).zip(a1).zip(a2).zip(a3) {
            let b = lanes(b, start);
            axpy(&mut acc.0, *a0, b);
            axpy(&mut acc.1, *a1, b);
            axpy(&mut acc.2, *a2, b);
            axpy(&mut acc.3, *a3, b);
        }
        for (i, acc) in [acc.0, acc.1, acc.2, acc.3].iter().enumerate() {
            c[i * m + start..][..LANES].copy_from_slice(acc);
        }
    }
    for (i, c) in c.chunks_exact_mut(m).enumerate() {
        gemm_columns(row(i), b, m, whole, c);
    }
}

/// Columns `start..` of one row of [`small_gemm`].
#[inline(always)]
fn gemm_columns(a: &[f32], b: &[f32], m: usize, start: usize, c: &mut [f32]) {
    c[start..].fill(0.0);
    for (s, b) in a.iter().zip(b.chunks_exact(m)) {
        axpy(&mut c[start..], *s, &b[start..]);
    }
}

/// `acc += x * y` in each lane, fused.
#[inline(always)]
pub(crate) fn fold(acc: &mut [f32; LANES], x: &[f32; LANES], y: &[f32; LANES]) {
    for j in 0..LANES {
        acc[j] = x[j].mul_add(y[j], acc[j]);
    }
}

/// `values[at..at + LANES]`.
#[inline(always)]
pub(crate) fn lanes(values: &[f32], at: usize) -> &[f32; LANES] {
    values[at..].first_chunk().unwrap_or(&[0.0; LANES])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::isa::Isa;

    proptest! {
        #[test]
        fn exp_is_within_two_ulp_of_f64(x in -87.0f32..88.5) {
            let want = f64::from(x).exp();
            let got = f64::from(exp(x));
            prop_assert!((got - want).abs() <= want * 2.4e-7, "{x}: {got} against {want}");
        }

        #[test]
        fn every_instruction_set_gives_the_same_dot(x in proptest::collection::vec(-4.0f32..4.0, 0..300)) {
            struct Dot<'a>(&'a [f32]);
            impl Kernel for Dot<'_> {
                type Out = f32;
                #[inline(always)]
                fn run(self) -> f32 {
                    dot_inline(self.0, self.0)
                }
            }
            for isa in [Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.is_supported()) {
                prop_assert_eq!(simd::run_as(isa, Dot(&x)).to_bits(), Dot(&x).run().to_bits());
            }
        }

        #[test]
        fn a_row_of_small_gemm_does_not_depend_on_the_other_rows(
            a in proptest::collection::vec(-2.0f32..2.0, 5 * 7),
            b in proptest::collection::vec(-2.0f32..2.0, 7 * 45),
        ) {
            let mut all = vec![f32::NAN; 5 * 45];
            small_gemm(&a, 7, &b, 45, &mut all);
            for i in 0..5 {
                let mut one = vec![f32::NAN; 45];
                small_gemm(&a[i * 7..(i + 1) * 7], 7, &b, 45, &mut one);
                prop_assert_eq!(&one[..], &all[i * 45..(i + 1) * 45]);
            }
        }
    }

    #[test]
    fn top_k_order_takes_the_lower_index_among_both_zeros() {
        let values = [-0.0, 1.0, 0.0, -0.0];
        let mut order: Vec<u32> = (0..4).collect();
        order.sort_by(best_first(&values));
        assert_eq!(order, [1, 0, 2, 3]);
    }

    /// Pinned on x86-64, and checked there and on aarch64. The f64 functions of the C library come in through `softplus` alone.
    #[test]
    fn bits_are_the_same_on_every_architecture() {
        let pool = Pool::new(2).unwrap();
        let hash = |values: &[f32]| {
            values
                .iter()
                .fold(0xCBF2_9CE4_8422_2325_u64, |h, v| (h ^ u64::from(v.to_bits())).wrapping_mul(0x100_0000_01B3))
        };
        let x: Vec<f32> = (-4000..4000).map(|i| i as f32 * 0.019_53).collect();
        let of = |f: fn(f32) -> f32| hash(&x.iter().map(|v| f(*v)).collect::<Vec<_>>());
        let mut mapped = x.clone();
        map_in_place(&pool, &mut mapped, silu);
        let mut gated = x.clone();
        zip_in_place(&pool, &mut gated, &mapped, |v, m| v * sigmoid(m));
        let mut normed = x.clone();
        let gain: Vec<f32> = x[..250].iter().map(|v| v.mul_add(0.01, 1.0)).collect();
        rms_norm(&pool, &mut normed, &gain, 125, 1e-6);
        let folds: Vec<f32> = (1..=300).map(|n| dot_inline(&normed[..n], &x[n..])).collect();
        let mut product = vec![0.0; 10 * 45];
        small_gemm(&normed[..70], 7, &x[..7 * 45], 45, &mut product);
        let got = [of(exp), of(softplus), hash(&mapped), hash(&gated), hash(&normed), hash(&folds), hash(&product)];
        let want = [
            0xEA45_D175_9392_FA5F,
            0xDAF7_FD83_D9C8_EFEC,
            0x06C6_F5DD_349C_B978,
            0x347A_E60A_A8A3_14F6,
            0xCAB0_9D2D_9DD5_1C07,
            0x18EC_63AA_9B1C_7774,
            0x392C_4271_122F_75B1,
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn exp_saturates_outside_the_normal_range() {
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(200.0), f32::INFINITY);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
    }
}
