use std::io::{self, BufRead};

use crate::MAX_LINE_BYTES;

/// What [`LineReader::read`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its line end. The last one of a stream need not have had one.
    Text(&'a [u8]),
    /// More than [`MAX_LINE_BYTES`] without a line end. Said at once: the rest of the line, which may never end, is
    /// skipped by the next read.
    TooLong,
    /// The stream has ended.
    End,
}

/// Lines of a stream, none longer than [`MAX_LINE_BYTES`] in memory.
#[derive(Debug)]
pub struct LineReader<R> {
    stream: R,
    line: Vec<u8>,
    inside_long_line: bool,
}

impl<R: BufRead> LineReader<R> {
    /// Reads from where the stream stands.
    pub fn new(stream: R) -> Self {
        Self { stream, line: Vec::new(), inside_long_line: false }
    }

    /// The next line. Errors: those of the stream; an interrupted read is repeated.
    pub fn read(&mut self) -> io::Result<Line<'_>> {
        self.line.clear();
        loop {
            let ready = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if ready.is_empty() {
                self.inside_long_line = false;
                return Ok(if self.line.is_empty() { Line::End } else { Line::Text(&self.line) });
            }
            let end = ready.iter().position(|&byte| byte == b'\n');
            let part = &ready[..end.unwrap_or(ready.len())];
            let consumed = part.len() + usize::from(end.is_some());
            if self.inside_long_line {
                self.inside_long_line = end.is_none();
                self.stream.consume(consumed);
                continue;
            }
            if part.len() > MAX_LINE_BYTES - self.line.len() {
                self.inside_long_line = end.is_none();
                self.stream.consume(consumed);
                return Ok(Line::TooLong);
            }
            self.line.extend_from_slice(part);
            self.stream.consume(consumed);
            if end.is_some() {
                return Ok(Line::Text(&self.line));
            }
        }
    }
}

/// Whether a worker skips a request line: nothing but white space (engine-protocol-v1.md 2).
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Whether the benchmarker skips a line of a worker's stdout: after spaces, tabs and carriage returns it does not start with
/// `{` (engine-protocol-v1.md 2). A line that does must decode.
pub fn is_noise(line: &[u8]) -> bool {
    line.iter().find(|byte| !b" \t\r".contains(byte)) != Some(&b'{')
}
