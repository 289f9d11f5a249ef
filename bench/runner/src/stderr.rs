//! What a worker says to people: drained without pause, redacted, bounded (engine-protocol-v1.md 2.1).

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ChildStderr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::ioctl_fionbio;

/// The most that is kept for a post-mortem.
pub(crate) const TAIL_BYTES: usize = 64 << 10;

/// The most a worker may write: an engine's log of a run takes a hundredth of it.
pub const MAX_STDERR_BYTES: usize = 16 << 20;

/// What of one line a post-mortem shows.
const CLIP_BYTES: usize = 2048;

/// Lines longer than this are not looked into, and therefore not shown.
const LONG_LINE_BYTES: usize = 64 << 10;

const REDACTED: &str = "token-validation-failed";
const TOO_LONG: &str = "worker-line-too-long";

/// A thread that drains, until it is stopped or the stream ends.
#[derive(Debug)]
pub(crate) struct Drain {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    tail: Mutex<Tail>,
    flooded: AtomicBool,
    /// Readable once there was too much; wakes whoever waits for a response.
    flood: OwnedFd,
    /// Readable once nothing more is to be waited for.
    stop: OwnedFd,
}

impl Drain {
    pub(crate) fn start(stderr: ChildStderr, forward: bool) -> io::Result<Self> {
        ioctl_fionbio(&stderr, true)?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared =
            Shared { tail: Mutex::default(), flooded: AtomicBool::new(false), flood: event()?, stop: event()? };
        let shared = Arc::new(shared);
        let of_thread = Arc::clone(&shared);
        let drain = move || of_thread.drain(stderr, forward);
        let thread = thread::Builder::new().name("worker-stderr".into()).spawn(drain)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether the worker wrote more than [`MAX_STDERR_BYTES`].
    pub(crate) fn is_flooded(&self) -> bool {
        self.shared.flooded.load(Ordering::SeqCst)
    }

    /// Readable once it did.
    pub(crate) fn flood(&self) -> impl AsFd + '_ {
        self.shared.flood.as_fd()
    }

    /// Takes what is there and ends. To be called when the writers are gone.
    pub(crate) fn stop(&mut self) {
        signal(&self.shared.stop);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has drained what it could.
            let _ = thread.join();
        }
    }

    /// The last lines in one: ` | ` between them, each clipped.
    pub(crate) fn post_mortem(&self) -> String {
        let tail = self.shared.tail();
        if tail.lines.is_empty() {
            return "no worker stderr was emitted".into();
        }
        tail.lines.iter().map(|line| clip(line)).collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop();
    }
}

fn signal(event: &OwnedFd) {
    // A counter that is full wakes as well.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

impl Shared {
    fn tail(&self) -> std::sync::MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self, mut stderr: ChildStderr, forward: bool) {
        let mut lines = Lines::default();
        let mut chunk = vec![0; 64 << 10];
        let mut total = 0;
        let mut show = |line: &str| {
            self.tail().push(line);
            if forward {
                // That nobody reads it is no reason to end.
                let _ = writeln!(io::stderr(), "mlxfast-worker: {line}");
            }
        };
        loop {
            match stderr.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    total += count;
                    if total > MAX_STDERR_BYTES {
                        self.flooded.store(true, Ordering::SeqCst);
                        signal(&self.flood);
                        break;
                    }
                    lines.feed(chunk.get(..count).unwrap_or_default(), &mut show);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&stderr, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
                    // Whatever ended the wait, it is seen below or by the next read.
                    let _ = poll(&mut fds, None);
                    let [stream, stop] = fds;
                    if stream.revents().is_empty() && !stop.revents().is_empty() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        lines.finish(&mut show);
    }
}

/// Bytes cut into lines.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    too_long: bool,
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8], show: &mut impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.add(line);
            self.close(show);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.add(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.too_long |= self.line.len() + bytes.len() > LONG_LINE_BYTES;
        if !self.too_long {
            self.line.extend_from_slice(bytes);
        }
    }

    fn close(&mut self, show: &mut impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.line);
        show(if self.too_long { TOO_LONG } else { redact(text.trim_end_matches('\r')) });
        self.line.clear();
        self.too_long = false;
    }

    fn finish(&mut self, show: &mut impl FnMut(&str)) {
        if self.too_long || !self.line.is_empty() {
            self.close(show);
        }
    }
}

/// A line that may tell tokens of a golden tells that it did.
fn redact(line: &str) -> &str {
    let lower = line.to_ascii_lowercase();
    if lower.contains("expected") || lower.contains("actual") { REDACTED } else { line }
}

/// The first bytes of a text, whole characters only.
pub(crate) fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(CLIP_BYTES)).unwrap_or(text)
}

#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, line: &str) {
        self.lines.push_back(line.into());
        self.bytes += line.len() + 1;
        while self.bytes > TAIL_BYTES
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut show = |line: &str| found.push(line.to_owned());
        for chunk in chunks {
            lines.feed(chunk, &mut show);
        }
        lines.finish(&mut show);
        found
    }

    #[test]
    fn a_line_that_may_tell_a_token_is_replaced_also_when_it_comes_in_pieces() {
        let found = shown(&[b"loading\nEXPEC", b"TED 501 got 777\r\nthe aCtUaL\n", b"done\r\nlast"]);
        assert_eq!(found, ["loading", REDACTED, REDACTED, "done", "last"]);
    }

    #[test]
    fn a_line_too_long_to_look_into_is_not_shown() {
        let long = vec![b'x'; LONG_LINE_BYTES];
        assert_eq!(shown(&[&long, b" expected 501", b" 501\nnext\n"]), [TOO_LONG, "next"]);
    }

    #[test]
    fn a_tail_keeps_the_last_lines_and_no_more_than_its_bytes() {
        let mut tail = Tail::default();
        for line in 0..10_000 {
            tail.push(&format!("line {line}"));
        }
        assert!(tail.bytes <= TAIL_BYTES && tail.bytes > TAIL_BYTES / 2);
        assert_eq!(tail.lines.back().map(String::as_str), Some("line 9999"));
        assert_eq!(clip(&"\u{e9}".repeat(2000)).len(), CLIP_BYTES);
    }
}
