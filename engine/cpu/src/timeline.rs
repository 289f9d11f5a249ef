//! One sequence of tokens on the CPU: prefill, rounds, rewind, snapshots.

use std::sync::Arc;

use cudafast_model::{DraftHead, Hyperparams};
use cudafast_runtime::sampler::choose;
use cudafast_runtime::{
    BackendError, CHUNK_TOKENS, CancelFlag, LogitEdit, LogitRows, MAX_DEPTH, Round, RoundRequest, SamplerScratch,
    Sampling, Snapshot, Timeline, TokenId, TokenLogprobs, checks,
};

use crate::head;
use crate::model::{Model, Phase};
use crate::probe::{Probe, Unwatched};
use crate::state::{KvCache, TargetState};

/// Rows of one prefill forward: a multiple of the chunk, so that pieces are cut at absolute multiples of it.
const PREFILL_ROWS: usize = 4 * CHUNK_TOKENS;

/// Rows whose logits are computed together: a row of the real vocabulary is 1 MB. A round needs no more: at most 7 rows, and
/// the sampler's buffers, which are as large as 5.
const LOGIT_ROWS: usize = 16;

/// What a prefill forward works in, at most: the wide rows (residual, normed, gate, query, head input), the delta net's
/// projections, the experts' slots, and the logits.
pub(crate) fn scratch_bytes(hp: &Hyperparams) -> u64 {
    let row = 8 * hp.wide()
        + 3 * hp.gdn.qkv_channels()
        + 2 * hp.gdn.inner()
        + hp.moe.used * (hp.hidden + 3 * hp.moe.expert_ff);
    ((PREFILL_ROWS * row + LOGIT_ROWS * hp.vocab) * size_of::<f32>()) as u64
}

/// The CPU's timeline. Built by [`CpuBackend::open_timeline`](crate::CpuBackend::open_timeline).
pub struct CpuTimeline {
    model: Arc<Model>,
    ctx_tokens: usize,
    state: TargetState,
    head_kv: Option<KvCache>,
    tokens: Vec<TokenId>,
    pending: Option<TokenId>,
    drafts: Vec<TokenId>,
    /// Residual rows of the kept rows of the last forward, `[kept][W]`; the last is `R[position - 1]`.
    residuals: Vec<f32>,
    /// Their logits, `[kept][V]`; after a prefill only the last row's.
    logits: Vec<f32>,
    /// Rows the last round committed; 0 after anything else.
    round_rows: usize,
    probe: Box<dyn Probe + Send>,
    sampler: SamplerScratch,
}

impl CpuTimeline {
    pub(crate) fn new(model: Arc<Model>, ctx_tokens: usize) -> Self {
        let state = TargetState::new(&model.hp, ctx_tokens, model.precision);
        let head_kv = model.head.as_ref().map(|_| KvCache::new(&model.hp, ctx_tokens + MAX_DEPTH, model.precision));
        Self {
            model,
            ctx_tokens,
            state,
            head_kv,
            tokens: Vec::new(),
            pending: None,
            drafts: Vec::new(),
            residuals: Vec::new(),
            logits: Vec::new(),
            round_rows: 0,
            probe: Box::new(Unwatched),
            sampler: SamplerScratch::default(),
        }
    }

    /// Sends intermediate values of every later forward to `probe`.
    pub fn watch(&mut self, probe: Box<dyn Probe + Send>) {
        self.probe = probe;
    }

    /// Teacher-forced head rows: logits `[V]` and "multi" residual `[W]` of the head at `position`, which joins the given
    /// target residual with `next`. Overwrites the head's cache row; for tests and tools.
    pub fn head_row(
        &mut self,
        residual: &[f32],
        next: TokenId,
        position: usize,
    ) -> Result<(Vec<f32>, Vec<f32>), BackendError> {
        let model = Arc::clone(&self.model);
        let (head, kv) = head_of(&model, &mut self.head_kv, "head_row")?;
        let rows = model.head_rows(position, Phase::Decode);
        let multi = head::forward(&model, head, kv, residual, &[next], rows, &mut *self.probe);
        let logits = model.logits(&head.hc_head, &head.output, &multi);
        Ok((logits, multi))
    }

    /// Bytes of the draft head's live cache rows, for comparing two timelines: `0..position` once a token is pending.
    pub fn head_rows(&self) -> Option<cudafast_runtime::AttentionState> {
        let rows = if self.pending.is_some() { self.tokens.len() } else { self.tokens.len().saturating_sub(1) };
        self.head_kv.as_ref().map(|kv| kv.copy(rows))
    }

    fn wide(&self) -> usize {
        self.model.hp.wide()
    }

    fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), BackendError> {
        checks::tokens(tokens, self.model.hp.vocab)
    }

    fn check_depth(&self, call: &'static str, depth: usize) -> Result<(), BackendError> {
        checks::depth(call, depth, self.head_kv.is_some())
    }

    /// Runs one prefill piece, already part of `self.tokens`, and seeds the head up to the row before its last.
    fn prefill_piece(&mut self, n: usize, rows: &mut LogitRows<'_>, last: bool) -> Result<(), BackendError> {
        let model = Arc::clone(&self.model);
        let position = self.tokens.len() - n;
        let x = model.forward(&mut self.state, &self.tokens, n, Phase::Prefill, &mut *self.probe);
        match rows {
            LogitRows::Each(sink) => {
                for (i, x) in x.chunks(LOGIT_ROWS * model.hp.wide()).enumerate() {
                    let logits = model.logits(&model.weights.output_hc, &model.weights.output, x);
                    self.probe.value(
                        model.hp.layers.len() - 1,
                        "logits",
                        position + i * LOGIT_ROWS,
                        model.hp.vocab,
                        &logits,
                    );
                    checks::finite(&logits, model.hp.vocab, position + i * LOGIT_ROWS)?;
                    for (t, row) in logits.chunks_exact(model.hp.vocab).enumerate() {
                        sink(position + i * LOGIT_ROWS + t, row);
                    }
                    self.logits = logits;
                }
                self.logits.drain(..self.logits.len() - model.hp.vocab);
            }
            LogitRows::None if last => {
                let x = &x[(n - 1) * model.hp.wide()..];
                self.logits = model.logits(&model.weights.output_hc, &model.weights.output, x);
                self.probe.value(model.hp.layers.len() - 1, "logits", position + n - 1, model.hp.vocab, &self.logits);
                checks::finite(&self.logits, model.hp.vocab, position + n - 1)?;
            }
            LogitRows::None => {}
        }
        let kept = self.residuals.len();
        self.residuals.drain(..kept - kept.min(model.hp.wide()));
        let first = position - self.residuals.len() / model.hp.wide();
        self.residuals.extend_from_slice(&x);
        if let (Some(head), Some(kv)) = (&model.head, &mut self.head_kv) {
            let end = self.tokens.len() - 1;
            if end > first {
                let known = &self.residuals[..(end - first) * model.hp.wide()];
                let rows = model.head_rows(first, Phase::Prefill);
                head::forward(&model, head, kv, known, &self.tokens[first + 1..], rows, &mut *self.probe);
            }
        }
        self.residuals.drain(..self.residuals.len() - model.hp.wide());
        Ok(())
    }

    /// Seeds the head rows behind the kept residuals, the last one with the pending token, and chains `depth` drafts.
    fn seed_and_draft(&mut self, next: &[TokenId], depth: usize) {
        let model = Arc::clone(&self.model);
        self.drafts.clear();
        let (Some(head), Some(kv)) = (&model.head, &mut self.head_kv) else { return };
        let position = self.tokens.len() - next.len();
        let rows = &self.residuals[self.residuals.len() - next.len() * model.hp.wide()..];
        let at = model.head_rows(position, Phase::Decode);
        let multi = head::forward(&model, head, kv, rows, next, at, &mut *self.probe);
        let mut multi = multi[multi.len() - model.hp.wide()..].to_vec();
        for step in 0..depth {
            if step > 0 {
                let previous = self.drafts[step - 1];
                let at = model.head_rows(self.tokens.len() - 1 + step, Phase::Decode);
                multi = head::forward(&model, head, kv, &multi, &[previous], at, &mut *self.probe);
            }
            self.drafts.push(head::draft(&model, head, &multi, &mut *self.probe));
        }
    }

    fn forget_pending(&mut self) {
        self.pending = None;
        self.drafts.clear();
        self.round_rows = 0;
    }
}

fn head_of<'a>(
    model: &'a Model,
    kv: &'a mut Option<KvCache>,
    call: &'static str,
) -> Result<(&'a DraftHead, &'a mut KvCache), BackendError> {
    match (&model.head, kv) {
        (Some(head), Some(kv)) => Ok((head, kv)),
        _ => Err(BackendError::Misuse { call, why: "no draft head is loaded".into() }),
    }
}

impl Timeline for CpuTimeline {
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
        self.check_tokens(tokens)?;
        let needed = self.tokens.len() + tokens.len();
        if needed > self.ctx_tokens {
            return Err(BackendError::ContextFull { needed, limit: self.ctx_tokens });
        }
        self.forget_pending();
        let mut rest = tokens;
        while !rest.is_empty() {
            if cancel.is_raised() {
                // The last piece's logits were skipped: make the timeline whole.
                if !self.residuals.is_empty() {
                    let model = Arc::clone(&self.model);
                    self.logits = model.logits(&model.weights.output_hc, &model.weights.output, &self.residuals);
                }
                return Err(BackendError::Cancelled { position: self.tokens.len() });
            }
            let room = PREFILL_ROWS - self.tokens.len() % PREFILL_ROWS;
            let (piece, after) = rest.split_at(room.min(rest.len()));
            self.tokens.extend_from_slice(piece);
            self.prefill_piece(piece.len(), &mut rows, after.is_empty())?;
            rest = after;
        }
        Ok(())
    }

    fn last_logits(&self) -> &[f32] {
        &self.logits[self.logits.len().saturating_sub(self.model.hp.vocab)..]
    }

    fn choose(&mut self, sampling: &Sampling, edit: Option<&LogitEdit>, depth: usize) -> Result<TokenId, BackendError> {
        self.check_depth("choose", depth)?;
        if self.tokens.is_empty() {
            return Err(BackendError::Misuse {
                call: "choose",
                why: "no row has run yet; prefill at least one token".into(),
            });
        }
        let row = self.logits.len() - self.model.hp.vocab;
        let token = choose(&self.logits[row..], edit, sampling, &self.tokens, &mut self.sampler)?;
        self.pending = Some(token);
        self.seed_and_draft(&[token], depth);
        Ok(token)
    }

    fn round(&mut self, request: &RoundRequest<'_>) -> Result<Round, BackendError> {
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
        let drafts = drafts[..verified].to_vec();

        let model = Arc::clone(&self.model);
        self.tokens.push(fed);
        self.tokens.extend_from_slice(&drafts);
        let rows = 1 + verified;
        let x = model.forward(&mut self.state, &self.tokens, rows, Phase::Decode, &mut *self.probe);
        let logits = model.logits(&model.weights.output_hc, &model.weights.output, &x);
        self.probe.value(model.hp.layers.len() - 1, "logits", position, model.hp.vocab, &logits);
        checks::finite(&logits, model.hp.vocab, position)?;

        let mut accepted = 0;
        let choice = loop {
            let row = &logits[accepted * model.hp.vocab..(accepted + 1) * model.hp.vocab];
            let edit = request.edits.get(accepted);
            let before = &self.tokens[..position + accepted + 1];
            let token = match choose(row, edit, request.sampling, before, &mut self.sampler) {
                Ok(token) => token,
                Err(e) => break Err(e),
            };
            let ended = request.stop.contains(&self.tokens[position + accepted]);
            if ended || accepted == verified || token != drafts[accepted] {
                break Ok(token);
            }
            accepted += 1;
        };
        let kept = if choice.is_ok() { accepted + 1 } else { 0 };
        self.state.accept(kept);
        self.tokens.truncate(position + kept);
        self.round_rows = kept;
        let next = choice?;

        self.residuals = x[..kept * self.wide()].to_vec();
        self.logits = logits[..kept * model.hp.vocab].to_vec();
        self.pending = Some(next);
        let mut followers = drafts[..accepted].to_vec();
        followers.push(next);
        let rows = self.logits.chunks_exact(model.hp.vocab).zip(&followers);
        let logprobs = request.top_logprobs.map(|top| rows.map(|(row, id)| TokenLogprobs::of(row, *id, top)).collect());
        self.seed_and_draft(&followers, request.next_depth);
        Ok(Round {
            position,
            committed: self.tokens[position..].to_vec(),
            drafted: verified,
            accepted,
            next,
            drafts: self.drafts.clone(),
            logits: if request.want_logits { self.logits.clone() } else { Vec::new() },
            logprobs: logprobs.unwrap_or_default(),
        })
    }

    fn rewind(&mut self, keep_rows: usize) -> Result<(), BackendError> {
        if keep_rows == 0 || keep_rows > self.round_rows {
            let why = format!("{keep_rows} rows to keep, the last round left {}", self.round_rows);
            return Err(BackendError::Misuse { call: "rewind", why });
        }
        self.tokens.truncate(self.tokens.len() - (self.round_rows - keep_rows));
        self.state.accept(keep_rows);
        self.residuals.truncate(keep_rows * self.wide());
        self.logits.truncate(keep_rows * self.model.hp.vocab);
        self.pending = None;
        self.drafts.clear();
        self.round_rows = keep_rows;
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let rows = self.tokens.len();
        Snapshot {
            tokens: self.tokens.clone(),
            layers: self.state.copy(&self.model.hp, rows),
            ngram_conv: self.state.ngram_conv.settled(),
            residual: self.residuals[self.residuals.len().saturating_sub(self.wide())..].to_vec(),
            logits: self.last_logits().to_vec(),
            head: self.head_kv.as_ref().map(|kv| kv.copy(rows.saturating_sub(1))),
        }
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), BackendError> {
        let mismatch = |why: String| BackendError::SnapshotMismatch { why };
        let rows = snapshot.tokens.len();
        if rows > self.ctx_tokens {
            return Err(mismatch(format!("{rows} tokens, the context holds {}", self.ctx_tokens)));
        }
        self.check_tokens(&snapshot.tokens)?;
        self.state.check(&snapshot.layers, rows).map_err(mismatch)?;
        if snapshot.ngram_conv.len() != self.state.ngram_conv.len() {
            return Err(mismatch("n-gram history of another size".into()));
        }
        let (wide, vocab) = if rows == 0 { (0, 0) } else { (self.wide(), self.model.hp.vocab) };
        if snapshot.residual.len() != wide || snapshot.logits.len() != vocab {
            return Err(mismatch("last row of another width".into()));
        }
        match (&mut self.head_kv, &snapshot.head) {
            (Some(kv), Some(from)) if kv.fits(from, rows.saturating_sub(1)) => kv.load(from),
            (None, _) => {}
            (Some(_), _) => return Err(mismatch("it holds no rows of this draft head".into())),
        }
        self.state.load(&snapshot.layers);
        self.state.ngram_conv.restore(&snapshot.ngram_conv);
        self.tokens.clone_from(&snapshot.tokens);
        self.residuals.clone_from(&snapshot.residual);
        self.logits.clone_from(&snapshot.logits);
        self.forget_pending();
        Ok(())
    }

    fn reset(&mut self) {
        self.state.reset();
        self.tokens.clear();
        self.residuals.clear();
        self.logits.clear();
        self.forget_pending();
    }
}
