//! One timeline of tokens: prefix reuse and generation.

use std::ops::ControlFlow;
use std::time::Instant;

use cudafast_model::Hyperparams;
use cudafast_text::Tokenizer;

use crate::backend::{
    BackendError, CHUNK_TOKENS, CancelFlag, LogitEdit, LogitRows, MAX_DEPTH, RoundRequest, Timeline, TokenId,
};
use crate::depth::{DepthChooser, DepthPolicy, RoundCost};
use crate::error::Error;
use crate::generation::{Finish, GenEvent, GenerateOptions, Generation, Prefill, RoundStat, Run};
use crate::logprobs::TokenLogprobs;
use crate::prefix::{SnapshotStore, Start};

/// How a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Most tokens it can hold.
    pub ctx_tokens: usize,
    /// Snapshots kept for prompts that share a beginning; 0 for a single prompt. Each is a copy of the whole state.
    pub snapshots: usize,
}

/// One timeline of tokens with all state between them, opened by [`Engine::open_session`](crate::Engine::open_session).
pub struct Session {
    timeline: Box<dyn Timeline>,
    tokenizer: Tokenizer,
    ctx_tokens: usize,
    trained_tokens: usize,
    vocab: usize,
    has_draft_head: bool,
    snapshots: SnapshotStore,
    /// Kept between generations: what rounds cost is learnt once.
    depth: DepthChooser,
    /// One bit per id that may be chosen; `None` where all may.
    allowed: Option<Vec<u32>>,
    /// The state has the bits of a cold run of its tokens: every row came from a prefill that began at a multiple of
    /// [`CHUNK_TOKENS`]. Only such a state is worth a snapshot.
    cold: bool,
}

impl Session {
    pub(crate) fn new(
        timeline: Box<dyn Timeline>,
        tokenizer: Tokenizer,
        options: &SessionOptions,
        hyperparams: &Hyperparams,
        has_draft_head: bool,
        allowed: Option<&[u32]>,
    ) -> Self {
        Self {
            timeline,
            tokenizer,
            ctx_tokens: options.ctx_tokens,
            trained_tokens: hyperparams.context_tokens,
            vocab: hyperparams.vocab,
            has_draft_head,
            snapshots: SnapshotStore::new(options.snapshots),
            depth: DepthChooser::default(),
            allowed: allowed.map(<[u32]>::to_vec),
            cold: true,
        }
    }
    /// Tokens in the state. After a generation: the prompt and what was handed out, without the last token.
    pub fn tokens(&self) -> &[TokenId] {
        self.timeline.tokens()
    }
    /// Most tokens it can hold.
    pub fn ctx_tokens(&self) -> usize {
        self.ctx_tokens
    }
    /// Forgets the tokens; snapshots stay.
    pub fn reset(&mut self) {
        self.timeline.reset();
        self.cold = true;
    }

    /// Brings the state to exactly `prompt`, running as few tokens as it can: what the live state or a stored snapshot
    /// already holds of it is not run again. A prompt that is empty, too long or has a foreign id is refused and the session
    /// is as it was; after [`BackendError::Cancelled`] it stands at a prefix of the prompt.
    pub fn continue_with(&mut self, prompt: &[TokenId], cancel: &CancelFlag) -> Result<Prefill, Error> {
        self.check_prompt(prompt)?;
        let begun = Instant::now();
        // Where the prompt parts from the live state must be found before the state is given up.
        let cuts = self.snapshots.cuts(self.timeline.tokens(), prompt, 0..prompt.len());
        match self.snapshots.find(self.timeline.tokens(), prompt) {
            Start::Live => {}
            Start::Empty => self.reset(),
            Start::Snapshot => {
                if let Some(snapshot) = self.snapshots.last_used() {
                    self.timeline.restore(snapshot)?;
                    self.cold = true;
                }
            }
        }
        let cached_tokens = self.timeline.position();
        for cut in cuts.into_iter().filter(|cut| *cut > cached_tokens) {
            self.run_to(prompt, cut, cancel)?;
            if self.cold {
                self.snapshots.keep(|| self.timeline.snapshot());
            }
        }
        self.run_to(prompt, prompt.len(), cancel)?;
        Ok(Prefill { prompt_tokens: prompt.len(), cached_tokens, took: begun.elapsed() })
    }

    fn run_to(&mut self, prompt: &[TokenId], end: usize, cancel: &CancelFlag) -> Result<(), BackendError> {
        let position = self.timeline.position();
        let todo = &prompt[position.min(end)..end];
        if todo.is_empty() {
            return Ok(());
        }
        self.cold &= position.is_multiple_of(CHUNK_TOKENS);
        self.timeline.prefill(todo, LogitRows::None, cancel)
    }

    /// Runs `tokens` from an empty state and hands out every row's logits as `(position, [vocab])`, in order.
    pub fn logits(
        &mut self,
        tokens: &[TokenId],
        cancel: &CancelFlag,
        row: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        self.check_prompt(tokens)?;
        self.reset();
        Ok(self.timeline.prefill(tokens, LogitRows::Each(row), cancel)?)
    }

    fn check_prompt(&self, prompt: &[TokenId]) -> Result<(), Error> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > self.ctx_tokens {
            let (limit, trained) = (self.ctx_tokens, self.trained_tokens);
            return Err(Error::PromptTooLong { prompt: prompt.len(), limit, trained });
        }
        match prompt.iter().find(|id| **id as usize >= self.vocab) {
            Some(&id) => Err(BackendError::TokenOutsideVocabulary { id, vocab: self.vocab }.into()),
            None => Ok(()),
        }
    }

    /// [`continue_with`](Self::continue_with) the prompt, then tokens until a stop id, a stop string, `max_tokens`, a full
    /// context, a raised flag or `Break` from `sink`. Tokens reach `sink` as soon as they are known, text as soon as it can be no
    /// part of a stop string; what they are does not depend on `depth`, nor do log-probabilities. Unless there is an error,
    /// [`GenEvent::End`] is the last event, also after a `Break`.
    ///
    /// Afterwards the state holds the prompt and every token handed out but the last, whatever `depth` was and however it
    /// ended: what follows does not depend on drafting either. A refused prompt or option leaves the session as it was; a
    /// raised flag is no error but [`Finish::Cancelled`].
    pub fn generate(
        &mut self,
        prompt: &[TokenId],
        options: &GenerateOptions,
        cancel: &CancelFlag,
        sink: &mut dyn FnMut(GenEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        self.check_prompt(prompt)?;
        options.check(&self.tokenizer, self.vocab)?;
        let mut run = Run::new(options, &self.tokenizer, sink)?;
        self.use_depth_policy(options.depth)?;
        let prefill = match self.continue_with(prompt, cancel) {
            Ok(prefill) => prefill,
            Err(Error::Backend(BackendError::Cancelled { .. })) => return Ok(run.end(Finish::Cancelled)),
            Err(error) => return Err(error),
        };
        run.watch.prefilled(prompt.len() - prefill.cached_tokens, prefill.cached_tokens, Instant::now());
        let finish = match run.tell(GenEvent::Prefilled(prefill)) {
            Some(finish) => finish,
            None if options.max_tokens == 0 => Finish::Length,
            None => self.decode(prompt.len(), options, cancel, &mut run)?,
        };
        Ok(run.end(finish))
    }

    fn use_depth_policy(&mut self, policy: DepthPolicy) -> Result<(), Error> {
        let policy = match policy {
            DepthPolicy::Fixed(depth) if depth > 0 && depth <= MAX_DEPTH && !self.has_draft_head => {
                return Err(Error::NoDraftHead { depth });
            }
            // Adaptive means as deep as pays: without a head that is not at all.
            DepthPolicy::Adaptive { max } if max <= MAX_DEPTH && !self.has_draft_head => DepthPolicy::Fixed(0),
            policy => policy,
        };
        if self.depth.policy() != policy {
            self.depth = DepthChooser::new(policy)?;
        }
        Ok(())
    }

    /// For every row of a round; empty where there is neither bias nor mask.
    fn edits(&self, options: &GenerateOptions) -> Vec<LogitEdit> {
        let edit = LogitEdit { bias: options.logit_bias.clone(), allowed: self.allowed.clone() };
        if edit == LogitEdit::default() { Vec::new() } else { vec![edit; MAX_DEPTH + 1] }
    }

    fn decode(
        &mut self,
        prompt_tokens: usize,
        options: &GenerateOptions,
        cancel: &CancelFlag,
        run: &mut Run<'_>,
    ) -> Result<Finish, Error> {
        let sampling = options.sampling.answering_from(prompt_tokens);
        let edits = self.edits(options);
        // A budget of rows commits as many tokens and hands out as many: its last row chooses one that is not run. So it has
        // use for one draft less, both of the request and of the context.
        let room = self.ctx_tokens - self.timeline.position();
        let depth = self.depth.depth().min((options.max_tokens - 1).min(room).saturating_sub(1));
        let first = self.timeline.choose(&sampling, edits.first(), depth)?;
        let logprobs = options.top_logprobs.map(|top| TokenLogprobs::of(self.timeline.last_logits(), first, top));
        run.watch.tokens(1, Instant::now());
        if let Some(finish) = run.token(first, prompt_tokens, logprobs) {
            return Ok(finish);
        }
        loop {
            if cancel.is_raised() {
                return Ok(Finish::Cancelled);
            }
            let position = self.timeline.position();
            let left = options.max_tokens - run.tokens.len();
            let budget = left.min(self.ctx_tokens - position);
            if budget == 0 {
                return Ok(Finish::ContextFull);
            }
            // This round commits at least one token, so the next has a budget of one less at most.
            let next_depth = self.depth.depth().min(budget.saturating_sub(2));
            let begun = Instant::now();
            self.cold = false;
            let round = self.timeline.round(&RoundRequest {
                next_depth,
                drafts: None,
                budget,
                stop: &options.stop,
                sampling: &sampling,
                edits: &edits,
                want_logits: false,
                top_logprobs: options.top_logprobs,
            })?;
            let now = Instant::now();
            let committed = round.committed.len();
            let moved_to = self.timeline.position();
            if committed == 0 || moved_to != position + committed {
                return Err(Error::Stalled { position, committed, moved_to });
            }
            run.rounds.push(RoundStat { position, drafted: round.drafted, accepted: round.accepted });
            let ended = round.committed.last().is_some_and(|id| options.stop.contains(id));
            if !ended {
                let took = now.duration_since(begun);
                let chained = round.drafts.len();
                self.depth.observe(RoundCost { drafted: round.drafted, accepted: round.accepted, chained, took });
            }
            if let Some((finish, keep_rows)) = run.round(round, now) {
                if keep_rows < committed {
                    self.timeline.rewind(keep_rows)?;
                }
                return Ok(finish);
            }
        }
    }
}
