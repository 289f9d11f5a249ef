//! What repeated measurements came to.

use serde::Serialize;

/// The median, and the largest distance of any measurement from it: every one lies within `median +- spread`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) spread: f64,
}

impl Spread {
    /// Of an even number of values the median is the mean of the middle two. Zero of none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let Some(upper) = sorted.get(n / 2) else { return Self::default() };
        let lower = sorted.get((n - 1) / 2).unwrap_or(upper);
        let median = (lower + upper) / 2.0;
        let spread = sorted.iter().map(|value| (value - median).abs()).fold(0.0, f64::max);
        Self { median, spread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_lies_within_the_spread_of_the_median() {
        assert_eq!(Spread::of([3.0, 9.0, 1.0]), Spread { median: 3.0, spread: 6.0 });
        assert_eq!(Spread::of([1.0, 2.0, 4.0, 8.0]), Spread { median: 3.0, spread: 5.0 });
        assert_eq!(Spread::of([5.0]), Spread { median: 5.0, spread: 0.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }
}
