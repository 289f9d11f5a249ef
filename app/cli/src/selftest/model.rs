//! Whole models: the card against the CPU, and the card against itself where bits are promised (design.md 3).
//!
//! Bounds. Logits: both backends quantise activations to int8, but add in other orders, so a value near a rounding boundary
//! may take the next code; 5e-3 of the row's largest logit on 99 % of the rows is what such steps come to, and a selection
//! of blocks or experts that falls the other way is the rest. Everything else is bits: widths, depths, cuts, rewinds,
//! copies.

use cudafast_cpu::{CpuOptions, CpuTimeline};
use cudafast_cuda::{Check, CudaTimeline};
use cudafast_runtime::{
    Backend, CancelFlag, LogitEdit, LogitRows, RoundRequest, Sampling, Snapshot, Timeline, TimelineOptions, TokenId,
};

use crate::args::SelftestArgs;
use crate::failure::Failure;
use crate::load;
use crate::runner::Runner;
use crate::source;

/// Largest difference of a row's logits over the row's largest.
const LOGITS: f64 = 5e-3;
/// Tokens of the prompt: past a chunk of the delta net, and past what small models attend densely.
const PROMPT: usize = 150;
/// Tokens of an answer.
const ANSWER: usize = 48;
/// Deepest draft.
const DEPTHS: usize = 6;
/// Most rows of a round.
const ROWS: usize = 7;

pub(super) type Row = Vec<f32>;

/// Runs the checks on the model that `args` name.
pub(super) fn run(args: &SelftestArgs, each: &mut dyn FnMut(&Check)) -> Result<Vec<Check>, Failure> {
    let whole = Runner::Cpu(CpuOptions::default());
    let (target, head) = source::open_with_head(&args.model, &args.head, &whole)?;
    let options = cudafast_cuda::CudaOptions { device: args.cuda_device, ..cudafast_cuda::CudaOptions::default() };
    let cuda = load::cuda(&target, &head, &options)?;
    let hp = cuda.hyperparams().clone();
    let ctx_tokens = hp.context_tokens.min(4096);
    let open = TimelineOptions { ctx_tokens };
    let mut cpu = load::cpu(&target, &head, &CpuOptions::default())?.open_timeline(&open)?;
    let mut bench = Bench {
        card: cuda.open_timeline(&open)?,
        other: cuda.open_timeline(&open)?,
        vocab: hp.vocab,
        drafting: cuda.has_draft_head(),
        label: target.label().rsplit('/').next().unwrap_or_default().to_owned(),
        only: args.only.clone(),
        checks: Vec::new(),
        each,
    };
    let prompt = pseudo_random(args.seed, hp.vocab, PROMPT.min(ctx_tokens / 3));
    bench.logits(&mut cpu, &prompt)?;
    bench.cuts(&prompt)?;
    bench.rows(&prompt)?;
    bench.serial_against_prefill(&prompt)?;
    bench.drafted(&prompt)?;
    bench.sampled(&prompt)?;
    bench.rewinds(&prompt)?;
    bench.copies(&mut cpu, &prompt)?;
    bench.dirty(&prompt)?;
    Ok(bench.checks)
}

struct Bench<'a> {
    card: CudaTimeline,
    other: CudaTimeline,
    vocab: usize,
    drafting: bool,
    label: String,
    only: String,
    checks: Vec<Check>,
    each: &'a mut dyn FnMut(&Check),
}

pub(super) fn pseudo_random(seed: u64, vocab: usize, count: usize) -> Vec<TokenId> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % vocab) as TokenId
    })
    .take(count)
    .collect()
}

pub(super) fn prefill(timeline: &mut dyn Timeline, tokens: &[TokenId]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    timeline.prefill(tokens, LogitRows::Each(&mut |_, row| rows.push(row.to_vec())), &CancelFlag::default())?;
    Ok(rows)
}

pub(super) fn quiet_prefill(timeline: &mut dyn Timeline, tokens: &[TokenId]) -> Result<(), Failure> {
    Ok(timeline.prefill(tokens, LogitRows::None, &CancelFlag::default())?)
}

fn argmax(row: &[f32]) -> usize {
    row.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (i, v)| if *v > best.1 { (i, *v) } else { best }).0
}

/// Largest difference over the largest magnitude of `want`.
pub(super) fn relative(got: &[f32], want: &[f32]) -> f64 {
    let top = want.iter().fold(0.0_f32, |top, v| top.max(v.abs())).max(f32::MIN_POSITIVE);
    let off = got.iter().zip(want).map(|(g, w)| f64::from((g - w).abs())).fold(0.0, f64::max);
    if got.len() == want.len() && got.iter().all(|v| v.is_finite()) { off / f64::from(top) } else { f64::INFINITY }
}

pub(super) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn request<'a>(sampling: &'a Sampling, next_depth: usize, budget: usize) -> RoundRequest<'a> {
    RoundRequest {
        next_depth,
        drafts: None,
        budget,
        stop: &[],
        sampling,
        edits: &[],
        want_logits: true,
        top_logprobs: None,
    }
}

/// What a run of rounds made.
#[derive(Default)]
pub(super) struct Answer {
    tokens: Vec<TokenId>,
    pub(super) rows: Vec<Row>,
    drafted: usize,
    accepted: usize,
}

/// `count` tokens behind the present state, `depth` drafts a round; every third round verifies drafts of which the last is
/// wrong on purpose, and every fourth none.
pub(super) fn answer(
    timeline: &mut dyn Timeline,
    sampling: &Sampling,
    depth: usize,
    count: usize,
    vocab: usize,
) -> Result<Answer, Failure> {
    let mut made = Answer::default();
    let first = timeline.choose(sampling, None, depth)?;
    made.tokens.push(first);
    for turn in 1.. {
        if made.tokens.len() >= count {
            break;
        }
        let mut forced: Option<Vec<TokenId>> = None;
        if depth > 0 && turn % 3 == 0 {
            let mut drafts = timeline.drafts().to_vec();
            if let Some(last) = drafts.last_mut() {
                *last = (*last + 1) % vocab as TokenId;
            }
            forced = Some(drafts);
        } else if depth > 0 && turn % 4 == 0 {
            forced = Some(Vec::new());
        }
        let left = count - made.tokens.len();
        let round = timeline.round(&RoundRequest { drafts: forced.as_deref(), ..request(sampling, depth, left) })?;
        made.drafted += round.drafted;
        made.accepted += round.accepted;
        made.tokens.extend(&round.committed[1..]);
        made.tokens.push(round.next);
        made.rows.extend(round.logits.chunks_exact(vocab).map(<[f32]>::to_vec));
    }
    Ok(made)
}

impl Bench<'_> {
    fn wanted(&self, op: &str) -> bool {
        op.starts_with(&self.only) || self.only.starts_with(op)
    }

    fn tell(&mut self, op: &str, shape: String, error: f64, bound: f64, ok: bool, note: String) {
        let check = Check { op: op.into(), shape: format!("{} {shape}", self.label), error, bound, ok, note };
        (self.each)(&check);
        self.checks.push(check);
    }

    fn bits(&mut self, op: &str, shape: String, ok: bool, note: String) {
        self.tell(op, shape, 0.0, 0.0, ok, note);
    }

    fn rows_bits(&mut self, op: &str, shape: String, got: &[Row], want: &[Row]) {
        let first = got.iter().zip(want).position(|(got, want)| !same_bits(got, want));
        let note = match first {
            Some(at) => format!("row {at} of {}: off by {:.1e}", want.len(), relative(&got[at], &want[at])),
            None if got.len() != want.len() => format!("{} rows, expected {}", got.len(), want.len()),
            None => String::new(),
        };
        self.bits(op, shape, first.is_none() && got.len() == want.len(), note);
    }

    /// Prompt rows of both backends.
    fn logits(&mut self, cpu: &mut CpuTimeline, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.logits") {
            return Ok(());
        }
        self.card.reset();
        cpu.reset();
        let (got, want) = (prefill(&mut self.card, prompt)?, prefill(cpu, prompt)?);
        self.compare("model.logits", format!("prefill of {}", prompt.len()), &got, &want);
        Ok(())
    }

    fn compare(&mut self, op: &str, shape: String, got: &[Row], want: &[Row]) {
        let mut errors: Vec<f64> = got.iter().zip(want).map(|(got, want)| relative(got, want)).collect();
        let flips = got.iter().zip(want).filter(|(got, want)| argmax(got) != argmax(want)).count();
        let worst = errors.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or((0, 0.0), |(i, e)| (i, *e));
        errors.sort_by(f64::total_cmp);
        let most = errors.get((errors.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::INFINITY);
        let note =
            format!("{flips} of {} rows choose another token, worst {:.1e} at row {}", want.len(), worst.1, worst.0);
        let ok = got.len() == want.len() && most <= LOGITS;
        self.tell(op, shape, most, LOGITS, ok, note);
    }

    /// A prompt cut at multiples of the chunk, against the prompt at once.
    fn cuts(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.cuts") {
            return Ok(());
        }
        self.card.reset();
        let want = prefill(&mut self.card, prompt)?;
        for cut in [64, 128].into_iter().filter(|cut| *cut < prompt.len()) {
            self.other.reset();
            let mut got = prefill(&mut self.other, &prompt[..cut])?;
            got.extend(prefill(&mut self.other, &prompt[cut..])?);
            self.rows_bits("model.cuts", format!("prefill cut at {cut}"), &got, &want);
        }
        let last = want.last().map(Vec::as_slice).unwrap_or_default();
        let same = same_bits(self.card.last_logits(), last);
        self.bits("model.cuts", "the last row's logits stay".into(), same, String::new());
        Ok(())
    }

    /// Verify rows of every width, the tokens forced by a mask, against width 1.
    fn rows(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.rows") {
            return Ok(());
        }
        let (start, rest) = prompt.split_at(prompt.len() / 2);
        let words = self.vocab.div_ceil(32);
        let only = |id: TokenId| {
            let mut mask = vec![0; words];
            mask[id as usize / 32] |= 1 << (id % 32);
            LogitEdit { bias: Vec::new(), allowed: Some(mask) }
        };
        let greedy = Sampling::greedy();
        let mut serial: Vec<Row> = Vec::new();
        for width in 1..=ROWS {
            self.card.reset();
            quiet_prefill(&mut self.card, start)?;
            self.card.choose(&greedy, rest.first().map(|id| only(*id)).as_ref(), 0)?;
            let mut rows = Vec::new();
            let mut at = 0;
            while at + width < rest.len() {
                let edits: Vec<LogitEdit> = rest[at + 1..=at + width].iter().map(|id| only(*id)).collect();
                let drafts = &rest[at + 1..at + width];
                let round = self.card.round(&RoundRequest {
                    drafts: Some(drafts),
                    edits: &edits,
                    ..request(&greedy, 0, width)
                })?;
                rows.extend(round.logits.chunks_exact(self.vocab).map(<[f32]>::to_vec));
                at += round.committed.len();
            }
            if width == 1 {
                serial = rows;
            } else {
                let want = serial[..rows.len().min(serial.len())].to_vec();
                self.rows_bits("model.rows", format!("width {width}, {} rows", rows.len()), &rows, &want);
            }
        }
        Ok(())
    }

    /// Decode rows against prompt rows of the same tokens: other kernels, other orders.
    fn serial_against_prefill(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.decode") {
            return Ok(());
        }
        self.card.reset();
        quiet_prefill(&mut self.card, &prompt[..prompt.len() / 2])?;
        let made = answer(&mut self.card, &Sampling::greedy(), 0, ANSWER, self.vocab)?;
        let whole = [&prompt[..prompt.len() / 2], &made.tokens].concat();
        self.other.reset();
        let all = prefill(&mut self.other, &whole)?;
        let want = &all[prompt.len() / 2..][..made.rows.len()];
        self.compare("model.decode", format!("{} serial rows against prefill", want.len()), &made.rows, want);
        Ok(())
    }

    /// Greedy answers of every depth, with drafts spoilt on purpose, against serial.
    fn drafted(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.drafting || !self.wanted("model.greedy") {
            return Ok(());
        }
        self.same_answers("model.greedy", prompt, &Sampling::greedy())
    }

    /// The same for a sampled answer.
    fn sampled(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.drafting || !self.wanted("model.sampled") {
            return Ok(());
        }
        let sampling = Sampling::new(0.8, 20, 0.95, 0.0, 7)?;
        self.same_answers("model.sampled", prompt, &sampling)
    }

    fn same_answers(&mut self, op: &str, prompt: &[TokenId], sampling: &Sampling) -> Result<(), Failure> {
        self.card.reset();
        quiet_prefill(&mut self.card, prompt)?;
        let want = answer(&mut self.card, sampling, 0, ANSWER, self.vocab)?;
        for depth in 1..=DEPTHS {
            self.other.reset();
            quiet_prefill(&mut self.other, prompt)?;
            let got = answer(&mut self.other, sampling, depth, ANSWER, self.vocab)?;
            let tokens = got.tokens.iter().zip(&want.tokens).position(|(a, b)| a != b);
            let shape = format!("depth {depth}, accepted {} of {}", got.accepted, got.drafted);
            if let Some(at) = tokens {
                self.bits(op, shape, false, format!("token {at} differs"));
            } else {
                let rows = got.rows.len().min(want.rows.len());
                self.rows_bits(op, shape, &got.rows[..rows], &want.rows[..rows]);
            }
        }
        Ok(())
    }

    /// Taking back rows of a round, against never having run them.
    fn rewinds(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.rewind") {
            return Ok(());
        }
        let greedy = Sampling::greedy();
        let mut serial = Vec::new();
        for depth in [0, 5] {
            self.card.reset();
            quiet_prefill(&mut self.card, prompt)?;
            if depth == 0 {
                serial = answer(&mut self.card, &greedy, 0, 24, self.vocab)?.tokens;
            }
        }
        for keep in 1..=4 {
            self.card.reset();
            quiet_prefill(&mut self.card, prompt)?;
            self.card.choose(&greedy, None, 0)?;
            // The answer's own tokens as drafts: all are accepted.
            let round = self.card.round(&RoundRequest { drafts: Some(&serial[1..5]), ..request(&greedy, 0, 7) })?;
            let committed = round.committed.len();
            self.card.rewind(keep)?;
            let got = answer(&mut self.card, &greedy, 0, 24 - keep, self.vocab)?;
            let ok = committed == 5 && got.tokens == serial[keep..];
            let first = got.tokens.iter().zip(&serial[keep..]).position(|(a, b)| a != b);
            let note = format!("{committed} committed, first other token {first:?}");
            self.bits("model.rewind", format!("keep {keep} of 5"), ok, if ok { String::new() } else { note });
        }
        Ok(())
    }

    /// States moved from card to card, card to CPU and CPU to card.
    fn copies(&mut self, cpu: &mut CpuTimeline, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.snapshot") {
            return Ok(());
        }
        let greedy = Sampling::greedy();
        self.card.reset();
        quiet_prefill(&mut self.card, prompt)?;
        let depth = if self.drafting { 2 } else { 0 };
        // Behind rounds, so that rows wait in the log.
        answer(&mut self.card, &greedy, depth, 9, self.vocab)?;
        let copy = self.card.snapshot();
        self.other.restore(&copy)?;
        let again = self.other.snapshot();
        self.bits("model.snapshot", "copied back unchanged".into(), same_state(&again, &copy), String::new());
        let (a, b) = (
            answer(&mut self.card, &greedy, depth, 20, self.vocab)?,
            answer(&mut self.other, &greedy, depth, 20, self.vocab)?,
        );
        self.bits("model.snapshot", "goes on as the original".into(), a.tokens == b.tokens, String::new());
        self.rows_bits("model.snapshot", "rows of both".into(), &b.rows, &a.rows);

        cpu.restore(&copy)?;
        let moved = cpu.snapshot();
        self.bits("model.snapshot", "card to CPU unchanged".into(), same_state(&moved, &copy), String::new());
        self.other.restore(&copy)?;
        let forced = &pseudo_random(3, self.vocab, 24)[..];
        let (got, want) = (prefill(&mut self.other, forced)?, prefill(cpu, forced)?);
        self.compare("model.snapshot", "both go on from the card's state".into(), &got, &want);

        cpu.reset();
        quiet_prefill(cpu, prompt)?;
        answer(cpu, &greedy, depth, 9, self.vocab)?;
        let copy = cpu.snapshot();
        self.other.restore(&copy)?;
        let moved = self.other.snapshot();
        self.bits("model.snapshot", "CPU to card unchanged".into(), same_state(&moved, &copy), String::new());
        let (got, want) = (prefill(&mut self.other, forced)?, prefill(cpu, forced)?);
        self.compare("model.snapshot", "both go on from the CPU's state".into(), &got, &want);
        Ok(())
    }

    /// A prompt after another prompt, and after a cut-short answer, against a fresh timeline.
    fn dirty(&mut self, prompt: &[TokenId]) -> Result<(), Failure> {
        if !self.wanted("model.dirty") {
            return Ok(());
        }
        let depth = if self.drafting { 3 } else { 0 };
        self.card.reset();
        quiet_prefill(&mut self.card, &pseudo_random(11, self.vocab, prompt.len() + 40))?;
        answer(&mut self.card, &Sampling::greedy(), depth, 20, self.vocab)?;
        self.card.reset();
        let got = prefill(&mut self.card, prompt)?;
        self.other.reset();
        let want = prefill(&mut self.other, prompt)?;
        self.rows_bits("model.dirty", "same prompt after another".into(), &got, &want);
        Ok(())
    }
}

/// Bit for bit; `PartialEq` would call -0 and 0 the same, and a NaN another.
fn same_state(a: &Snapshot, b: &Snapshot) -> bool {
    a.tokens == b.tokens
        && a.layers == b.layers
        && a.head == b.head
        && same_bits(&a.ngram_conv, &b.ngram_conv)
        && same_bits(&a.residual, &b.residual)
        && same_bits(&a.logits, &b.logits)
}
