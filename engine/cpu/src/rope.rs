//! Rotary position embedding, rotate-half over the first channels (qwen4exp.md 2).

/// Inverse frequencies of one model. Angles are computed in f64: positions reach 262,144, where an f32 product is off by
/// more than a hundredth of a radian.
pub(crate) struct Rope {
    inv_freq: Vec<f64>,
}

impl Rope {
    pub(crate) fn new(rotary_dims: usize, theta: f32) -> Self {
        let theta = f64::from(theta);
        let inv_freq = (0..rotary_dims / 2).map(|i| theta.powf(-2.0 * i as f64 / rotary_dims as f64)).collect();
        Self { inv_freq }
    }

    /// Cosines then sines of one position.
    pub(crate) fn angles(&self, position: usize) -> Angles {
        let (cos, sin) = self
            .inv_freq
            .iter()
            .map(|f| {
                let (sin, cos) = (position as f64 * f).sin_cos();
                (cos as f32, sin as f32)
            })
            .unzip();
        Angles { cos, sin }
    }
}

/// One position's rotation.
pub(crate) struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// Rotates pairs `(i, i + half)` of one head in place; channels past the rotary ones pass through.
    pub(crate) fn rotate(&self, head: &mut [f32]) {
        let half = self.cos.len();
        let (low, rest) = head.split_at_mut(half);
        for (((a, b), c), s) in low.iter_mut().zip(rest).zip(&self.cos).zip(&self.sin) {
            let (x, y) = (*a, *b);
            *a = x * c - y * s;
            *b = y * c + x * s;
        }
    }
}
