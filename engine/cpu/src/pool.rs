//! Splitting one operation over threads.
//!
//! Tasks write disjoint pieces of one buffer and never reduce across threads, so the bits do not depend on how many there
//! are.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// A fixed set of worker threads, or none.
pub(crate) struct Pool {
    workers: Option<ThreadPool>,
    threads: usize,
}

/// Work below this many bytes read stays on the calling thread: waking a worker costs more than it saves.
const MIN_PARALLEL_BYTES: usize = 1024 * 1024;

impl Pool {
    /// `threads = 0` takes every core this process may use.
    pub(crate) fn new(threads: usize) -> Result<Self, String> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        if threads == 1 {
            return Ok(Self { workers: None, threads });
        }
        let workers = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("cudafast-cpu-{i}"))
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self { workers: Some(workers), threads })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(i, piece)` for each piece of `unit * k` elements of `out`, where `k` units make a task; `i` is the
    /// index of the piece's first unit. `bytes` is what the whole operation reads.
    pub(crate) fn split<T: Send>(
        &self,
        out: &mut [T],
        unit: usize,
        bytes: usize,
        work: impl Fn(usize, &mut [T]) + Send + Sync,
    ) {
        let units = out.len() / unit.max(1);
        match &self.workers {
            Some(workers) if bytes >= MIN_PARALLEL_BYTES && units > 1 => {
                // Four tasks a thread even out uneven pieces without drowning in scheduling.
                let per_task = units.div_ceil(self.threads * 4).max(1);
                workers.install(|| {
                    out.par_chunks_mut(per_task * unit).enumerate().for_each(|(i, piece)| work(i * per_task, piece));
                });
            }
            _ => {
                if !out.is_empty() {
                    work(0, out);
                }
            }
        }
    }
}
