//! Matrix times rows of activations.
//!
//! Quantised weights meet int8 activations in groups of 32 (design 3.1); plain weights (F32, F16, BF16), and every weight
//! under the f32 switch, meet f32 activations. Each output is one dot product with one fold order, so a row's result does
//! not depend on how many rows run together, and prefill and decode agree bit for bit.

use std::cell::RefCell;

use cudafast_model::MatrixRef;
use cudafast_quant::{ActRows, Kind, UnpackedRow};

use crate::Precision;
use crate::dot;
use crate::math::dot_inline;
use crate::pool::Pool;
use crate::simd::{self, Kernel};

/// Rows of activations, quantised once for every matrix that reads them.
pub(crate) struct Operand<'a> {
    x: &'a [f32],
    cols: usize,
    int8: Option<ActRows>,
}

impl<'a> Operand<'a> {
    /// `x: [rows][cols]`. Rows that no quantised format can have (not a whole number of groups) stay f32.
    pub(crate) fn new(x: &'a [f32], cols: usize, precision: Precision) -> Self {
        let int8 = match precision {
            Precision::Int8 => ActRows::quantise(x, cols).ok(),
            Precision::F32 => None,
        };
        Self { x, cols, int8 }
    }

    pub(crate) fn rows(&self) -> usize {
        self.x.len() / self.cols
    }

    pub(crate) fn row(&self, i: usize) -> &'a [f32] {
        &self.x[i * self.cols..(i + 1) * self.cols]
    }
}

/// Which rows of an operand take part: an expert sees only the rows routed to it.
#[derive(Clone, Copy)]
pub(crate) enum Pick<'a> {
    All(usize),
    Some(&'a [u32]),
}

impl Pick<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Pick::All(n) => *n,
            Pick::Some(rows) => rows.len(),
        }
    }
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> usize {
        match self {
            Pick::All(_) => i,
            Pick::Some(rows) => rows[i] as usize,
        }
    }
}

/// `y[t][r] = sum_c w[r][c] * x[t][c]`: `y: [rows of x][w.rows]`.
pub(crate) fn matmul(pool: &Pool, w: MatrixRef<'_>, x: &Operand<'_>, y: &mut [f32]) {
    let rows = x.rows();
    if rows == 1 {
        pool.split(y, 1, w.bytes.len(), |first, piece| rows_into(w, first, x, Pick::All(1), piece));
        return;
    }
    let mut by_output = vec![0.0f32; y.len()];
    pool.split(&mut by_output, rows, w.bytes.len() * rows, |first, piece| {
        rows_into(w, first, x, Pick::All(rows), piece);
    });
    transpose(&by_output, rows, y);
}

/// `[n][rows] -> [rows][n]`, a cache line of outputs at a time.
fn transpose(by_output: &[f32], rows: usize, y: &mut [f32]) {
    const LINE: usize = 16;
    let n = by_output.len() / rows.max(1);
    for (i, lines) in by_output.chunks(LINE * rows).enumerate() {
        let width = lines.len() / rows;
        for t in 0..rows {
            let line = &mut y[t * n + i * LINE..][..width];
            for (v, values) in line.iter_mut().zip(lines.chunks_exact(rows)) {
                *v = values[t];
            }
        }
    }
}

/// Outputs `first..` of the picked rows, by output: `out: [outputs][picked]`.
pub(crate) fn rows_into(w: MatrixRef<'_>, first: usize, x: &Operand<'_>, pick: Pick<'_>, out: &mut [f32]) {
    thread_local! {
        static SCRATCH: RefCell<(UnpackedRow, Vec<f32>)> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|(unpacked, plain)| match (w.format.kind, &x.int8) {
        (Kind::Block { .. }, Some(int8)) => dot::rows(w, first, int8, pick, out, unpacked),
        _ => {
            plain.resize(w.cols, 0.0);
            for (i, values) in out.chunks_exact_mut(pick.len()).enumerate() {
                w.format.decode(w.row(first + i), plain);
                simd::run(PlainRow { w: plain, x, pick, values });
            }
        }
    });
}

struct PlainRow<'a, 'b> {
    w: &'a [f32],
    x: &'a Operand<'b>,
    pick: Pick<'a>,
    values: &'a mut [f32],
}

impl Kernel for PlainRow<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (t, value) in self.values.iter_mut().enumerate() {
            *value = dot_inline(self.w, self.x.row(self.pick.get(t)));
        }
    }
}
