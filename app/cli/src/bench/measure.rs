//! One row of the table, measured once.

use std::fmt;
use std::iter::Sum;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use cudafast_runtime::{
    CancelFlag, Finish, GenerateOptions, LogitRows, RoundRequest, Sampling, Session, Timeline, TimelineOptions, TokenId,
};
use serde::Serialize;

use super::host;
use crate::args::{BenchArgs, Depth};
use crate::failure::Failure;
use crate::load::Loaded;

/// What a row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// A prompt of so many pseudo-random tokens, from an empty state.
    Prefill { tokens: usize },
    /// So many greedy tokens after the first, behind each prompt of real text; stop tokens do not end it.
    Generate { tokens: usize, depth: Depth },
    /// Rounds of so many rows: the pending token and pseudo-random drafts, which pick experts of their own. Without the
    /// choice of the next token and without drafting.
    Verify { rows: usize },
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Prefill { tokens } => write!(f, "pp {tokens}"),
            Test::Generate { tokens, depth: Depth::Auto } => write!(f, "tg {tokens} auto"),
            Test::Generate { tokens, depth: Depth::Fixed(0) } => write!(f, "tg {tokens}"),
            Test::Generate { tokens, depth: Depth::Fixed(depth) } => write!(f, "tg {tokens} d{depth}"),
            Test::Verify { rows } => write!(f, "verify {rows}"),
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Sample {
    pub(crate) tokens: usize,
    pub(crate) seconds: f64,
    pub(crate) tok_s: f64,
    pub(crate) rounds: usize,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    /// Peak resident memory of the process during this sample, mapped weights that were touched included.
    pub(crate) peak_bytes: Option<u64>,
}

impl Sample {
    fn new(tokens: usize, took: Duration) -> Self {
        let seconds = took.as_secs_f64().max(1e-9);
        Self { tokens, seconds, tok_s: tokens as f64 / seconds, ..Self::default() }
    }
}

impl Sum for Sample {
    fn sum<I: Iterator<Item = Self>>(samples: I) -> Self {
        let sum = samples.reduce(|a, b| Self {
            rounds: a.rounds + b.rounds,
            drafted: a.drafted + b.drafted,
            accepted: a.accepted + b.accepted,
            ..Self::new(a.tokens + b.tokens, Duration::from_secs_f64(a.seconds + b.seconds))
        });
        sum.unwrap_or_default()
    }
}

/// A row that can be measured again and again.
pub(crate) struct Lane {
    pub(crate) threads: usize,
    pub(crate) test: Test,
    /// Rounds of a verify.
    rounds: usize,
    prompts: Vec<Vec<TokenId>>,
    drafts: Vec<TokenId>,
    state: State,
}

/// What it runs on, opened once: how many drafts pay is learnt once, too.
enum State {
    Session(Box<Session>),
    Timeline(Box<dyn Timeline>),
}

impl Lane {
    /// Refuses what does not fit the trained context or the memory.
    pub(crate) fn open(loaded: &Loaded, threads: usize, test: Test, args: &BenchArgs) -> Result<Self, Failure> {
        let rounds = args.gen_tokens.iter().copied().max().unwrap_or(0).max(1);
        let texts = match test {
            Test::Prefill { .. } => Vec::new(),
            _ => args.prompt.iter().map(|text| loaded.engine.prompt(text)).collect::<Result<Vec<_>, _>>()?,
        };
        if texts.iter().any(Vec::is_empty) {
            return Err(Failure::NoTokens { name: "--prompt".into() });
        }
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let ctx_tokens = match test {
            Test::Prefill { tokens } => tokens,
            // The first token counts for nothing, the last is never run.
            Test::Generate { tokens, .. } => longest.saturating_add(tokens),
            Test::Verify { rows } => longest.saturating_add(rounds).saturating_add(rows),
        };
        let trained = loaded.trained_tokens();
        if ctx_tokens > trained {
            return Err(Failure::TestTooLong { test: test.to_string(), tokens: ctx_tokens, trained });
        }
        let ids = pseudo_random(loaded);
        let (prompts, drafts) = match test {
            Test::Prefill { tokens } => (vec![ids.take(tokens).collect()], Vec::new()),
            Test::Generate { .. } => (texts, Vec::new()),
            Test::Verify { rows } => (texts, ids.take(rounds * (rows - 1)).collect()),
        };
        let (session, _) = loaded.open_session(ctx_tokens, 0)?;
        let state = match test {
            Test::Verify { .. } => State::Timeline(loaded.engine.backend().open(&TimelineOptions { ctx_tokens })?),
            _ => State::Session(Box::new(session)),
        };
        Ok(Self { threads, test, rounds, prompts, drafts, state })
    }

    /// Tokens that a measurement runs, for progress.
    pub(crate) fn tokens(&self) -> usize {
        match self.test {
            Test::Prefill { tokens } => tokens,
            Test::Generate { tokens, .. } => self.prompts.iter().map(|prompt| prompt.len() + tokens).sum(),
            Test::Verify { rows } => self.rounds * rows,
        }
    }

    pub(crate) fn measure(&mut self, cancel: &CancelFlag) -> Result<Sample, Failure> {
        host::reset_peak();
        let Some(prompt) = self.prompts.first() else { return Ok(Sample::default()) };
        let mut sample = match (self.test, &mut self.state) {
            (Test::Generate { tokens, depth }, State::Session(session)) => {
                let each = self.prompts.iter().map(|prompt| generate(session, prompt, tokens, depth, cancel));
                each.sum::<Result<Sample, Failure>>()?
            }
            (Test::Verify { rows }, State::Timeline(timeline)) => {
                verify(&mut **timeline, prompt, self.rounds, rows, &self.drafts, cancel)?
            }
            (_, State::Session(session)) => {
                session.reset();
                let prefill = session.continue_with(prompt, cancel)?;
                Sample::new(prefill.prompt_tokens, prefill.took)
            }
            (_, State::Timeline(timeline)) => {
                timeline.reset();
                let begun = Instant::now();
                timeline.prefill(prompt, LogitRows::None, cancel)?;
                Sample::new(prompt.len(), begun.elapsed())
            }
        };
        sample.peak_bytes = host::peak_bytes();
        Ok(sample)
    }
}

fn generate(
    session: &mut Session,
    prompt: &[TokenId],
    tokens: usize,
    depth: Depth,
    cancel: &CancelFlag,
) -> Result<Sample, Failure> {
    let options = GenerateOptions { max_tokens: tokens + 1, depth: depth.into(), ..GenerateOptions::default() };
    session.reset();
    let generation = session.generate(prompt, &options, cancel, &mut |_| ControlFlow::Continue(()))?;
    if generation.finish == Finish::Cancelled {
        return Err(Failure::Interrupted);
    }
    let timings = generation.timings;
    Ok(Sample {
        rounds: generation.rounds.len(),
        drafted: generation.drafted(),
        accepted: generation.accepted(),
        ..Sample::new(timings.decode_tokens, timings.decode)
    })
}

/// Rounds of `rows` rows that keep one row each, so that all stand at the positions of a serial run.
fn verify(
    timeline: &mut dyn Timeline,
    prompt: &[TokenId],
    rounds: usize,
    rows: usize,
    drafts: &[TokenId],
    cancel: &CancelFlag,
) -> Result<Sample, Failure> {
    let greedy = Sampling::greedy();
    timeline.reset();
    timeline.prefill(prompt, LogitRows::None, cancel)?;
    let mut took = Duration::ZERO;
    for round in 0..rounds {
        if cancel.is_raised() {
            return Err(Failure::Interrupted);
        }
        timeline.choose(&greedy, None, 0)?;
        let request = RoundRequest {
            next_depth: 0,
            drafts: Some(&drafts[round * (rows - 1)..(round + 1) * (rows - 1)]),
            budget: rows,
            stop: &[],
            sampling: &greedy,
            edits: &[],
            want_logits: false,
            top_logprobs: None,
        };
        let begun = Instant::now();
        timeline.round(&request)?;
        took += begun.elapsed();
        timeline.rewind(1)?;
    }
    Ok(Sample { rounds, ..Sample::new(rounds * rows, took) })
}

/// Ids of the vocabulary's ordinary tokens, the same ones every time: a linear congruential sequence (Knuth's constants),
/// of which the upper half is used.
fn pseudo_random(loaded: &Loaded) -> impl Iterator<Item = TokenId> {
    let tokenizer = loaded.engine.tokenizer();
    let ordinary = |id: &TokenId| !tokenizer.is_special(*id) && !tokenizer.is_unused(*id);
    let ordinary: Vec<TokenId> = (0..tokenizer.vocab_len() as TokenId).filter(ordinary).collect();
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ordinary.get((state >> 32) as usize % ordinary.len().max(1)).copied().unwrap_or(0)
    })
}
