//! How a resident is told to end, while it waits for a client or for a request.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A request to end that wakes whoever waits. Clones are the same one; once raised it stays so.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raised: AtomicBool,
    /// Readable from the moment that it is raised.
    waiting: UnixStream,
    waking: UnixStream,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// Reading or writing gets on, or ends.
    Ready,
    /// Nothing happened in the time.
    Late,
    /// The process is to end.
    Stopped,
}

impl Stop {
    /// Not raised yet. Errors: the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (waiting, waking) = UnixStream::pair()?;
        Ok(Self(Arc::new(Inner { raised: AtomicBool::new(false), waiting, waking })))
    }

    /// Raises it, and calls `also`, when SIGINT or SIGTERM arrives.
    pub fn on_signals(&self, also: impl Fn() + Send + 'static) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let stop = self.clone();
        let listens = move || {
            for _ in signals.forever() {
                stop.raise();
                also();
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listens).map(drop)
    }

    /// Asks the resident to end.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::SeqCst);
        // One byte is enough for ever: nobody reads it. A second one that does not fit is not missed.
        let _ = (&self.0.waking).write(b"!");
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::SeqCst)
    }

    /// Waits until `fd` is ready for `what`; without `patience` as long as it takes.
    pub(super) fn wait(&self, fd: BorrowedFd<'_>, what: PollFlags, patience: Option<Duration>) -> io::Result<Woken> {
        let timeout = patience.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        loop {
            if self.is_raised() {
                return Ok(Woken::Stopped);
            }
            let mut fds = [PollFd::from_borrowed_fd(fd, what), PollFd::new(&self.0.waiting, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(Woken::Late),
                Ok(_) if self.is_raised() => return Ok(Woken::Stopped),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Woken::Ready),
                Ok(_) | Err(rustix::io::Errno::INTR) => {} // a signal: it is raised, or it was not for us
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A client's stream, as long as it is not idle for too long and the process is not to end. The stream must not block.
#[derive(Debug)]
pub(super) struct Patient<'a> {
    pub(super) stream: &'a UnixStream,
    pub(super) stop: &'a Stop,
    pub(super) idle: Duration,
}

impl Patient<'_> {
    /// Until `step` gets on, which it does when the stream is ready for `what`.
    fn once(&self, what: PollFlags, mut step: impl FnMut(&UnixStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match self.stop.wait(self.stream.as_fd(), what, Some(self.idle))? {
                Woken::Late => return Err(io::ErrorKind::TimedOut.into()),
                Woken::Stopped => return Err(io::Error::other("the process is to end")),
                Woken::Ready => match step(self.stream) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                },
            }
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.once(PollFlags::IN, |mut stream| stream.read(into))
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.once(PollFlags::OUT, |mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
