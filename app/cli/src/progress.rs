//! How far work is: a line on a terminal's stderr, once it takes long enough to wonder. Elsewhere nothing.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::escape_control;

/// Work that is done by then never shows a line.
const SOON: Duration = Duration::from_millis(500);

const BYTES: &str = "{msg} [{wide_bar}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
const TOKENS: &str = "{msg} [{wide_bar}] {pos}/{len} tokens, {per_sec}, {eta} left";
const SPINNER: &str = "{spinner} {msg}, {elapsed}";

/// Work with an end that is known. The line goes when this does.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    shown: AtomicBool,
}

impl Progress {
    /// `total` bytes to read or write.
    pub(crate) fn bytes(what: &str, total: u64) -> Self {
        Self::new(what, total, BYTES)
    }

    /// `total` tokens to run.
    pub(crate) fn tokens(what: &str, total: usize) -> Self {
        Self::new(what, total as u64, TOKENS)
    }

    fn new(what: &str, total: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(escape_control(what));
        Self { bar, begun: Instant::now(), shown: AtomicBool::new(false) }
    }

    /// What there is to do, where that was not known before.
    pub(crate) fn of(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// So much is done. From any thread.
    pub(crate) fn set(&self, done: u64) {
        self.show();
        self.bar.set_position(done);
    }

    /// So much more is done. From any thread.
    pub(crate) fn advance(&self, done: u64) {
        self.show();
        self.bar.inc(done);
    }

    fn show(&self) {
        if self.begun.elapsed() >= SOON && !self.shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr()); // draws on a terminal only
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Work that nobody can tell the end of. The line goes when this does.
pub(crate) struct Waiting {
    /// Closed, it ends the thread.
    end: Option<Sender<()>>,
    spins: Option<JoinHandle<()>>,
}

impl Waiting {
    pub(crate) fn begin(what: &str) -> Self {
        if !io::stderr().is_terminal() {
            return Self { end: None, spins: None };
        }
        let what = escape_control(what);
        let (end, ended) = mpsc::channel::<()>();
        let spins = thread::Builder::new().name("progress".into()).spawn(move || {
            let more = |wait| ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
            if !more(SOON) {
                return;
            }
            let bar = ProgressBar::new_spinner().with_message(what);
            bar.set_style(ProgressStyle::with_template(SPINNER).unwrap_or_else(|_| ProgressStyle::default_spinner()));
            while more(Duration::from_millis(100)) {
                bar.tick();
            }
            bar.finish_and_clear();
        });
        Self { end: Some(end), spins: spins.ok() } // a machine without room for a thread has other worries
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(spins) = self.spins.take() {
            let _ = spins.join(); // it cannot panic on input
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_style() {
        for template in [BYTES, TOKENS, SPINNER] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn waiting_ends_with_its_work() {
        drop(Waiting::begin("a\nb"));
        let progress = Progress::bytes("nothing", 0);
        progress.set(1);
    }
}
