//! Statistics of samples. Every function is `None` for an empty sample and for one with a value that is not finite: a
//! figure of no measurement is no figure.

/// The values in ascending order.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Sum over count. The sum is taken in ascending order, so that it does not depend on the order of the values.
pub fn mean(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    finite(sorted.iter().sum::<f64>() / sorted.len() as f64)
}

/// The middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    // Halves first: the sum of two large values could overflow. Equal values stay exact.
    Some(if low == high { low } else { low / 2.0 + high / 2.0 })
}

/// Where the lower median stands: the index of the order statistic `(n - 1) / 2`. Of equal values the first measured
/// comes first (benchd.md 9.4).
pub fn lower_median_index(values: &[f64]) -> Option<usize> {
    sorted(values)?;
    let mut order: Vec<usize> = (0..values.len()).collect();
    // A stable sort keeps the order of measurement among equals; -0 and 0 are equal here.
    order.sort_by(|&a, &b| values[a].partial_cmp(&values[b]).unwrap_or(std::cmp::Ordering::Equal));
    order.get((values.len() - 1) / 2).copied()
}

/// The value at [`lower_median_index`].
pub fn lower_median(values: &[f64]) -> Option<f64> {
    lower_median_index(values).map(|index| values[index])
}

/// The coefficient of variation with the sample's deviation, `n - 1` (benchd.md 8). `None` below two values and for a mean
/// that is not above 0.
pub fn sample_cv(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|&mean| mean > 0.0)?;
    if values.len() < 2 {
        return None;
    }
    // Relative to the mean before squaring, so that small seconds do not underflow.
    let squares: Vec<f64> = values.iter().map(|value| (value / mean - 1.0).powi(2)).collect();
    let sum = self::mean(&squares)? * squares.len() as f64;
    finite((sum / (values.len() - 1) as f64).sqrt())
}

/// The nearest-rank percentile: the least value that at least `percent` per cent of the sample do not exceed. Always a
/// value of the sample. `percent` is `0..=100`.
pub fn percentile(values: &[f64], percent: u32) -> Option<f64> {
    let sorted = sorted(values)?;
    let rank = (sorted.len() as u128 * u128::from(percent)).div_ceil(100).max(1);
    sorted.get(usize::try_from(rank).ok()? - 1).copied()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn worked_examples() {
        let four = [4.0, 1.0, 3.0, 2.0];
        assert_eq!((mean(&four), median(&four), lower_median(&four)), (Some(2.5), Some(2.5), Some(2.0)));
        assert_eq!(lower_median_index(&four), Some(3));
        assert_eq!(lower_median_index(&[2.0, 1.0, 2.0, 2.0]), Some(0));
        assert_eq!(median(&[3.0, 9.0, 1.0]), Some(3.0));
        // Deviations -1, 0, 1 of a mean of 10: variance 2 / 2.
        assert!((sample_cv(&[9.0, 10.0, 11.0]).unwrap() - 0.1).abs() < 1e-15);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0, 1, 50, 99, 100].map(|p| percentile(&hundred, p).unwrap()), [1.0, 1.0, 50.0, 99.0, 100.0]);
        assert_eq!(percentile(&four, 101), None);
    }

    #[test]
    fn no_sample_and_no_number_give_no_figure() {
        for bad in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY], &[f64::NEG_INFINITY, 1.0]] {
            assert_eq!([mean(bad), median(bad), lower_median(bad), sample_cv(bad), percentile(bad, 50)], [None; 5]);
        }
        assert_eq!(sample_cv(&[1.0]), None);
        assert_eq!(sample_cv(&[0.0, 0.0]), None);
        assert_eq!(mean(&[f64::MAX, f64::MAX]), None);
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        vec(prop_oneof![1e-6_f64..10.0, Just(0.5), Just(1.0)], 1..20)
    }

    proptest! {
        #[test]
        fn order_of_the_sample_changes_no_figure((values, shuffled) in samples().prop_flat_map(|values| {
            (Just(values.clone()), Just(values).prop_shuffle())
        })) {
            prop_assert_eq!(mean(&values), mean(&shuffled));
            prop_assert_eq!(median(&values), median(&shuffled));
            prop_assert_eq!(lower_median(&values), lower_median(&shuffled));
            prop_assert_eq!(sample_cv(&values), sample_cv(&shuffled));
            prop_assert_eq!(percentile(&values, 90), percentile(&shuffled, 90));
        }

        #[test]
        fn figures_lie_inside_the_sample_and_the_lower_median_in_it(values in samples(), percent in 0_u32..=100) {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let slack = 1e-12 * high;
            for figure in [mean(&values), median(&values)] {
                prop_assert!((low - slack..=high + slack).contains(&figure.unwrap()));
            }
            prop_assert!(values.contains(&lower_median(&values).unwrap()));
            prop_assert!(values.contains(&percentile(&values, percent).unwrap()));
            prop_assert!(lower_median(&values) <= median(&values));
            let below = values.iter().filter(|&&value| value <= percentile(&values, percent).unwrap()).count();
            prop_assert!(below * 100 >= percent as usize * values.len());
        }

        #[test]
        fn variation_does_not_depend_on_the_unit(values in vec(1e-6_f64..10.0, 2..20), exponent in -30_i32..30) {
            // Powers of two scale exactly.
            let scaled: Vec<f64> = values.iter().map(|value| value * 2_f64.powi(exponent)).collect();
            prop_assert_eq!(sample_cv(&values), sample_cv(&scaled));
            prop_assert_eq!(sample_cv(&[values[0], values[0]]), Some(0.0));
        }
    }
}
