//! Single formulas. f32 in and out, f64 inside.

use cudafast_model::{Matrix, MatrixRef};

/// `sum a[i] b[i]`.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32
}

/// `y = W x` on dequantised rows.
pub fn matvec(w: &Matrix, x: &[f32]) -> Vec<f32> {
    matvec_view(w.view(), x)
}

pub(super) fn matvec_view(w: MatrixRef<'_>, x: &[f32]) -> Vec<f32> {
    let mut row = vec![0.0; w.cols];
    (0..w.rows)
        .map(|r| {
            w.format.decode(w.row(r), &mut row);
            dot(&row, x)
        })
        .collect()
}

pub(super) fn embedding_row(w: &Matrix, row: usize) -> Vec<f32> {
    let mut out = vec![0.0; w.cols];
    w.format.decode(w.view().row(row), &mut out);
    out
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}

/// `x sigmoid(x)`.
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `ln(1 + e^x)`, linear above 20.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { f64::from(x).exp().ln_1p() as f32 }
}

/// qwen4exp.md 2, RMS norm over groups of `group` channels; the gain covers all of `x`.
pub fn rms(x: &[f32], gain: &[f32], group: usize, eps: f32) -> Vec<f32> {
    x.chunks_exact(group)
        .zip(gain.chunks_exact(group))
        .flat_map(|(x, gain)| {
            let mean = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>() / group as f64;
            let scale = 1.0 / (mean + f64::from(eps)).sqrt();
            x.iter().zip(gain).map(move |(v, g)| (f64::from(*v) * scale) as f32 * g)
        })
        .collect()
}

/// qwen4exp.md 2, L2 norm: the epsilon is on the sum.
pub fn l2_norm(x: &[f32]) -> Vec<f32> {
    let sum = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>();
    let scale = 1.0 / (sum + 1e-6).sqrt();
    x.iter().map(|v| (f64::from(*v) * scale) as f32).collect()
}

/// qwen4exp.md 2, RoPE on the first `rotary_dims` channels of one head.
pub fn rope(head: &[f32], position: usize, rotary_dims: usize, theta: f32) -> Vec<f32> {
    let half = rotary_dims / 2;
    let mut out = head.to_vec();
    for i in 0..half {
        let angle = position as f64 * f64::from(theta).powf(-2.0 * i as f64 / rotary_dims as f64);
        let (sin, cos) = angle.sin_cos();
        let (a, b) = (f64::from(head[i]), f64::from(head[i + half]));
        out[i] = (a * cos - b * sin) as f32;
        out[i + half] = (b * cos + a * sin) as f32;
    }
    out
}

/// Mean over the residual streams.
pub fn mean_of_streams(x: &[f32], hidden: usize) -> Vec<f32> {
    let streams = x.len() / hidden;
    (0..hidden)
        .map(|i| ((0..streams).map(|s| f64::from(x[s * hidden + i])).sum::<f64>() / streams as f64) as f32)
        .collect()
}

/// One channel of a causal convolution over `window` (oldest row first, the current row last): tap `j` reads the row
/// `(taps - 1 - j) * dilation` before the current one.
pub fn conv_tap_sum(taps: &[f32], channel: usize, kernel: usize, window: &[Vec<f32>], dilation: usize) -> f32 {
    let last = window.len() - 1;
    (0..kernel)
        .map(|j| f64::from(taps[channel * kernel + j]) * f64::from(window[last - (kernel - 1 - j) * dilation][channel]))
        .sum::<f64>() as f32
}

/// qwen4exp.md 4, one head and one token: updates `S: [key][value]` and returns `S^T q`.
pub fn delta_rule(s: &mut [f32], q: &[f32], k: &[f32], v: &[f32], g: f32, beta: f32) -> Vec<f32> {
    let dim = v.len();
    let decay = f64::from(g).exp() as f32;
    for value in s.iter_mut() {
        *value *= decay;
    }
    let read = |s: &[f32], by: &[f32], c: usize| -> f64 {
        by.iter().enumerate().map(|(i, b)| f64::from(*b) * f64::from(s[i * dim + c])).sum()
    };
    let delta: Vec<f32> = (0..dim).map(|c| (f64::from(beta) * (f64::from(v[c]) - read(s, k, c))) as f32).collect();
    for (i, k) in k.iter().enumerate() {
        for (c, d) in delta.iter().enumerate() {
            s[i * dim + c] += k * d;
        }
    }
    (0..dim).map(|c| read(s, q, c) as f32).collect()
}

/// Mean of the raw index keys of one QSA block (qwen4exp.md 5).
pub fn pool_key(raw: &[Vec<f32>]) -> Vec<f32> {
    let n = raw.len() as f64;
    (0..raw[0].len()).map(|c| (raw.iter().map(|r| f64::from(r[c])).sum::<f64>() / n) as f32).collect()
}

/// The best `budget` blocks, ascending: higher score first, ties to the lower block (qwen4exp.md 5).
pub fn select_blocks(queries: &[Vec<f32>], keys: &[Vec<f32>], budget: usize) -> Vec<usize> {
    let scores: Vec<f32> = keys.iter().map(|key| queries.iter().map(|q| dot(q, key).max(0.0)).sum()).collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|a, b| (scores[*b] + 0.0).total_cmp(&(scores[*a] + 0.0)).then(a.cmp(b)));
    order.truncate(budget);
    order.sort_unstable();
    order
}

/// Softmax with the maximum subtracted.
pub fn softmax(x: &[f32]) -> Vec<f32> {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let e: Vec<f64> = x.iter().map(|v| f64::from(v - max).exp()).collect();
    let total: f64 = e.iter().sum();
    e.iter().map(|v| (v / total) as f32).collect()
}

/// qwen4exp.md 7: the `used` best experts with renormalised weights, ties to the lower index.
pub fn route(logits: &[f32], used: usize) -> Vec<(u32, f32)> {
    let p = softmax(logits);
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|a, b| (logits[*b as usize] + 0.0).total_cmp(&(logits[*a as usize] + 0.0)).then(a.cmp(b)));
    order.truncate(used);
    let total: f32 = order.iter().map(|e| p[*e as usize]).sum();
    order.iter().map(|e| (*e, p[*e as usize] / total)).collect()
}
