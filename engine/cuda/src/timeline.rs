//! One sequence of tokens on the device: prefill, rounds, rewind, snapshots. The semantics are those of the CPU's.

use std::cell::OnceCell;
use std::sync::Arc;

use cudafast_runtime::sampler::choose;
use cudafast_runtime::{
    BackendError, CancelFlag, LogitEdit, LogitRows, MAX_DEPTH, Penalties, Round, RoundRequest, SamplerScratch,
    Sampling, Snapshot, Timeline, TokenId, TokenLogprobs, checks,
};

use crate::control::{At, CONTROL_ROWS, Control, NONE, Outcome};
use crate::cycle::{Cycle, Part, Workspace};
use crate::driver::{DeviceBuffer, Stream};
use crate::error::CudaError;
use crate::model::Model;
use crate::prefill::Prefill;

/// Logits of `(position, row)` are handed out in runs of as many rows as a round has.
const LOGIT_ROWS: usize = CONTROL_ROWS;

/// The device's timeline. Built by [`CudaBackend::open_timeline`](crate::CudaBackend::open_timeline).
pub struct CudaTimeline {
    cycle: Cycle,
    prefill: Prefill,
    stream: Stream,
    ctx_tokens: usize,
    tokens: Vec<TokenId>,
    pending: Option<TokenId>,
    drafts: Vec<TokenId>,
    /// Row of the round's residual and logits that is the last kept one.
    last: usize,
    /// Its logits on the host, once somebody asked.
    logits: OnceCell<Vec<f32>>,
    /// Rows of the last round that `S` does not hold yet.
    kept: usize,
    /// Log that the next round writes.
    parity: u32,
    /// Rows the last round committed; 0 after anything else.
    round_rows: usize,
    sampler: SamplerScratch,
    /// `[W + V]`: the last row while a round runs of which the host may keep nothing.
    spare: DeviceBuffer<f32>,
    /// Why a call without a result of its own could not be done; the next call says it.
    fault: Option<CudaError>,
}

impl CudaTimeline {
    pub(crate) fn new(model: Arc<Model>, ctx_tokens: usize) -> Result<Self, CudaError> {
        let stream = Stream::new(&model.context)?;
        let last_row = model.hp.wide() + model.hp.vocab;
        Ok(Self {
            spare: DeviceBuffer::new(&model.context, "last row", last_row)?,
            prefill: Prefill::new(&model, &stream, ctx_tokens)?,
            cycle: Cycle::new(model, &stream, ctx_tokens)?,
            stream,
            ctx_tokens,
            tokens: Vec::new(),
            pending: None,
            drafts: Vec::new(),
            last: 0,
            logits: OnceCell::new(),
            kept: 0,
            parity: 0,
            round_rows: 0,
            sampler: SamplerScratch::default(),
            fault: None,
        })
    }

    /// Launches of a round that verifies `rows - 1` drafts and chains `depth`, once one has run.
    pub fn launches(&self, rows: usize, depth: usize) -> Option<usize> {
        self.cycle.nodes(rows, depth)
    }

    /// The draft head's live cache rows, for comparing two timelines: `0..position` once a token is pending.
    pub fn head_rows(&self) -> Result<Option<cudafast_runtime::AttentionState>, BackendError> {
        let rows = if self.pending.is_some() { self.tokens.len() } else { self.tokens.len().saturating_sub(1) };
        let head = &self.work().state.head;
        head.as_ref().map(|caches| caches.download(&self.stream, rows)).transpose().map_err(device("head_rows"))
    }

    fn work(&self) -> &Workspace {
        &self.cycle.work
    }

    fn model(&self) -> &Model {
        &self.cycle.work.model
    }

    fn at(&self) -> At {
        At { position: self.tokens.len() as u32, kept: self.kept as u32, parity: self.parity, spare: 0 }
    }

    /// A control block of rows that follow the state.
    fn control(&self, tokens: &[TokenId]) -> Control {
        let mut control = Control::rows(self.tokens.len(), &self.tokens, tokens);
        control.target = self.at();
        control
    }

    fn check_fault(&mut self, call: &'static str) -> Result<(), BackendError> {
        self.fault.take().map_or(Ok(()), |fault| Err(device(call)(fault)))
    }

    fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), BackendError> {
        checks::tokens(tokens, self.model().hp.vocab)
    }

    fn check_depth(&self, call: &'static str, depth: usize) -> Result<(), BackendError> {
        checks::depth(call, depth, self.model().head.is_some())
    }

    /// Runs one prefill piece, already part of `self.tokens`.
    fn piece(&mut self, n: usize, rows: &mut LogitRows<'_>) -> Result<(), BackendError> {
        let fault = device("prefill");
        let (work, stream) = (&*self.cycle.work, &self.stream);
        let model = &*work.model;
        let position = self.tokens.len() - n;
        self.prefill.run(work, stream, &self.tokens, n, work.residual(self.last, 1)).map_err(&fault)?;
        if let LogitRows::Each(sink) = rows {
            for first in (0..n).step_by(LOGIT_ROWS) {
                let count = LOGIT_ROWS.min(n - first);
                let rows = self.prefill.residual(model, first, count);
                stream.copy(rows, work.residual(0, count)).map_err(&fault)?;
                work.logits_of(stream, count).map_err(&fault)?;
                let logits = stream.download(work.logits(0, count)).map_err(&fault)?;
                checks::finite(&logits, model.hp.vocab, position + first)?;
                for (t, row) in logits.chunks_exact(model.hp.vocab).enumerate() {
                    sink(position + first + t, row);
                }
            }
        }
        stream.copy(self.prefill.residual(model, n - 1, 1), work.residual(0, 1)).map_err(&fault)?;
        work.logits_of(stream, 1).map_err(&fault)?;
        (self.last, self.logits) = (0, OnceCell::new());
        Ok(())
    }

    fn forget_pending(&mut self) {
        self.pending = None;
        self.drafts.clear();
        self.round_rows = 0;
    }

    /// Logits of rows `0..rows` of the last round.
    fn round_logits(&self, rows: usize) -> Result<Vec<f32>, BackendError> {
        self.stream.download(self.work().logits(0, rows)).map_err(device("round"))
    }

    /// Whether the device chooses the tokens of `rows` rows as the host would, and with which mask.
    fn greedy_mask<'a>(&self, request: &RoundRequest<'a>, rows: usize) -> Option<Option<&'a [u32]>> {
        let plain = request.sampling.is_greedy() && *request.sampling.penalties() == Penalties::OFF;
        if !plain || request.stop.len() > CONTROL_ROWS {
            return None;
        }
        let words = self.model().hp.vocab.div_ceil(32);
        let mut masks = (0..rows).map(|t| match request.edits.get(t) {
            None => Some(None),
            Some(edit) if !edit.bias.is_empty() => None,
            Some(edit) => match &edit.allowed {
                // The host refuses what leaves nothing to choose, and says so.
                Some(mask) if mask.len() != words || mask.iter().all(|word| *word == 0) => None,
                mask => Some(mask.as_deref()),
            },
        });
        let first = masks.next()??;
        masks.all(|mask| mask == Some(first)).then_some(first)
    }

    /// Chooses a round's tokens on the host, as the device would have: `(accepted, next)`, or what was wrong with an edit.
    /// The round's rows are the last tokens.
    fn accept(
        &mut self,
        request: &RoundRequest<'_>,
        drafts: &[TokenId],
        logits: &[f32],
    ) -> Result<(usize, TokenId), BackendError> {
        let vocab = self.cycle.work.model.hp.vocab;
        let position = self.tokens.len() - drafts.len() - 1;
        let mut accepted = 0;
        loop {
            let row = &logits[accepted * vocab..(accepted + 1) * vocab];
            // Penalties of a row see the tokens before it.
            let seen = &self.tokens[..position + accepted + 1];
            let token = choose(row, request.edits.get(accepted), request.sampling, seen, &mut self.sampler)?;
            let ended = request.stop.contains(&self.tokens[position + accepted]);
            if ended || accepted == drafts.len() || token != drafts[accepted] {
                return Ok((accepted, token));
            }
            accepted += 1;
        }
    }

    /// Sets the last kept row's residual and logits aside: a round of which nothing is kept leaves them as they were.
    fn keep_last(&self) -> Result<(), CudaError> {
        let (work, wide) = (self.work(), self.model().hp.wide());
        self.stream.copy(work.residual(self.last, 1), self.spare.all().part(0, wide))?;
        self.stream.copy(work.logits(self.last, 1), self.spare.all().part(wide, self.spare.len() - wide))
    }

    fn take_back_last(&mut self) -> Result<(), CudaError> {
        let (work, wide) = (self.work(), self.model().hp.wide());
        self.stream.copy(self.spare.all().part(0, wide), work.residual(0, 1))?;
        self.stream.copy(self.spare.all().part(wide, self.spare.len() - wide), work.logits(0, 1))?;
        self.last = 0;
        Ok(())
    }

    /// What a round's outcome comes to while its rows are the last tokens: numbers, and a token where one was to be chosen.
    fn settled(
        &mut self,
        outcome: Result<Outcome, BackendError>,
        request: &RoundRequest<'_>,
        rows: &[TokenId],
        on_device: bool,
    ) -> Result<Outcome, BackendError> {
        let outcome = outcome?;
        if on_device && outcome.bad_row != NONE {
            let position = self.tokens.len() - rows.len();
            return Err(BackendError::NotFinite { position: position + outcome.bad_row as usize });
        }
        if outcome.next != NONE {
            return Ok(outcome);
        }
        // The host has the words for it.
        let logits = self.round_logits(rows.len())?;
        let found = || BackendError::Misuse { call: "round", why: "the device found no token, the host did".into() };
        Err(self.accept(request, &rows[1..], &logits).err().unwrap_or_else(found))
    }

    /// Rows on the device, tokens on the host, then head and drafts on the device.
    fn sampled_round(
        &mut self,
        request: &RoundRequest<'_>,
        mut control: Control,
        rows: &[TokenId],
    ) -> Result<Outcome, BackendError> {
        let (position, depth) = (self.tokens.len() - rows.len(), request.next_depth);
        let vocab = self.model().hp.vocab;
        self.keep_last().map_err(device("round"))?;
        let run = self.cycle.run(&self.stream, Part::Verify, &mut control, depth, &self.tokens);
        run.map_err(device("round"))?;
        let logits = self.round_logits(rows.len())?;
        checks::finite(&logits, vocab, position)?;
        let (accepted, next) = match self.accept(request, &rows[1..], &logits) {
            Ok(chosen) => chosen,
            Err(refused) => {
                self.take_back_last().map_err(device("round"))?;
                return Err(refused);
            }
        };
        control.accepted = accepted as u32;
        control.next = next;
        for (t, follower) in control.followers.iter_mut().enumerate() {
            *follower = if t < accepted {
                rows[t + 1]
            } else if t == accepted {
                next
            } else {
                0
            };
        }
        control.chain.position = (position + accepted) as u32;
        self.cycle.run(&self.stream, Part::Draft, &mut control, depth, &self.tokens).map_err(device("round"))
    }
}

/// A driver's error as the end of the engine.
pub(crate) fn device(operation: &'static str) -> impl Fn(CudaError) -> BackendError + Copy {
    move |error| BackendError::Device { operation: operation.into(), why: error.to_string() }
}

impl Timeline for CudaTimeline {
    fn position(&self) -> usize {
        self.tokens.len()
    }

    fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    fn pending(&self) -> Option<TokenId> {
        self.pending
    }

    fn drafts(&self) -> &[TokenId] {
        &self.drafts
    }

    fn prefill(
        &mut self,
        tokens: &[TokenId],
        mut rows: LogitRows<'_>,
        cancel: &CancelFlag,
    ) -> Result<(), BackendError> {
        self.check_fault("prefill")?;
        self.check_tokens(tokens)?;
        let needed = self.tokens.len() + tokens.len();
        if needed > self.ctx_tokens {
            return Err(BackendError::ContextFull { needed, limit: self.ctx_tokens });
        }
        self.forget_pending();
        let mut rest = tokens;
        while !rest.is_empty() {
            if cancel.is_raised() {
                return Err(BackendError::Cancelled { position: self.tokens.len() });
            }
            if self.kept > 0 {
                let (at, work) = (self.at(), &*self.cycle.work);
                let settled = work.state.settle(&self.stream, &work.model.kernels, &work.model.hp, at);
                settled.map_err(device("prefill"))?;
                self.kept = 0;
            }
            let (piece, after) = rest.split_at(self.prefill.piece(self.tokens.len(), rest.len()));
            self.tokens.extend_from_slice(piece);
            self.piece(piece.len(), &mut rows)?;
            rest = after;
        }
        if !tokens.is_empty() && matches!(rows, LogitRows::None) {
            let logits = self.stream.download(self.work().logits(0, 1)).map_err(device("prefill"))?;
            checks::finite(&logits, logits.len(), self.tokens.len() - 1)?;
            self.logits = OnceCell::from(logits);
        }
        self.stream.synchronize().map_err(device("prefill"))
    }

    fn last_logits(&self) -> &[f32] {
        if self.tokens.is_empty() {
            return &[];
        }
        // A device that cannot answer has no logits; the next call says why.
        self.logits.get_or_init(|| self.stream.download(self.work().logits(self.last, 1)).unwrap_or_default())
    }

    fn choose(&mut self, sampling: &Sampling, edit: Option<&LogitEdit>, depth: usize) -> Result<TokenId, BackendError> {
        self.check_fault("choose")?;
        self.check_depth("choose", depth)?;
        if self.tokens.is_empty() {
            return Err(BackendError::Misuse {
                call: "choose",
                why: "no row has run yet; prefill at least one token".into(),
            });
        }
        self.last_logits();
        let logits = match self.logits.get() {
            Some(logits) if !logits.is_empty() => logits,
            _ => {
                let again = self.stream.download(self.work().logits(self.last, 1)).map_err(device("choose"))?;
                self.logits = OnceCell::from(again);
                self.logits.get().map_or(&[][..], Vec::as_slice)
            }
        };
        let token = choose(logits, edit, sampling, &self.tokens, &mut self.sampler)?;
        self.pending = Some(token);
        self.drafts.clear();
        if self.model().head.is_some() {
            let position = self.tokens.len() - 1;
            let mut control = Control::rows(position, &self.tokens[..position], &self.tokens[position..]);
            (control.followers[0], control.next) = (token, token);
            let run = self.cycle.draft_behind(&self.stream, self.last, &mut control, depth);
            self.drafts = run.map_err(device("choose"))?.drafts[..depth].to_vec();
        }
        Ok(token)
    }

    fn round(&mut self, request: &RoundRequest<'_>) -> Result<Round, BackendError> {
        self.check_fault("round")?;
        self.check_depth("round", request.next_depth)?;
        let misuse = |why: &str| BackendError::Misuse { call: "round", why: why.into() };
        let fed = self.pending.ok_or_else(|| misuse("nothing is pending; call choose first"))?;
        if request.budget == 0 {
            return Err(misuse("a round commits at least one token, the budget is 0"));
        }
        let position = self.tokens.len();
        if position == self.ctx_tokens {
            return Err(BackendError::ContextFull { needed: position + 1, limit: self.ctx_tokens });
        }
        let drafts = request.drafts.unwrap_or(&self.drafts);
        self.check_tokens(drafts)?;
        let verified = drafts.len().min(MAX_DEPTH).min(request.budget - 1).min(self.ctx_tokens - position - 1);
        let mut rows = vec![fed];
        rows.extend_from_slice(&drafts[..verified]);
        let mut control = self.control(&rows);
        let mask = self.greedy_mask(request, rows.len());
        if let Some(mask) = mask {
            self.cycle.allow(&self.stream, mask).map_err(device("round"))?;
        }
        self.tokens.extend_from_slice(&rows);
        let outcome = match mask {
            Some(_) => {
                control.stop_count = request.stop.len() as u32;
                for (slot, id) in control.stops.iter_mut().zip(request.stop) {
                    *slot = *id;
                }
                let run = self.cycle.run(&self.stream, Part::Whole, &mut control, request.next_depth, &self.tokens);
                run.map_err(device("round"))
            }
            None => self.sampled_round(request, control, &rows),
        };
        // Whatever came of it, S holds what was kept of the round before, and the other log the rows of this one.
        self.parity ^= 1;
        (self.kept, self.round_rows) = (0, 0);
        let outcome = self.settled(outcome, request, &rows, mask.is_some());
        let kept = outcome.as_ref().map_or(0, |outcome| outcome.accepted as usize + 1);
        self.tokens.truncate(position + kept);
        let outcome = outcome?;
        let accepted = kept - 1;
        (self.kept, self.round_rows, self.last) = (kept, kept, accepted);
        self.logits = OnceCell::new();
        self.pending = Some(outcome.next);
        self.drafts.clear();
        if self.model().head.is_some() {
            self.drafts.extend_from_slice(&outcome.drafts[..request.next_depth]);
        }

        let mut logits = Vec::new();
        if request.want_logits || request.top_logprobs.is_some() {
            logits = self.round_logits(kept)?;
        }
        let logprobs = request.top_logprobs.map(|top| {
            let followers = rows[1..kept].iter().copied().chain([outcome.next]);
            let rows = logits.chunks_exact(self.model().hp.vocab).zip(followers);
            rows.map(|(row, id)| TokenLogprobs::of(row, id, top)).collect()
        });
        Ok(Round {
            position,
            committed: self.tokens[position..].to_vec(),
            drafted: verified,
            accepted,
            next: outcome.next,
            drafts: self.drafts.clone(),
            logits: if request.want_logits { logits } else { Vec::new() },
            logprobs: logprobs.unwrap_or_default(),
        })
    }

    fn rewind(&mut self, keep_rows: usize) -> Result<(), BackendError> {
        self.check_fault("rewind")?;
        if keep_rows == 0 || keep_rows > self.round_rows {
            let why = format!("{keep_rows} rows to keep, the last round left {}", self.round_rows);
            return Err(BackendError::Misuse { call: "rewind", why });
        }
        self.tokens.truncate(self.tokens.len() - (self.round_rows - keep_rows));
        (self.kept, self.round_rows, self.last) = (keep_rows, keep_rows, keep_rows - 1);
        self.logits = OnceCell::new();
        self.pending = None;
        self.drafts.clear();
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        // A device that is lost gives an empty copy, which no timeline takes; every later call says what happened.
        self.copy().unwrap_or_else(|_| Snapshot {
            tokens: Vec::new(),
            layers: Vec::new(),
            ngram_conv: Vec::new(),
            residual: Vec::new(),
            logits: Vec::new(),
            head: None,
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), BackendError> {
        self.check_fault("restore")?;
        let mismatch = |why: String| BackendError::SnapshotMismatch { why };
        let rows = snapshot.tokens.len();
        if rows > self.ctx_tokens {
            return Err(mismatch(format!("{rows} tokens, the context holds {}", self.ctx_tokens)));
        }
        self.check_tokens(&snapshot.tokens)?;
        let (work, stream) = (&*self.cycle.work, &self.stream);
        let hp = &work.model.hp;
        work.state.check(hp, &snapshot.layers, rows).map_err(mismatch)?;
        if snapshot.ngram_conv.len() != hp.ngram.conv_history() * hp.wide() {
            return Err(mismatch("n-gram history of another size".into()));
        }
        let (wide, vocab) = if rows == 0 { (0, 0) } else { (hp.wide(), hp.vocab) };
        if snapshot.residual.len() != wide || snapshot.logits.len() != vocab {
            return Err(mismatch("last row of another width".into()));
        }
        let head = match (&work.state.head, &snapshot.head) {
            (Some(caches), Some(from)) if caches.fits(from, rows.saturating_sub(1)) => Some((caches, from)),
            (None, _) => None,
            (Some(_), _) => return Err(mismatch("it holds no rows of this draft head".into())),
        };
        let moved = || {
            if let Some((caches, from)) = head {
                caches.upload(stream, from, rows.saturating_sub(1))?;
            }
            work.state.upload(stream, hp, &snapshot.layers, &snapshot.ngram_conv, rows)?;
            if rows > 0 {
                stream.upload(&snapshot.residual, work.residual(0, 1))?;
                stream.upload(&snapshot.logits, work.logits(0, 1))?;
            }
            Ok(())
        };
        moved().map_err(device("restore"))?;
        self.tokens.clone_from(&snapshot.tokens);
        (self.last, self.kept) = (0, 0);
        self.logits = OnceCell::new();
        self.forget_pending();
        Ok(())
    }

    fn reset(&mut self) {
        self.fault = self.work().state.reset(&self.stream).err();
        self.tokens.clear();
        (self.last, self.kept) = (0, 0);
        self.logits = OnceCell::new();
        self.forget_pending();
    }
}

impl CudaTimeline {
    fn copy(&self) -> Result<Snapshot, CudaError> {
        let (work, stream) = (self.work(), &self.stream);
        let (model, rows) = (&*work.model, self.tokens.len());
        let head = work.state.head.as_ref();
        let (mut residual, mut logits) = (Vec::new(), Vec::new());
        if rows > 0 {
            residual = stream.download(work.residual(self.last, 1))?;
            logits = stream.download(work.logits(self.last, 1))?;
        }
        Ok(Snapshot {
            tokens: self.tokens.clone(),
            layers: work.state.download(stream, &model.kernels, &model.hp, self.at())?,
            ngram_conv: work.state.download_ngram(stream, &model.hp, rows)?,
            residual,
            logits,
            head: head.map(|caches| caches.download(stream, rows.saturating_sub(1))).transpose()?,
        })
    }
}
