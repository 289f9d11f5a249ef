//! What a generation cost, for people and for programs.

use std::time::Duration;

use cudafast_model::MemoryPlan;
use cudafast_runtime::{Finish, Generation, RoundStat, Timings, TokenId};
use cudafast_text::Tokenizer;
use serde::Serialize;

/// Drafting of a generation; stable for other programs.
#[derive(Debug, Serialize)]
pub(crate) struct RoundsReport {
    count: usize,
    drafted: usize,
    accepted: usize,
    /// Accepted over drafted; null where nothing was drafted.
    acceptance: Option<f64>,
    each: Vec<RoundReport>,
}

#[derive(Debug, Serialize)]
struct RoundReport {
    position: usize,
    drafted: usize,
    accepted: usize,
}

/// Log-probabilities of a token; stable for other programs.
#[derive(Debug, Serialize)]
pub(crate) struct LogprobsReport {
    id: TokenId,
    /// Its text; what is no whole character is replaced.
    token: String,
    logprob: f32,
    top: Vec<TopReport>,
}

#[derive(Debug, Serialize)]
struct TopReport {
    id: TokenId,
    token: String,
    logprob: f32,
}

/// Times of a generation in milliseconds; stable for other programs.
#[derive(Debug, Serialize)]
pub(crate) struct TimingsReport {
    load_ms: f64,
    prefill_tokens: usize,
    cached_tokens: usize,
    prefill_ms: f64,
    prefill_tok_s: Option<f64>,
    first_token_ms: f64,
    /// Tokens after the first, and the time after it.
    decode_tokens: usize,
    decode_ms: f64,
    decode_tok_s: Option<f64>,
}

/// A plan's lines; stable for other programs.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryReport {
    total_bytes: u64,
    lines: Vec<MemoryLine>,
}

#[derive(Debug, Serialize)]
struct MemoryLine {
    item: String,
    bytes: u64,
    home: String,
}

impl RoundsReport {
    pub(crate) fn of(generation: &Generation) -> Self {
        let each = |r: &RoundStat| RoundReport { position: r.position, drafted: r.drafted, accepted: r.accepted };
        Self {
            count: generation.rounds.len(),
            drafted: generation.drafted(),
            accepted: generation.accepted(),
            acceptance: acceptance(generation),
            each: generation.rounds.iter().map(each).collect(),
        }
    }
}

impl LogprobsReport {
    /// One entry per token.
    pub(crate) fn of(generation: &Generation, tokenizer: &Tokenizer) -> Vec<Self> {
        let text = |id: TokenId| tokenizer.decode(&[id]);
        let top = |&(id, logprob): &(TokenId, f32)| TopReport { id, token: text(id), logprob };
        let tokens = generation.tokens.iter().zip(&generation.logprobs);
        let each = tokens.map(|(&id, logprobs)| Self {
            id,
            token: text(id),
            logprob: logprobs.logprob,
            top: logprobs.top.iter().map(top).collect(),
        });
        each.collect()
    }
}

impl TimingsReport {
    pub(crate) fn of(timings: &Timings, load: Duration) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            load_ms: ms(load),
            prefill_tokens: timings.prefill_tokens,
            cached_tokens: timings.cached_tokens,
            prefill_ms: ms(timings.prefill),
            prefill_tok_s: timings.prefill_tok_s(),
            first_token_ms: ms(timings.first_token),
            decode_tokens: timings.decode_tokens,
            decode_ms: ms(timings.decode),
            decode_tok_s: timings.decode_tok_s(),
        }
    }
}

impl MemoryReport {
    pub(crate) fn of(plan: &MemoryPlan) -> Self {
        let line = |line: &cudafast_model::PlanLine| MemoryLine {
            item: line.item.to_string(),
            bytes: line.bytes,
            home: line.home.to_string(),
        };
        Self { total_bytes: plan.total(), lines: plan.lines().iter().map(line).collect() }
    }
}

/// The word for JSON.
pub(crate) fn finish_word(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::StopString(_) => "stop_string",
        Finish::Length => "length",
        Finish::Cancelled => "cancelled",
        Finish::ContextFull => "context_full",
    }
}

/// One line: prompt and its speed, tokens and their speed, acceptance, memory, and whatever was out of the ordinary.
/// `can_grow`: the model was trained for more context than there was.
pub(crate) fn summary(generation: &Generation, plan: &MemoryPlan, can_grow: bool) -> String {
    let timings = &generation.timings;
    let mut line = format!("{} prompt tokens{}", timings.prefill_tokens, speed(timings.prefill_tok_s()));
    if timings.cached_tokens > 0 {
        line += &format!(" ({} more were cached)", timings.cached_tokens);
    }
    line += &format!(", {} generated{}", generation.tokens.len(), speed(timings.decode_tok_s()));
    line += &match acceptance(generation) {
        Some(share) => format!(
            ", {:.0} % of {} drafts accepted ({:.2} tokens per round)",
            100.0 * share,
            generation.drafted(),
            1.0 + generation.accepted() as f64 / generation.rounds.len().max(1) as f64
        ),
        None => ", no drafts".into(),
    };
    line += &format!(", memory {:.1} MiB", plan.total() as f64 / f64::from(1 << 20));
    line + unusual(generation.finish, can_grow)
}

/// What is to be said of an end that nobody asked for.
fn unusual(finish: Finish, can_grow: bool) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopString(_) | Finish::Length => "",
        Finish::Cancelled => "; cancelled",
        Finish::ContextFull if can_grow => "; the context is full, raise --ctx-tokens",
        Finish::ContextFull => "; the context is full, and the model was trained for no more",
    }
}

fn acceptance(generation: &Generation) -> Option<f64> {
    let drafted = generation.drafted();
    (drafted > 0).then(|| generation.accepted() as f64 / drafted as f64)
}

fn speed(tok_s: Option<f64>) -> String {
    match tok_s {
        Some(tok_s) if tok_s < 100.0 => format!(" at {tok_s:.1} tok/s"),
        Some(tok_s) => format!(" at {tok_s:.0} tok/s"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(rounds: &[(usize, usize)]) -> Generation {
        let rounds = rounds.iter().map(|r| RoundStat { position: 0, drafted: r.0, accepted: r.1 }).collect();
        let timings = Timings { decode_tokens: 30, decode: Duration::from_millis(500), ..Timings::default() };
        let (tokens, text, logprobs) = (vec![1; 31], String::new(), Vec::new());
        Generation { tokens, text, logprobs, finish: Finish::Length, rounds, timings }
    }

    #[test]
    fn acceptance_is_accepted_over_drafted_and_null_without_drafts() {
        let report = RoundsReport::of(&generation(&[(2, 2), (2, 1), (0, 0)]));
        assert_eq!((report.count, report.drafted, report.accepted, report.acceptance), (3, 4, 3, Some(0.75)));
        let serial = serde_json::to_value(RoundsReport::of(&generation(&[(0, 0)]))).unwrap();
        assert!(serial["acceptance"].is_null());
    }

    #[test]
    fn a_full_context_is_to_be_raised_only_where_it_can_be() {
        assert!(unusual(Finish::ContextFull, true).ends_with("raise --ctx-tokens"));
        assert!(unusual(Finish::ContextFull, false).ends_with("trained for no more"));
    }

    #[test]
    fn speeds_keep_three_figures() {
        assert_eq!(speed(Some(60.04)), " at 60.0 tok/s");
        assert_eq!(speed(Some(1234.5)), " at 1234 tok/s");
        assert_eq!(speed(None), "");
    }
}
