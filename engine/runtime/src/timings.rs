//! How long a generation took, split so that no figure contains another's work.

use std::time::{Duration, Instant};

/// Times and counts of one generation.
///
/// Prefill ends when its last row is done. The decode clock starts when the first token is known, so neither prefill nor the
/// first choice counts as decoding, and the rate divides the tokens after the first by the time after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Prompt tokens that were run.
    pub prefill_tokens: usize,
    /// Prompt tokens that were already in the state or in a snapshot.
    pub cached_tokens: usize,
    /// Time of running the former, snapshots and their restoring included.
    pub prefill: Duration,
    /// From the call to the first token known; zero where there is none.
    pub first_token: Duration,
    /// Tokens after the first.
    pub decode_tokens: usize,
    /// From the first token known to the last.
    pub decode: Duration,
}

impl Timings {
    /// Prompt tokens run in a second; `None` where nothing was run.
    pub fn prefill_tok_s(&self) -> Option<f64> {
        rate(self.prefill_tokens, self.prefill)
    }
    /// Tokens after the first in a second; `None` where there is no second token.
    pub fn decode_tok_s(&self) -> Option<f64> {
        rate(self.decode_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

/// Turns the instants of a generation into [`Timings`]. It reads no clock.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    start: Instant,
    first: Option<Instant>,
    timings: Timings,
}

impl Stopwatch {
    pub(crate) fn start(now: Instant) -> Self {
        Self { start: now, first: None, timings: Timings::default() }
    }
    pub(crate) fn prefilled(&mut self, tokens: usize, cached: usize, now: Instant) {
        self.timings.prefill_tokens = tokens;
        self.timings.cached_tokens = cached;
        self.timings.prefill = now.duration_since(self.start);
    }
    /// `tokens` more are known at `now`.
    pub(crate) fn tokens(&mut self, tokens: usize, now: Instant) {
        match self.first {
            None => {
                self.first = Some(now);
                self.timings.first_token = now.duration_since(self.start);
                self.timings.decode_tokens = tokens.saturating_sub(1);
            }
            Some(first) => {
                self.timings.decode_tokens += tokens;
                self.timings.decode = now.duration_since(first);
            }
        }
    }
    pub(crate) fn timings(&self) -> Timings {
        self.timings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// llama.cpp#27623: prefill was counted in the decode speed.
    #[test]
    fn decode_speed_counts_neither_prefill_nor_the_first_token() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = Stopwatch::start(start);
        watch.prefilled(500, 64, at(5000));
        watch.tokens(1, at(5100));
        watch.tokens(3, at(5150));
        watch.tokens(1, at(5200));
        let timings = watch.timings();
        assert_eq!(timings.first_token, Duration::from_millis(5100));
        assert_eq!((timings.decode_tokens, timings.decode), (4, Duration::from_millis(100)));
        assert_eq!((timings.prefill_tokens, timings.cached_tokens), (500, 64));
        assert_eq!(timings.prefill_tok_s(), Some(100.0));
        assert_eq!(timings.decode_tok_s(), Some(40.0));
    }

    #[test]
    fn a_single_token_has_no_decode_speed_and_a_cached_prompt_no_prefill_speed() {
        let start = Instant::now();
        let mut watch = Stopwatch::start(start);
        watch.prefilled(0, 70, start + Duration::from_millis(1));
        watch.tokens(1, start + Duration::from_millis(2));
        assert_eq!(watch.timings().prefill_tok_s(), None);
        assert_eq!(watch.timings().decode_tok_s(), None);
    }
}
