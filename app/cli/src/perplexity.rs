//! `cudafast perplexity`: how well a model foretells a text.
//!
//! The text is cut into windows of `--ctx-tokens`, one starting every `--stride` tokens; each runs from an empty state. A
//! window scores the tokens that no window before it has scored, so every token of the text but the first is scored exactly
//! once, and from the second window on with at least `ctx - stride` tokens before it.

use std::ops::Range;
use std::time::Instant;

use serde::Serialize;

use crate::args::{PerplexityArgs, TextOrJson};
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::progress::Progress;
use crate::source::Head;
use crate::{load, output, prompt, source};

/// Tokens of a window where none are asked for.
const CTX_TOKENS: usize = 512;

/// The object of `-o json`; stable for other programs.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    backend: String,
    text_tokens: usize,
    scored_tokens: u64,
    windows: usize,
    ctx_tokens: usize,
    stride: usize,
    /// Mean of the negative log-likelihood of a token, in nats, and its standard error.
    nll: f64,
    nll_error: f64,
    perplexity: f64,
    /// `perplexity * nll_error`.
    perplexity_error: f64,
    seconds: f64,
    tok_s: f64,
}

pub(crate) fn run(args: &PerplexityArgs) -> Result<(), Failure> {
    let runner = args.device.runner()?;
    let text = prompt::read_text(&args.text)?;
    let loaded = load::load(source::open_model(&args.model, &runner)?, &Head::None, &runner)?;
    let tokens = loaded.engine.prompt(&text)?;
    if tokens.len() < 2 {
        return Err(Failure::TextTooShort { path: prompt::name_of(&args.text), found: tokens.len() });
    }
    let ctx_tokens = args.ctx_tokens.unwrap_or_else(|| CTX_TOKENS.min(loaded.trained_tokens()));
    let stride = args.stride.unwrap_or_else(|| (ctx_tokens / 2).max(1));
    if stride >= ctx_tokens {
        return Err(Failure::Stride { stride, ctx_tokens });
    }
    let (mut session, _) = loaded.open_session(ctx_tokens, 0)?;
    let windows = windows(tokens.len(), ctx_tokens, stride);
    let work = Work::begin();
    let run_tokens = windows.iter().map(|w| w.rows.len()).sum();
    let (progress, mut done) = (Progress::tokens("scoring", run_tokens), 0);
    let begun = Instant::now();
    let mut sum = Moments::default();
    for window in &windows {
        let ran = session.logits(&tokens[window.rows.clone()], &work.cancel, &mut |row, logits| {
            let next = window.rows.start + row + 1;
            if window.scored.contains(&next) {
                sum.add(negative_log_likelihood(logits, tokens[next] as usize));
            }
            done += 1;
            progress.set(done);
        });
        work.check()?;
        ran?;
    }
    drop(progress);
    let seconds = begun.elapsed().as_secs_f64();
    let perplexity = sum.mean.exp();
    let report = Report {
        model: loaded.engine.label(),
        backend: loaded.engine.backend().describe(),
        text_tokens: tokens.len(),
        scored_tokens: sum.count,
        windows: windows.len(),
        ctx_tokens,
        stride,
        nll: sum.mean,
        nll_error: sum.error(),
        perplexity,
        perplexity_error: perplexity * sum.error(),
        seconds,
        tok_s: run_tokens as f64 / seconds.max(1e-9),
    };
    match args.output {
        TextOrJson::Json => output::json(&report),
        TextOrJson::Text => output::text(&report.line()),
    }
}

impl Report<'_> {
    fn line(&self) -> String {
        format!(
            "perplexity {:.4} +- {:.4} ({:.5} +- {:.5} nats a token) of {} tokens in {} windows of {}, stride {}, {:.0} tok/s\n",
            self.perplexity,
            self.perplexity_error,
            self.nll,
            self.nll_error,
            self.scored_tokens,
            self.windows,
            self.ctx_tokens,
            self.stride,
            self.tok_s
        )
    }
}

/// Tokens that run together, and those of them whose likelihood counts.
#[derive(Debug, PartialEq)]
struct Window {
    rows: Range<usize>,
    scored: Range<usize>,
}

/// The windows over `tokens` tokens.
fn windows(tokens: usize, ctx: usize, stride: usize) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    let mut start = 0;
    loop {
        let end = tokens.min(start + ctx);
        let first = windows.last().map_or(1, |before| before.rows.end);
        windows.push(Window { rows: start..end, scored: first..end });
        if end == tokens {
            return windows;
        }
        start += stride;
    }
}

/// `-ln softmax(logits)[id]`, summed in f64.
fn negative_log_likelihood(logits: &[f32], id: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    sum.ln() - f64::from(logits[id] - max)
}

/// Mean and spread of a stream of numbers (Welford).
#[derive(Default)]
struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }

    /// Standard error of the mean, as if the values were independent; 0 for a single one.
    fn error(&self) -> f64 {
        let n = self.count as f64;
        if self.count < 2 { 0.0 } else { (self.squares / (n - 1.0) / n).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_token_but_the_first_is_scored_once_and_with_enough_before_it(
            tokens in 2usize..300, ctx in 2usize..80, stride in 1usize..80,
        ) {
            prop_assume!(stride < ctx);
            let mut next = 1;
            for window in windows(tokens, ctx, stride) {
                prop_assert!(window.rows.len() <= ctx && !window.scored.is_empty());
                prop_assert_eq!((window.scored.start, window.scored.end), (next, window.rows.end));
                let before = window.scored.start - window.rows.start;
                let wanted = if window.rows.start == 0 { 1 } else { ctx - stride };
                prop_assert!(before >= wanted);
                next = window.scored.end;
            }
            prop_assert_eq!(next, tokens);
        }

        #[test]
        fn likelihoods_of_all_tokens_sum_to_one(logits in proptest::collection::vec(-90.0f32..90.0, 1..50)) {
            let sum: f64 = (0..logits.len()).map(|id| (-negative_log_likelihood(&logits, id)).exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-12, "{}", sum);
        }

        #[test]
        fn moments_equal_the_two_pass_formula(values in proptest::collection::vec(-9.0f64..9.0, 2..50)) {
            let mut moments = Moments::default();
            values.iter().for_each(|v| moments.add(*v));
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
            prop_assert!((moments.mean - mean).abs() < 1e-12);
            prop_assert!((moments.error() - (variance / n).sqrt()).abs() < 1e-12);
        }
    }
}
