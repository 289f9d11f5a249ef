//! What this machine can do at most, measured: the ceilings that a model's speed is compared with.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use cudafast_model::MatrixRef;
use cudafast_quant::Format;

use crate::Precision;
use crate::matmul::{Operand, matmul};
use crate::model::Phase;
use crate::pool::Pool;
use crate::simd::{self, Kernel};

/// Bytes a second that `threads` threads together read of memory, one figure for each of `passes` passes over `bytes`
/// bytes, each thread its own part in order. `bytes` should be several times the last cache. Errors: a thread cannot be
/// started.
pub fn read_rates(threads: usize, bytes: usize, passes: usize) -> io::Result<Vec<f64>> {
    let threads = threads.max(1);
    let words = bytes.div_ceil(threads * size_of::<u64>()).max(1);
    let mut parts: Vec<Vec<u64>> = (0..threads).map(|_| Vec::new()).collect();
    // Each thread writes its part, so that pages exist, and near the core that reads them.
    on_threads(parts.iter_mut(), |part| part.resize(words, 0x0101_0101_0101_0101))?;
    let pass = |_| {
        let begun = Instant::now();
        on_threads(parts.iter(), |part| {
            black_box(simd::run(Sum(part)));
        })?;
        Ok((threads * words * size_of::<u64>()) as f64 / begun.elapsed().as_secs_f64())
    };
    (0..passes).map(pass).collect()
}

/// Multiply-accumulates a second of the engine's own matrix product in one number format, `threads` threads together and
/// `rows` activation rows at once, on weights and activations that stay in the first cache: what decoding would reach if
/// memory cost nothing. One figure for each of `passes` passes. Errors: a thread cannot be started.
pub fn dot_rates(format: &'static Format, threads: usize, rows: usize, passes: usize) -> io::Result<Vec<f64>> {
    let shape = Tile::of(format);
    let once = |calls: usize| -> io::Result<f64> {
        let begun = Instant::now();
        on_threads(0..threads.max(1), |_| shape.run(format, rows, calls))?;
        Ok(begun.elapsed().as_secs_f64())
    };
    // Long enough that starting threads does not count.
    let mut calls = 64;
    while once(calls)? < PASS_SECONDS && calls < 1 << 24 {
        calls *= 2;
    }
    let work = (threads.max(1) * calls * rows * shape.outputs * shape.cols) as f64;
    (0..passes).map(|_| Ok(work / once(calls)?)).collect()
}

/// Time of a pass of dots, at least.
const PASS_SECONDS: f64 = 0.03;

/// Bytes of weights that stay in the first cache with what else is in use there.
const TILE_BYTES: usize = 12 * 1024;

/// A matrix small enough for the first cache.
struct Tile {
    outputs: usize,
    cols: usize,
    weights: Vec<u8>,
}

impl Tile {
    fn of(format: &'static Format) -> Self {
        const COLS: usize = 1024; // whole blocks of every format
        let row_bytes = format.row_bytes(COLS).unwrap_or(TILE_BYTES);
        let outputs = (TILE_BYTES / row_bytes).max(1);
        // Zeros are valid blocks of every format, and a dot takes as long whatever is in it.
        Self { outputs, cols: COLS, weights: vec![0; outputs * row_bytes] }
    }

    fn run(&self, format: &'static Format, rows: usize, calls: usize) {
        let Ok(pool) = Pool::new(1) else { return };
        let x: Vec<f32> = (0..rows * self.cols).map(|i| (i % 17) as f32 - 8.0).collect();
        let operand = Operand::new(&pool, &x, self.cols, Precision::Int8, Phase::Decode);
        let w = MatrixRef { format, rows: self.outputs, cols: self.cols, bytes: &self.weights };
        let mut y = vec![0.0; rows * self.outputs];
        for _ in 0..calls {
            matmul(&pool, black_box(w), &operand, &mut y);
            black_box(&y);
        }
    }
}

/// Runs `work` on each item, a thread each.
fn on_threads<T: Send>(items: impl Iterator<Item = T>, work: impl Fn(T) + Sync) -> io::Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let started: Vec<_> =
            items.map(|item| std::thread::Builder::new().spawn_scoped(scope, move || work(item)).map(drop)).collect();
        started.into_iter().collect()
    })
}

/// The sum of all words, in as many accumulators as keep loads busy.
struct Sum<'a>(&'a [u64]);

impl Kernel for Sum<'_> {
    type Out = u64;
    #[inline(always)]
    fn run(self) -> u64 {
        const WIDE: usize = 32;
        let (chunks, rest) = self.0.as_chunks::<WIDE>();
        let mut sums = [0u64; WIDE];
        for chunk in chunks {
            for (sum, word) in sums.iter_mut().zip(chunk) {
                *sum = sum.wrapping_add(*word);
            }
        }
        sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reads_everything_and_gives_a_rate_for_each_pass() {
        let words: Vec<u64> = (0..1000).collect();
        assert_eq!(simd::run(Sum(&words)), 999 * 500);
        let rates = read_rates(2, 1 << 20, 3).unwrap();
        assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
    }

    #[test]
    fn every_format_has_a_dot_rate() {
        for format in cudafast_quant::formats() {
            Tile::of(format).run(format, 3, 1);
        }
        let q8 = cudafast_quant::format_by_name("Q8_0").unwrap();
        assert!(dot_rates(q8, 1, 1, 2).unwrap().iter().all(|rate| *rate > 0.0));
    }
}
