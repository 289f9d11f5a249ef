//! The rotated basis of some routed experts: signs, a Hadamard transform per segment, a scale (lowbitflash-rotation.md).
//!
//! Which tensors carry one, and the rules across tensors, belong to the model; this is the operation.

use sha2::{Digest, Sha256};

use crate::{ActRows, Error};

/// `R = blockdiag(H_b * D_b)` for one tensor's input: checked once, so applying it can only fail on the width.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    tensor: String,
    segments: Vec<usize>,
    /// +1.0 or -1.0 an input element: a product with it is exact.
    signs: Vec<f32>,
}

impl Rotation {
    /// Segments a tensor can have, at most.
    pub const MAX_SEGMENTS: usize = 8;

    /// The rotation of `tensor` (for messages) from the arrays in its file (rules 5, 6 and 12 of lowbitflash-rotation.md 3).
    pub fn new(tensor: &str, segments: &[i32], signs: &[i32]) -> Result<Self, Error> {
        let tensor = tensor.to_owned();
        let sizes: Vec<usize> = segments.iter().filter_map(|&n| segment(n)).collect();
        if sizes.len() != segments.len() || sizes.is_empty() || sizes.len() > Self::MAX_SEGMENTS {
            let found = segments.iter().copied().take(Self::MAX_SEGMENTS + 1).collect();
            return Err(Error::RotationSegments { tensor, found });
        }
        let wanted = sizes.iter().sum();
        if signs.len() != wanted {
            return Err(Error::RotationSignCount { tensor, found: signs.len(), wanted });
        }
        if let Some((index, &found)) = signs.iter().enumerate().find(|(_, s)| !matches!(s, 1 | -1)) {
            return Err(Error::RotationSign { tensor, index, found });
        }
        Ok(Self { tensor, segments: sizes, signs: signs.iter().map(|&s| s as f32).collect() })
    }

    /// Elements a row: the sum of the segments, a multiple of 128.
    pub fn width(&self) -> usize {
        self.signs.len()
    }

    /// Segment sizes in order.
    pub fn segments(&self) -> &[usize] {
        &self.segments
    }

    /// One sign an input element, +1.0 or -1.0.
    pub fn signs(&self) -> &[f32] {
        &self.signs
    }

    /// Whether two tensors can share one rotated input (rule 8 of lowbitflash-rotation.md 3).
    pub fn is_same_turn(&self, other: &Self) -> bool {
        self.segments == other.segments && self.signs == other.signs
    }

    /// Rotates whole rows in place. Bits are part of the contract: sign, stages 1, 2, 4, .., one product with the
    /// reciprocal root, all f32 without FMA (lowbitflash-rotation.md 5). Rows of another width are refused, `x` unchanged.
    pub fn apply(&self, x: &mut [f32]) -> Result<(), Error> {
        if !x.len().is_multiple_of(self.width()) {
            return Err(Error::RotationWidth { tensor: self.tensor.clone(), values: x.len(), width: self.width() });
        }
        for row in x.chunks_exact_mut(self.width()) {
            let (mut row, mut signs) = (row, &self.signs[..]);
            for &size in &self.segments {
                let (segment, row_rest) = row.split_at_mut(size);
                let (segment_signs, signs_rest) = signs.split_at(size);
                rotate_segment(segment, segment_signs);
                (row, signs) = (row_rest, signs_rest);
            }
        }
        Ok(())
    }

    /// Rotates the rows of `x` and quantises them; `rotated` holds the rotated rows afterwards. The codes are of the rotated
    /// basis: only the tensor's own weights may meet them, and codes of the plain input never may.
    pub fn quantise_into(&self, x: &[f32], rotated: &mut Vec<f32>, out: &mut ActRows) -> Result<(), Error> {
        rotated.clear();
        rotated.extend_from_slice(x);
        self.apply(rotated)?;
        out.quantise_into(rotated, self.width())
    }
}

fn segment(size: i32) -> Option<usize> {
    usize::try_from(size).ok().filter(|n| n.is_power_of_two() && (128..=1024).contains(n))
}

fn rotate_segment(x: &mut [f32], signs: &[f32]) {
    // Stages 1, 2 and 4 stay inside eight elements, that is inside registers; a size is at least 128.
    for (x, signs) in x.as_chunks_mut::<8>().0.iter_mut().zip(signs.as_chunks::<8>().0) {
        let t: [f32; 8] = std::array::from_fn(|k| x[k] * signs[k]);
        *x = stage(stage(stage(t, 1), 2), 4);
    }
    let mut h = 8;
    while h < x.len() {
        for pairs in x.chunks_exact_mut(2 * h) {
            let (low, high) = pairs.split_at_mut(h);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        h *= 2;
    }
    let scale = 1.0 / (x.len() as f32).sqrt();
    for x in x {
        *x *= scale;
    }
}

/// One butterfly stage over eight elements.
#[inline(always)]
fn stage(t: [f32; 8], h: usize) -> [f32; 8] {
    std::array::from_fn(|i| if i & h == 0 { t[i] + t[i + h] } else { t[i - h] - t[i] })
}

/// The converter's cut of a width: the largest power of two that fits, at most 1024, again and again. A width that is not
/// a multiple of 128 leaves segments that [`Rotation::new`] refuses.
pub fn converter_segments(width: usize) -> Vec<i32> {
    let mut left = width;
    let mut segments = Vec::new();
    while left > 0 {
        let size = left.min(1024);
        let size = 1 << size.ilog2();
        segments.push(size as i32);
        left -= size;
    }
    segments
}

/// Signs as the converter's fixture generator draws them (lowbitflash-rotation.md 2): for synthetic models only. A file
/// carries its own, drawn from a name that it does not hold.
///
/// Segment k of size n, elements 256j..: the bits, most significant first, of SHA-256 over `"{seed}:{name}:{k}:{n}:{j}"`
/// with seed 11545118; a set bit is +1. A size that is not positive gives no signs.
pub fn converter_signs(name: &str, segments: &[i32]) -> Vec<i32> {
    const SEED: u32 = 0xB0_2A1E;
    let mut signs = Vec::new();
    for (k, &n) in segments.iter().enumerate() {
        let size = usize::try_from(n).unwrap_or(0);
        let end = signs.len() + size;
        for j in 0..size.div_ceil(256) {
            let digest = Sha256::digest(format!("{SEED}:{name}:{k}:{n}:{j}"));
            let bits = digest.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
            signs.extend(bits.take(end - signs.len()).map(|bit| 2 * i32::from(bit) - 1));
        }
    }
    signs
}
