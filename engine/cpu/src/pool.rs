//! Splitting one operation over threads.
//!
//! Tasks write disjoint pieces and never reduce across threads, so the bits do not depend on how many there are. A forward
//! pass is hundreds of operations of some microseconds, so a worker spins for a moment after each before it sleeps: the
//! next operation finds it awake, and an idle engine costs nothing.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};

/// A fixed set of threads, the caller's among them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One operation at a time; a second one, or one inside a task, runs on its own thread.
    busy: Mutex<()>,
}

/// Work below this many bytes read stays on the calling thread: handing it out costs more than it saves.
const MIN_PARALLEL_BYTES: usize = 96 * 1024;

/// Least bytes of one task: claiming one costs a few hundred nanoseconds where threads meet.
const MIN_TASK_BYTES: usize = 24 * 1024;

/// Looks at the ticket before a worker sleeps: some tens of microseconds.
const SPINS: u32 = 4_000;

/// Looks at the end of an operation between two yields of its caller: with more threads than cores the last task may be
/// waiting for this very core.
const SPINS_PER_YIELD: u32 = 1_000;

/// What the threads share.
struct Shared {
    /// Low half: tasks not yet claimed. High half: number of the operation. Claiming is a decrement by compare-and-swap,
    /// so a task can only be claimed from the operation that is running.
    tickets: AtomicU64,
    /// The running operation; read only behind a claim, which keeps its caller waiting.
    job: UnsafeCell<Option<Job>>,
    finished: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    sleepers: Vec<Sleeper>,
}

/// The operation's tasks, its lifetime erased: [`Pool::run`] returns after the last of them.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

/// Where one worker waits.
#[derive(Default)]
struct Sleeper {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

// SAFETY: `job` is written by the one caller that holds `busy` while no ticket is out, and read only by threads that
// claimed a ticket published after the write; the closure behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing here belongs to one thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Runs tasks until none is left to claim.
    fn work(&self) {
        while let Some(task) = self.claim() {
            let run = AssertUnwindSafe(|| {
                // SAFETY: a claimed task keeps the caller of `run` inside `run`, so job and closure are alive and the job
                // is not written. Its number is below `tasks`, each is claimed once.
                unsafe {
                    let Some(job) = *self.job.get() else { return };
                    (*job.work)(job.tasks - 1 - task);
                }
            });
            if let Err(panic) = catch_unwind(run) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// The number of tasks left after taking one.
    fn claim(&self) -> Option<usize> {
        let taken = self.tickets.fetch_update(Ordering::AcqRel, Ordering::Acquire, |tickets| {
            if tickets as u32 == 0 { None } else { Some(tickets - 1) }
        });
        taken.ok().map(|tickets| tickets as u32 as usize - 1)
    }

    fn has_work(&self) -> bool {
        self.tickets.load(Ordering::SeqCst) as u32 != 0 || self.stop.load(Ordering::SeqCst)
    }

    /// A worker's life.
    fn serve(&self, me: &Sleeper) {
        *me.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        while !self.stop.load(Ordering::Acquire) {
            self.work();
            let mut spins = 0;
            while !self.has_work() {
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                    continue;
                }
                // Announce, look once more, sleep: a caller publishes its tickets before it looks for sleepers.
                me.asleep.store(true, Ordering::SeqCst);
                while !self.has_work() && me.asleep.load(Ordering::SeqCst) {
                    thread::park();
                }
                me.asleep.store(false, Ordering::SeqCst);
                spins = 0;
            }
        }
    }

    fn wake(&self, most: usize) {
        for sleeper in self.sleepers.iter().take(most) {
            if sleeper.asleep.swap(false, Ordering::SeqCst) {
                let thread = sleeper.thread.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(thread) = &*thread {
                    thread.unpark();
                }
            }
        }
    }
}

impl Pool {
    /// `threads = 0` takes every core this process may use.
    pub(crate) fn new(threads: usize) -> Result<Self, String> {
        let threads = match threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let shared = Arc::new(Shared {
            tickets: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            finished: AtomicUsize::new(0),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            sleepers: (1..threads).map(|_| Sleeper::default()).collect(),
        });
        let mut pool = Self { shared, workers: Vec::new(), busy: Mutex::new(()) };
        for i in 0..threads - 1 {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new()
                .name(format!("cudafast-cpu-{}", i + 1))
                .spawn(move || shared.serve(&shared.sleepers[i]))
                .map_err(|e| e.to_string())?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work(i)` once for each `i < tasks`, on any thread, in no particular order; returns after the last. A panic in
    /// a task is resumed here.
    pub(crate) fn run(&self, tasks: usize, work: impl Fn(usize) + Sync) {
        let turn = if tasks > 1 && !self.workers.is_empty() {
            match self.busy.try_lock() {
                Ok(turn) => Some(turn),
                Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        } else {
            None
        };
        let (Some(_turn), Ok(count)) = (turn, u32::try_from(tasks)) else {
            return (0..tasks).for_each(work);
        };
        let shared = &*self.shared;
        let work: &(dyn Fn(usize) + Sync) = &work;
        // SAFETY: only the lifetime changes, and no thread uses the job after the wait below. No ticket is out, so nobody
        // reads `job` while it is written.
        unsafe {
            let work = std::mem::transmute::<&(dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(work);
            *shared.job.get() = Some(Job { work, tasks });
        }
        shared.finished.store(0, Ordering::Relaxed);
        let operation = (shared.tickets.load(Ordering::Relaxed) >> 32) + 1;
        shared.tickets.store(operation << 32 | u64::from(count), Ordering::SeqCst);
        shared.wake(tasks - 1);
        shared.work();
        let mut spins = 0_u32;
        while shared.finished.load(Ordering::Acquire) < tasks {
            spins += 1;
            if u32::is_multiple_of(spins, SPINS_PER_YIELD) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        if let Some(panic) = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }

    /// How many tasks an operation that reads `bytes` is worth cutting into, at most `units`.
    pub(crate) fn tasks(&self, units: usize, bytes: usize) -> usize {
        if self.workers.is_empty() || bytes < MIN_PARALLEL_BYTES {
            return 1.min(units);
        }
        // Four tasks a thread even out uneven pieces without drowning in claims.
        (self.threads() * 4).min(bytes / MIN_TASK_BYTES).clamp(1, units.max(1))
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
        let tasks = self.tasks(units, bytes);
        if tasks <= 1 {
            if !out.is_empty() {
                work(0, out);
            }
            return;
        }
        let per_task = units.div_ceil(tasks);
        let (len, base) = (out.len(), Pieces(out.as_mut_ptr()));
        self.run(units.div_ceil(per_task), |task| {
            let start = task * per_task * unit;
            let count = (per_task * unit).min(len - start);
            // SAFETY: tasks are distinct and each is run once, so the pieces are disjoint; all lie within `out`, which is
            // borrowed until `run` returns.
            let piece = unsafe { std::slice::from_raw_parts_mut(base.at(start), count) };
            work(task * per_task, piece);
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake(self.workers.len());
        for worker in self.workers.drain(..) {
            // A task's panic was handed to its caller; the worker itself has none.
            let _ = worker.join();
        }
    }
}

/// The start of a buffer that tasks cut into disjoint pieces.
struct Pieces<T>(*mut T);

impl<T> Pieces<T> {
    fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

// SAFETY: the pieces made from it are disjoint, so this hands out what `&mut [T]` split by tasks would.
unsafe impl<T: Send> Sync for Pieces<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            for tasks in [0, 1, 2, 3, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(tasks, |i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 50), "{threads} threads, {tasks} tasks");
            }
        }
    }

    #[test]
    fn pieces_cover_the_buffer_and_know_where_they_are() {
        let pool = Pool::new(3).unwrap();
        for units in [0, 1, 7, 64, 1000] {
            let mut out = vec![usize::MAX; units * 3];
            pool.split(&mut out, 3, 1 << 30, |first, piece| {
                for (i, v) in piece.iter_mut().enumerate() {
                    *v = first * 3 + i;
                }
            });
            assert!(out.iter().enumerate().all(|(i, v)| i == *v));
        }
    }

    #[test]
    fn an_operation_inside_a_task_and_one_beside_it_run_to_the_end() {
        let pool = Pool::new(2).unwrap();
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    pool.run(8, |_| {
                        pool.run(8, |_| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                });
            }
        });
        assert_eq!(total.into_inner(), 3 * 64);
    }

    #[test]
    fn workers_that_fell_asleep_wake_for_the_next_operation() {
        let pool = Pool::new(4).unwrap();
        for _ in 0..3 {
            while !pool.shared.sleepers.iter().all(|s| s.asleep.load(Ordering::SeqCst)) {
                thread::yield_now();
            }
            let seen = Mutex::new(std::collections::HashSet::new());
            // Four tasks that wait for each other can only end on four threads.
            let barrier = std::sync::Barrier::new(4);
            pool.run(4, |_| {
                seen.lock().unwrap().insert(thread::current().id());
                barrier.wait();
            });
            assert_eq!(seen.into_inner().unwrap().len(), 4);
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(2).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| pool.run(8, |i| assert!(i != 3, "task three"))));
        assert!(panic.is_err());
        let total = AtomicUsize::new(0);
        pool.run(8, |i| {
            total.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 28);
    }
}
