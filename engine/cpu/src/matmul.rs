//! Matrices times rows of activations.
//!
//! Quantised weights meet int8 activations in groups of 32 (design 3.1); plain weights (F32, F16, BF16), and every weight
//! under the f32 switch, meet f32 activations. A phase uses one fold order for a matrix, whatever the number of rows, so a
//! row's result does not depend on how many rows run together.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use cudafast_model::MatrixRef;
use cudafast_quant::{ActRows, Kind};

use crate::Precision;
use crate::dot::{self, Product, Scratch, panel};
use crate::isa::Isa;
use crate::math::{LANES, dot_inline, fold, lanes, tree};
use crate::model::Phase;
use crate::pool::Pool;
use crate::simd::{self, Kernel};

/// Rows of activations, quantised once for every matrix that reads them.
pub(crate) struct Operand<'a> {
    x: &'a [f32],
    cols: usize,
    int8: Option<ActRows>,
    phase: Phase,
}

impl<'a> Operand<'a> {
    /// `x: [rows][cols]`. Rows that no quantised format can have (not a whole number of groups) stay f32.
    pub(crate) fn new(pool: &Pool, x: &'a [f32], cols: usize, precision: Precision, phase: Phase) -> Self {
        let int8 = match precision {
            Precision::Int8 => quantise(pool, x, cols),
            Precision::F32 => None,
        };
        Self { x, cols, int8, phase }
    }

    pub(crate) fn rows(&self) -> usize {
        self.x.len() / self.cols
    }

    pub(crate) fn row(&self, i: usize) -> &'a [f32] {
        &self.x[i * self.cols..(i + 1) * self.cols]
    }
}

fn quantise(pool: &Pool, x: &[f32], cols: usize) -> Option<ActRows> {
    struct Quantise<'a, 'b>(&'a [f32], &'a mut cudafast_quant::ActRowMut<'b>);
    impl Kernel for Quantise<'_, '_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            self.1.quantise(self.0);
        }
    }
    let mut acts = ActRows::zeroed(x.len() / cols.max(1), cols).ok()?;
    let mut rows: Vec<_> = acts.rows_mut().collect();
    pool.split(&mut rows, 1, size_of_val(x), |first, rows| {
        for (row, x) in rows.iter_mut().zip(x[first * cols..].chunks_exact(cols)) {
            simd::run(Quantise(x, row));
        }
    });
    drop(rows);
    Some(acts)
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

/// Where results go: output `r` of the `t`-th row to `y[rows.get(t) * stride + r - first]`. Tasks share one and write different
/// outputs.
#[derive(Clone, Copy)]
pub(crate) struct Sink<'a> {
    y: *mut f32,
    len: usize,
    stride: usize,
    /// The output that goes to the start of a row.
    first: usize,
    rows: Pick<'a>,
    of: PhantomData<&'a mut [f32]>,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(y: &'a mut [f32], stride: usize, rows: Pick<'a>) -> Self {
        Self { y: y.as_mut_ptr(), len: y.len(), stride, first: 0, rows, of: PhantomData }
    }

    /// The same rows, beginning with output `first`.
    pub(crate) fn starting_at(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// Outputs `r..` of the `t`-th row.
    ///
    /// # Safety
    /// No two threads put the same output at the same time: each output belongs to one task.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, t: usize, r: usize, values: &[f32]) {
        let at = self.rows.get(t) * self.stride + (r - self.first);
        assert!(at <= self.len && values.len() <= self.len - at, "output {r} of row {t} is outside the result");
        // SAFETY: in bounds of the slice that is borrowed for `'a`, so nothing reads it before the sink is gone; no other
        // thread writes there, by the caller's contract.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.y.wrapping_add(at), values.len()) }
    }
}

// SAFETY: threads that share one may only put different outputs, see `put`.
unsafe impl Sync for Sink<'_> {}
// SAFETY: as above.
unsafe impl Send for Sink<'_> {}

/// `y[t][r] = sum_c w[r][c] * x[t][c]`: `y: [rows of x][w.rows]`.
pub(crate) fn matmul(pool: &Pool, w: MatrixRef<'_>, x: &Operand<'_>, y: &mut [f32]) {
    matmuls(pool, x, &mut [(w, y)]);
}

/// [`matmul`] of several matrices with one operand, in one operation of the pool.
pub(crate) fn matmuls(pool: &Pool, x: &Operand<'_>, products: &mut [(MatrixRef<'_>, &mut [f32])]) {
    let rows = x.rows();
    let mut units = 0;
    let parts: Vec<(MatrixRef<'_>, Sink<'_>, usize)> = products
        .iter_mut()
        .map(|(w, y)| {
            units += w.rows.div_ceil(panel::LANES);
            (*w, Sink::new(y, w.rows, Pick::All(rows)), units)
        })
        .collect();
    let bytes = parts.iter().map(|(w, ..)| w.bytes.len()).sum::<usize>() * rows;
    let tasks = pool.tasks(units, bytes);
    pool.run(tasks, |task| {
        // A run of units, which may end in another matrix than it begins.
        let mut range = units * task / tasks..units * (task + 1) / tasks;
        let mut start = 0;
        for (w, sink, end) in &parts {
            let stop = range.end.min(*end);
            if range.start < stop {
                let outputs = (range.start - start) * panel::LANES..((stop - start) * panel::LANES).min(w.rows);
                outputs_into(*w, outputs, x, Pick::All(rows), *sink);
                range.start = stop;
            }
            start = *end;
        }
    });
}

/// A projection of every row of `x`: `[rows][w.rows]`.
pub(crate) fn project(pool: &Pool, w: MatrixRef<'_>, x: &Operand<'_>) -> Vec<f32> {
    let mut y = vec![0.0; x.rows() * w.rows];
    matmul(pool, w, x, &mut y);
    y
}

/// Several projections of the same rows, in one operation.
pub(crate) fn project_all<const N: usize>(pool: &Pool, w: [MatrixRef<'_>; N], x: &Operand<'_>) -> [Vec<f32>; N] {
    let mut all = w.map(|w| vec![0.0; x.rows() * w.rows]);
    let mut products: Vec<_> = w.into_iter().zip(all.iter_mut().map(|y| &mut y[..])).collect();
    matmuls(pool, x, &mut products);
    all
}

/// Outputs `outputs` of the picked rows.
pub(crate) fn outputs_into(w: MatrixRef<'_>, outputs: Range<usize>, x: &Operand<'_>, pick: Pick<'_>, sink: Sink<'_>) {
    thread_local! {
        static SCRATCH: RefCell<(Scratch, Vec<f32>)> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|(scratch, plain)| match (w.format.kind, &x.int8) {
        (Kind::Block { .. }, Some(int8)) => {
            let product = Product { w, x: int8, pick, sink };
            match x.phase {
                Phase::Decode => dot::rows(Isa::current(), product, outputs, scratch),
                Phase::Prefill => panel::rows(Isa::current(), product, outputs, scratch),
            }
        }
        _ => {
            plain.resize(w.cols, 0.0);
            for r in outputs {
                simd::run(Widen { w, r, plain });
                simd::run(PlainRow { w: plain, x, pick, r, sink });
            }
        }
    });
}

/// A weight row as f32: `Format::decode`, compiled for this machine where a plain row is wide.
struct Widen<'a> {
    w: MatrixRef<'a>,
    r: usize,
    plain: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let row = self.w.row(self.r);
        match self.w.format.name {
            "BF16" => {
                for (v, bits) in self.plain.iter_mut().zip(row.as_chunks::<2>().0) {
                    *v = cudafast_quant::bf16_to_f32(u16::from_le_bytes(*bits));
                }
            }
            _ => self.w.format.decode(row, self.plain),
        }
    }
}

/// One f32 weight row and the picked rows; each value in the order of [`dot_inline`].
struct PlainRow<'a, 'b> {
    w: &'a [f32],
    x: &'a Operand<'b>,
    pick: Pick<'a>,
    r: usize,
    sink: Sink<'a>,
}

impl PlainRow<'_, '_> {
    /// Rows `t..t + 4`, the weights read once for all.
    #[inline(always)]
    fn four(&self, t: usize) {
        let cols = self.w.len();
        let row = |i| &self.x.row(self.pick.get(t + i))[..cols];
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        let mut acc = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let whole = cols - cols % LANES;
        let mut at = 0;
        while at < whole {
            let w = lanes(self.w, at);
            fold(&mut acc.0, w, lanes(a, at));
            fold(&mut acc.1, w, lanes(b, at));
            fold(&mut acc.2, w, lanes(c, at));
            fold(&mut acc.3, w, lanes(d, at));
            at += LANES;
        }
        let rows = [(acc.0, a), (acc.1, b), (acc.2, c), (acc.3, d)];
        for (i, (mut acc, x)) in rows.into_iter().enumerate() {
            for ((acc, w), x) in acc.iter_mut().zip(&self.w[whole..]).zip(&x[whole..]) {
                *acc = w.mul_add(*x, *acc);
            }
            // SAFETY: one call makes each output of `r`.
            unsafe { self.sink.put(t + i, self.r, &[tree(acc)]) };
        }
    }
}

impl Kernel for PlainRow<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let mut t = 0;
        while t + 4 <= self.pick.len() {
            self.four(t);
            t += 4;
        }
        for t in t..self.pick.len() {
            let value = dot_inline(self.w, self.x.row(self.pick.get(t)));
            // SAFETY: as in `four`.
            unsafe { self.sink.put(t, self.r, &[value]) };
        }
    }
}
