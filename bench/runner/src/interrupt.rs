//! How a person's wish to stop reaches whatever is waited for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// The run was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A flag that wakes who waits. Clones are the same one; once raised it stays so.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raised: AtomicBool,
    /// Readable from the moment that it is raised; nobody reads it.
    wake: OwnedFd,
}

impl Interrupt {
    /// Not raised yet. Errors: the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { raised: AtomicBool::new(false), wake })))
    }

    /// Ends every wait, now and later. Does nothing that a signal handler may not do.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::SeqCst);
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::SeqCst)
    }

    /// An error once it was raised.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_raised() { Err(Interrupted) } else { Ok(()) }
    }

    /// Sleeps, or ends early because it was raised.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            // Whatever ended it, the loop looks again.
            let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timespec(left)));
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

/// At least one nanosecond, so that a wait that is not over does not turn into none.
pub(crate) fn timespec(time: Duration) -> Timespec {
    let time = time.max(Duration::from_nanos(1));
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_the_interrupt_is_raised_from_another_thread() {
        let interrupt = Interrupt::new().unwrap();
        let raiser = interrupt.clone();
        let thread = std::thread::spawn(move || raiser.raise());
        assert_eq!(interrupt.sleep(Duration::from_secs(3600)), Err(Interrupted));
        thread.join().unwrap();
        assert_eq!(interrupt.check(), Err(Interrupted));
    }

    #[test]
    fn a_sleep_nobody_interrupts_takes_its_time() {
        let interrupt = Interrupt::new().unwrap();
        let begun = Instant::now();
        assert_eq!(interrupt.sleep(Duration::from_millis(5)), Ok(()));
        assert!(begun.elapsed() >= Duration::from_millis(5));
    }
}
