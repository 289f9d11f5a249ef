//! The correctness gate: a golden's cases, anchors and free runs against an engine (benchd.md 11).
//!
//! [`run_conformance`] drives an [`Engine`], which a worker session implements, and judges what it answers. It stops at the
//! first case that fails, since nothing behind it is reported. No text it gives names a token of the golden.

use std::fmt;

use crate::engine::{Answer, Engine, TIE_TOLERANCE};
use crate::fidelity::Budget;
use crate::golden::{Anchor, Case, FreeRun, Golden};

/// How much of a golden is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Its cases.
    Cases,
    /// Anchors and free runs too.
    Full,
}

/// What is wrong with a failing case; its text is the sealed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// More steps of a case left it than the budget allows.
    TeacherForced,
    /// An anchor's answer is none of those it accepts.
    Anchor,
    /// A free run does not begin as it must.
    FreeRun,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TeacherForced => "teacher-forced token mismatch",
            Self::Anchor => "anchor token mismatch",
            Self::FreeRun => "free-run token mismatch",
        })
    }
}

/// The first case that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub kind: Kind,
    /// Its name in the golden.
    pub case: String,
    /// Its first wrong step, from 0.
    pub step: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in `{}` at step {}", self.kind, self.case, self.step)
    }
}

/// The verdict on an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conformance {
    /// Of the golden, run or not.
    pub case_count: usize,
    /// Up to the first wrong step of the first failing case.
    pub checked_steps: usize,
    /// Steps of passing cases that left the golden inside the budget.
    pub tolerated: usize,
    /// Why not, or nothing.
    pub failure: Option<Failure>,
}

impl Conformance {
    /// Whether every case that was to be run passed.
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// No verdict.
#[derive(Debug, thiserror::Error)]
pub enum ConformanceError<E> {
    /// The engine, or the way to it, failed.
    #[error(transparent)]
    Engine(E),
    /// The golden was loaded for fewer steps than are to be run.
    #[error("{case}: {need} steps are to be run and {found} are known; load the golden for the steps of the run")]
    Steps {
        /// Which case.
        case: String,
        /// Known tokens.
        found: usize,
        /// Wanted steps.
        need: usize,
    },
}

/// Runs a golden: its cases, then with [`Scope::Full`] its anchors, then its free runs, each on a drained engine. The last
/// phase is left open for the caller to close.
pub fn run_conformance<E: Engine>(
    engine: &mut E,
    golden: &Golden,
    steps: usize,
    scope: Scope,
    vocab_size: i64,
) -> Result<Conformance, ConformanceError<E::Error>> {
    let mut found = Conformance { case_count: golden.case_count(), checked_steps: 0, tolerated: 0, failure: None };
    for case in golden.cases() {
        let forced = teacher_forced(engine, case, steps, vocab_size)?;
        if found.count(Kind::TeacherForced, &case.name, forced) {
            return Ok(found);
        }
    }
    if scope == Scope::Cases {
        return Ok(found);
    }
    for anchor in golden.anchors() {
        engine.next_phase().map_err(ConformanceError::Engine)?;
        let answer = engine.begin(&anchor.context_tokens).map_err(ConformanceError::Engine)?;
        let run =
            Run { steps: 1, first_wrong: (!anchor_passes(anchor, &answer, vocab_size)).then_some(0), tolerated: 0 };
        if found.count(Kind::Anchor, &anchor.name, run) {
            return Ok(found);
        }
    }
    for free_run in golden.free_runs() {
        engine.next_phase().map_err(ConformanceError::Engine)?;
        let tokens = engine
            .free_run(&free_run.prompt_tokens, free_run.expected_tokens.len())
            .map_err(ConformanceError::Engine)?;
        if found.count(Kind::FreeRun, &free_run.name, compare_free_run(free_run, &tokens)) {
            return Ok(found);
        }
    }
    Ok(found)
}

/// One sequence: how long it is and where it failed, if it did.
struct Run {
    steps: usize,
    first_wrong: Option<usize>,
    tolerated: usize,
}

impl Conformance {
    /// Adds a sequence; whether it failed.
    fn count(&mut self, kind: Kind, case: &str, run: Run) -> bool {
        self.checked_steps += run.first_wrong.map_or(run.steps, |step| step + 1);
        self.tolerated += run.tolerated;
        self.failure = run.first_wrong.map(|step| Failure { kind, case: case.to_owned(), step });
        self.failure.is_some()
    }
}

/// Feeds the golden's tokens, whatever the engine answers, and walks every step.
fn teacher_forced<E: Engine>(
    engine: &mut E,
    case: &Case,
    steps: usize,
    vocab_size: i64,
) -> Result<Run, ConformanceError<E::Error>> {
    let expected = match case.expected_tokens.get(..steps) {
        Some(expected) if steps > 0 => expected,
        _ => {
            let found = case.expected_tokens.len();
            return Err(ConformanceError::Steps { case: case.name.clone(), found, need: steps });
        }
    };
    engine.next_phase().map_err(ConformanceError::Engine)?;
    let (mut mismatches, mut first) = (0, None);
    let mut fed = None;
    for (step, &token) in expected.iter().enumerate() {
        let answer = match fed {
            None => engine.begin(&case.prompt_tokens),
            Some(fed) => engine.step(fed),
        };
        if !answer.map_err(ConformanceError::Engine)?.agrees_with(token, vocab_size) {
            mismatches += 1;
            first = first.or(Some(step));
        }
        fed = Some(token);
    }
    Ok(match Budget::TRACK.is_exceeded(mismatches, steps) {
        true => Run { steps, first_wrong: first, tolerated: 0 },
        false => Run { steps, first_wrong: None, tolerated: mismatches },
    })
}

/// By the candidates' logits, not by what the engine says its token is, nor by the list's order.
fn anchor_passes(anchor: &Anchor, answer: &Answer, vocab_size: i64) -> bool {
    let ranked = answer.by_logit().unwrap_or_default();
    let Some(argmax) = ranked.first() else { return false };
    let mut accepted = anchor.accepted_tokens.iter().flatten().chain([&anchor.expected_token]);
    if accepted.any(|&token| token == argmax.token || answer.ties_with_top(token, vocab_size)) {
        return true;
    }
    let place = ranked.iter().position(|entry| entry.token == anchor.expected_token);
    let delta = anchor.max_top_logit_delta.unwrap_or(TIE_TOLERANCE);
    match (anchor.max_expected_rank, place) {
        // Ranks count from 1.
        (Some(most), Some(place)) => (place as i64) < most && argmax.logit - ranked[place].logit <= delta,
        _ => false,
    }
}

fn compare_free_run(free_run: &FreeRun, tokens: &[i64]) -> Run {
    let all = free_run.expected_tokens.len();
    // The loader holds it to 1..=all.
    let steps = free_run.exact_prefix_tokens.map_or(all, |prefix| usize::try_from(prefix).unwrap_or(all).min(all));
    let first_wrong = (0..steps).find(|&step| tokens.get(step) != free_run.expected_tokens.get(step));
    Run { steps, first_wrong, tolerated: 0 }
}

#[cfg(test)]
mod tests;
