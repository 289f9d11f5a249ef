//! What the encoders ask about a block of values (quant-formats.md 3).

/// `max |x|`.
pub(crate) fn largest_magnitude(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max, v| max.max(v.abs()))
}

/// The value, with its sign, of the largest magnitude; the first on a tie.
pub(crate) fn of_largest_magnitude(x: &[f32]) -> f32 {
    x.iter().fold(0.0_f32, |best, &v| if v.abs() > best.abs() { v } else { best })
}

/// Smallest and largest value.
pub(crate) fn min_and_max(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &v| (min.min(v), max.max(v)))
}

/// `1 / d`, or 0 for a block without a scale.
pub(crate) fn reciprocal(d: f32) -> f32 {
    if d != 0.0 { 1.0 / d } else { 0.0 }
}
