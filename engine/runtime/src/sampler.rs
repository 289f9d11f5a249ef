//! Choosing a token from a row of logits.

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: f32,
    /// 0 = off.
    pub top_k: usize,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub min_p: f32,
    /// Position-keyed: the token at position `p` is a function of its logits, the seed and `p` alone.
    pub seed: u64,
}
