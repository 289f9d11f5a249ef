//! Activations as int8 in groups of 32 (quant-formats.md 4a).

use crate::Error;

/// Elements that share one activation scale, and the k of one integer dot.
pub const GROUP: usize = 32;

/// Quantised activation rows: `q: i8[rows, cols]`, `d: f32[rows, groups]`, `sum: i32[rows, groups]`, all row-major.
///
/// Buffers are reused by [`quantise_into`](Self::quantise_into): no allocation once the largest call was seen.
#[derive(Clone, Debug, Default)]
pub struct ActRows {
    q: Vec<i8>,
    d: Vec<f32>,
    sum: Vec<i32>,
    rows: usize,
    cols: usize,
}

/// One row of [`ActRows`].
#[derive(Clone, Copy, Debug)]
pub struct ActRow<'a> {
    /// Codes, -127..=127.
    pub q: &'a [i8],
    /// One scale a group of 32.
    pub d: &'a [f32],
    /// Exact sum of the codes of each group.
    pub sum: &'a [i32],
}

impl ActRows {
    /// No rows; a target for [`quantise_into`](Self::quantise_into).
    pub fn new() -> Self {
        Self::default()
    }

    /// `x: f32[rows, cols]`, quantised.
    pub fn quantise(x: &[f32], cols: usize) -> Result<Self, Error> {
        let mut rows = Self::new();
        rows.quantise_into(x, cols)?;
        Ok(rows)
    }

    /// As [`quantise`](Self::quantise), into these buffers. `cols` must be a multiple of 32 and divide `x`; on an error
    /// nothing changes.
    ///
    /// Per group: `d = max|x| / 127`, `id = 1 / d` (0 when d is 0), `q = x * id` rounded to nearest, ties to even, and
    /// saturated (NaN gives 0). A NaN or an infinity in a group makes its `d` so too: it shows, it is not repaired.
    pub fn quantise_into(&mut self, x: &[f32], cols: usize) -> Result<(), Error> {
        self.reshape(x.len(), cols)?;
        for (mut row, x) in self.rows_mut().zip(x.chunks_exact(cols)) {
            row.quantise(x);
        }
        Ok(())
    }

    /// `rows` rows of zeros, to be filled through [`rows_mut`](Self::rows_mut), from several threads if wanted.
    pub fn zeroed(rows: usize, cols: usize) -> Result<Self, Error> {
        let mut acts = Self::new();
        acts.reshape(rows * cols, cols)?;
        Ok(acts)
    }

    fn reshape(&mut self, values: usize, cols: usize) -> Result<(), Error> {
        if cols == 0 || !cols.is_multiple_of(GROUP) {
            return Err(Error::ActCols { cols });
        }
        if !values.is_multiple_of(cols) {
            return Err(Error::PartialRows { values, cols });
        }
        (self.rows, self.cols) = (values / cols, cols);
        self.q.resize(values, 0);
        self.d.resize(values / GROUP, 0.0);
        self.sum.resize(values / GROUP, 0);
        Ok(())
    }

    /// Every row, to be written.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = ActRowMut<'_>> {
        let groups = (self.cols / GROUP).max(1);
        let scales = self.d.chunks_exact_mut(groups).zip(self.sum.chunks_exact_mut(groups));
        self.q.chunks_exact_mut(self.cols.max(1)).zip(scales).map(|(q, (d, sum))| ActRowMut { q, d, sum })
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `i`.
    ///
    /// # Panics
    /// When `i` is not below [`rows`](Self::rows).
    #[inline(always)]
    pub fn row(&self, i: usize) -> ActRow<'_> {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        let groups = self.cols / GROUP;
        ActRow {
            q: &self.q[i * self.cols..][..self.cols],
            d: &self.d[i * groups..][..groups],
            sum: &self.sum[i * groups..][..groups],
        }
    }
}

/// One row of [`ActRows`], to be written.
#[derive(Debug)]
pub struct ActRowMut<'a> {
    q: &'a mut [i8],
    d: &'a mut [f32],
    sum: &'a mut [i32],
}

impl ActRowMut<'_> {
    /// As [`ActRows::quantise_into`], one row. Inlined, so that it is compiled for the caller's instruction set.
    ///
    /// # Panics
    /// When `x` is not as long as the row.
    #[inline(always)]
    pub fn quantise(&mut self, x: &[f32]) {
        assert_eq!(x.len(), self.q.len(), "values of an activation row");
        let groups = x.as_chunks::<GROUP>().0.iter().zip(self.q.as_chunks_mut::<GROUP>().0);
        for ((x, q), (d, sum)) in groups.zip(self.d.iter_mut().zip(self.sum.iter_mut())) {
            (*d, *sum) = quantise_group(x, q);
        }
    }
}

/// Returns `(d, sum(q))`.
#[inline(always)]
fn quantise_group(x: &[f32; GROUP], q: &mut [i8; GROUP]) -> (f32, i32) {
    // Magnitudes order as their bits do, NaN above all; an integer maximum vectorises where an f32 one may not.
    let mut max = 0_i32;
    for v in x {
        max = max.max(v.abs().to_bits().cast_signed());
    }
    let d = f32::from_bits(max.cast_unsigned()) / 127.0;
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    if !(d.is_finite() && id.is_finite()) {
        return quantise_extreme_group(x, q, d, id);
    }
    // Adding 1.5 * 2^23 leaves the integer nearest to v, ties to even, in the low bits; |v| is at most 127 and a rounding.
    const MAGIC: f32 = 12_582_912.0;
    let mut sum = 0_i32;
    for (q, v) in q.iter_mut().zip(x) {
        let code = (v * id + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed();
        *q = code as i8;
        sum = sum.wrapping_add(code);
    }
    (d, sum)
}

/// A group with a value that is not finite, or so small (`d` below 2^-128) that `id` is infinite: products may be
/// infinite or NaN, which the casts saturate or make 0.
#[cold]
fn quantise_extreme_group(x: &[f32; GROUP], q: &mut [i8; GROUP], d: f32, id: f32) -> (f32, i32) {
    for (q, v) in q.iter_mut().zip(x) {
        // Never -128: kernels that move a sign from one factor to the other rely on it. NaN gives 0.
        *q = (v * id).round_ties_even().clamp(-127.0, 127.0) as i8;
    }
    (d, q.iter().map(|&q| i32::from(q)).sum())
}
