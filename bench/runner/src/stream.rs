//! Lines to and from a worker, each by a deadline.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout};
use std::time::Instant;

use bench_protocol::{MAX_LINE_BYTES, is_noise};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;

use crate::interrupt::{Interrupt, timespec};
use crate::stderr::Drain;

/// Bytes of stdout that are no response, between two responses. As much as a response may have.
pub const MAX_NOISE_BYTES: usize = MAX_LINE_BYTES;

const CHUNK: usize = 64 << 10;

/// Why there is no line.
#[derive(Debug)]
pub(crate) enum Broken {
    End,
    Late,
    TooLong,
    Noise,
    Flood,
    Unasked,
    Interrupted,
    Io(io::Error),
}

/// Both directions of a worker's standard streams.
#[derive(Debug)]
pub(crate) struct Wire {
    /// `None` once there is nothing more to ask.
    requests: Option<ChildStdin>,
    responses: ChildStdout,
    lines: Buffer,
    interrupt: Interrupt,
}

impl Wire {
    pub(crate) fn new(requests: ChildStdin, responses: ChildStdout, interrupt: Interrupt) -> io::Result<Self> {
        ioctl_fionbio(&requests, true)?;
        ioctl_fionbio(&responses, true)?;
        Ok(Self { requests: Some(requests), responses, lines: Buffer::default(), interrupt })
    }

    /// Tells the worker that nothing more is asked.
    pub(crate) fn close_requests(&mut self) {
        self.requests = None;
    }

    /// Refuses a response, or the beginning of one, that is there before its request: it cannot be an answer.
    pub(crate) fn expect_silence(&mut self) -> Result<(), Broken> {
        let mut noise = 0;
        let mut more = true;
        while more {
            more = self.fill()?;
            while let Some(line) = self.lines.next()? {
                if !is_noise(&line) {
                    return Err(Broken::Unasked);
                }
                noise += line.len() + 1;
                if noise > MAX_NOISE_BYTES {
                    return Err(Broken::Noise);
                }
            }
        }
        if self.lines.begins_a_response() { Err(Broken::Unasked) } else { Ok(()) }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8], until: Instant, stderr: &Drain) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let Some(requests) = &mut self.requests else { return Err(Broken::End) };
            match requests.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Broken::End),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&*requests, PollFlags::OUT, until, stderr, &self.interrupt)?;
                }
                Err(error) => return Err(Broken::Io(error)),
            }
        }
        Ok(())
    }

    /// The next line that is no noise, and when all of it was there. A line that is there too late is none.
    pub(crate) fn read(&mut self, until: Instant, stderr: &Drain) -> Result<(Vec<u8>, Instant), Broken> {
        let mut noise = 0;
        loop {
            while let Some(line) = self.lines.next()? {
                let received = Instant::now();
                if received > until {
                    return Err(Broken::Late);
                }
                if !is_noise(&line) {
                    return Ok((line, received));
                }
                noise += line.len() + 1;
                if noise > MAX_NOISE_BYTES {
                    return Err(Broken::Noise);
                }
            }
            if !self.fill()? {
                wait(&self.responses, PollFlags::IN, until, stderr, &self.interrupt)?;
            }
        }
    }

    /// Takes what is there, without waiting; whether there was anything.
    fn fill(&mut self) -> Result<bool, Broken> {
        loop {
            match self.responses.read(self.lines.room()) {
                Ok(0) => {
                    self.lines.took(0);
                    return Err(Broken::End);
                }
                Ok(count) => {
                    self.lines.took(count);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lines.took(0);
                    return match error.kind() {
                        io::ErrorKind::WouldBlock => Ok(false),
                        _ => Err(Broken::Io(error)),
                    };
                }
            }
        }
    }
}

fn wait(
    stream: impl AsFd,
    ready: PollFlags,
    until: Instant,
    stderr: &Drain,
    interrupt: &Interrupt,
) -> Result<(), Broken> {
    interrupt.check().map_err(|_| Broken::Interrupted)?;
    if stderr.is_flooded() {
        return Err(Broken::Flood);
    }
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Broken::Late);
    }
    let flood = stderr.flood();
    let mut fds =
        [PollFd::new(&stream, ready), PollFd::new(interrupt, PollFlags::IN), PollFd::new(&flood, PollFlags::IN)];
    match poll(&mut fds, Some(&timespec(left))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Broken::Io(errno.into())),
    }
}

/// Bytes that have come, of which the lines are taken.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that were read; the rest is room.
    len: usize,
    /// Bytes before this one are of lines that were taken.
    begin: usize,
    /// No line ends before this byte.
    scanned: usize,
}

impl Buffer {
    fn room(&mut self) -> &mut [u8] {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.len, 0);
            self.len -= self.begin;
            self.scanned -= self.begin;
            self.begin = 0;
        }
        if self.bytes.len() < self.len + CHUNK {
            // Twice as much, so that a long line is not copied for each chunk of it.
            self.bytes.resize((2 * self.len).max(2 * CHUNK), 0);
        }
        self.bytes.get_mut(self.len..).unwrap_or_default()
    }

    fn took(&mut self, count: usize) {
        self.len = (self.len + count).min(self.bytes.len());
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let unseen = self.bytes.get(self.scanned..self.len).unwrap_or_default();
        let end = unseen.iter().position(|&byte| byte == b'\n').map(|at| self.scanned + at);
        let length = end.unwrap_or(self.len) - self.begin;
        if length > MAX_LINE_BYTES {
            return Err(Broken::TooLong);
        }
        let Some(end) = end else {
            self.scanned = self.len;
            return Ok(None);
        };
        let line = self.bytes.get(self.begin..end).unwrap_or_default().to_vec();
        self.begin = end + 1;
        self.scanned = self.begin;
        Ok(Some(line))
    }

    fn begins_a_response(&self) -> bool {
        !is_noise(self.bytes.get(self.begin..self.len).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &mut Buffer, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK) {
            buffer.room()[..chunk.len()].copy_from_slice(chunk);
            buffer.took(chunk.len());
        }
    }

    #[test]
    fn lines_come_out_as_they_went_in_however_they_were_cut() {
        let mut buffer = Buffer::default();
        put(&mut buffer, b"one\ntw");
        assert_eq!(buffer.next().unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(buffer.next().unwrap(), None);
        put(&mut buffer, b"o\n\n {");
        assert_eq!(buffer.next().unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(buffer.next().unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(buffer.next().unwrap(), None);
        assert!(buffer.begins_a_response());
    }

    #[test]
    fn the_longest_line_is_taken_and_a_longer_one_refused_before_it_ends() {
        let mut buffer = Buffer::default();
        let line = vec![b'x'; MAX_LINE_BYTES];
        put(&mut buffer, &line);
        assert_eq!(buffer.next().unwrap(), None);
        put(&mut buffer, b"\n");
        assert_eq!(buffer.next().unwrap().map(|line| line.len()), Some(MAX_LINE_BYTES));
        put(&mut buffer, &line);
        put(&mut buffer, b"x");
        assert!(matches!(buffer.next(), Err(Broken::TooLong)));
    }
}
