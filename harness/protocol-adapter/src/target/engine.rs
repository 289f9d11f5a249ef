//! The engine in this process.

use cudafast_runtime::{
    Backend, BackendError, CancelFlag, LogitEdit, LogitRows, MAX_DEPTH, RoundRequest, Sampling, Timeline,
    TimelineOptions, TokenId,
};

pub use super::load::{Choice, Device};

use super::load;
use super::{Counters, Cycle, Drafting, Facts, Target, TargetError, Token, top_of};

const GREEDY: Sampling = Sampling::greedy();

/// A loaded model and one timeline.
///
/// A prompt is run by the backend's prefill, everything behind it by its rounds, one row or several, which have the same bits
/// (design 3.2): so a cycle commits what as many serial steps would, and a teacher-forced step what a free run would.
pub struct InProcess {
    timeline: Box<dyn Timeline>,
    facts: Facts,
    /// Drafts of a cycle.
    depth: usize,
    counters: Counters,
    cancel: CancelFlag,
}

impl InProcess {
    /// Loads the chosen model on the chosen device. `ident` says what was loaded; it follows the engine's name in `backend`.
    pub fn open(choice: &Choice, ident: &str) -> Result<Self, TargetError> {
        let loaded = load::open(choice)?;
        let backend = &loaded.backend;
        let hyperparams = backend.hyperparams();
        let eos = hyperparams.eos_token.and_then(|id| Token::try_from(id).ok());
        let mut stop_ids = choice.stop_ids.clone();
        for id in hyperparams.stop_tokens().into_iter().filter_map(|id| Token::try_from(id).ok()) {
            if !stop_ids.contains(&id) {
                stop_ids.push(id);
            }
        }
        let facts = Facts {
            backend: format!("cudafast {ident}"),
            device: loaded.device.clone(),
            ident: ident.to_owned(),
            vocab: hyperparams.vocab,
            eos,
            stop_ids,
            drafting: if backend.has_draft_head() { choice.drafting } else { Drafting::None },
            ctx_tokens: loaded.ctx_tokens,
            model_path: loaded.model_label.clone(),
            mtp_head_path: loaded.head_label.clone().unwrap_or_default(),
            resident_pid: None,
        };
        Self::on(&**backend, facts)
    }

    /// A timeline on a loaded backend.
    fn on(backend: &dyn Backend, facts: Facts) -> Result<Self, TargetError> {
        let timeline = backend.open(&TimelineOptions { ctx_tokens: facts.ctx_tokens })?;
        let depth = facts.drafting.default_depth().unwrap_or(0) as usize;
        Ok(Self { timeline, facts, depth, counters: Counters::default(), cancel: CancelFlag::default() })
    }

    /// Ends a prompt that is running at its next chunk, with an error.
    pub fn cancel_flag(&self) -> CancelFlag {
        self.cancel.clone()
    }

    /// Tokens in the state.
    pub fn position(&self) -> usize {
        self.timeline.position()
    }

    fn id_of(&self, token: Token) -> Result<TokenId, TargetError> {
        let vocab = self.facts.vocab;
        let id = TokenId::try_from(token).ok().filter(|id| (*id as usize) < vocab);
        id.ok_or(TargetError::TokenOutsideVocabulary { token, vocab })
    }

    /// Makes `id` the token that the next round feeds, with `depth` drafts behind it.
    fn feed(&mut self, id: TokenId, depth: usize) -> Result<(), TargetError> {
        // Not by the last row's logits: on a card they are a copy of a megabyte.
        if self.timeline.position() == 0 {
            return Err(TargetError::NoPrompt);
        }
        let drafted = depth == 0 || !self.timeline.drafts().is_empty();
        if self.timeline.pending() == Some(id) && drafted {
            return Ok(());
        }
        // The caller's token is not always the engine's choice: a mask leaves nothing else to choose.
        let mut allowed = vec![0; self.facts.vocab.div_ceil(32)];
        if let Some(word) = allowed.get_mut(id as usize / 32) {
            *word |= 1 << (id % 32);
        }
        let only = LogitEdit { bias: Vec::new(), allowed: Some(allowed) };
        self.timeline.choose(&GREEDY, Some(&only), depth)?;
        Ok(())
    }

    /// `budget` is that of the caller, who comes back with what this cycle leaves of it: drafts past it would be chained for
    /// nothing.
    fn round(&mut self, first: Token, budget: usize, depth: usize) -> Result<Cycle, TargetError> {
        let id = self.id_of(first)?;
        self.feed(id, depth.min(budget.saturating_sub(1)))?;
        let round = self.timeline.round(&RoundRequest {
            next_depth: depth.min(budget.saturating_sub(2)),
            drafts: None,
            budget,
            stop: &[],
            sampling: &GREEDY,
            edits: &[],
            want_logits: false,
            top_logprobs: None,
        })?;
        self.counters.drafts += round.drafted as u64;
        self.counters.hits += round.accepted as u64;
        let committed = round.committed.into_iter().map(token_of).collect::<Result<_, _>>()?;
        Ok(Cycle { committed, next: token_of(round.next)? })
    }
}

/// The wire has 31 bits of an id; a vocabulary of more does not load.
fn token_of(id: TokenId) -> Result<Token, TargetError> {
    Token::try_from(id).map_err(|_| BackendError::TokenOutsideVocabulary { id, vocab: Token::MAX as usize }.into())
}

impl Target for InProcess {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn invalidate(&mut self) {
        self.timeline.reset();
    }

    fn sync(&mut self, tokens: &[Token]) -> Result<Token, TargetError> {
        if tokens.is_empty() {
            return Err(TargetError::EmptyPrompt);
        }
        let ids = tokens.iter().map(|token| self.id_of(*token)).collect::<Result<Vec<_>, _>>()?;
        self.timeline.reset();
        self.timeline.prefill(&ids, LogitRows::None, &self.cancel)?;
        self.argmax().ok_or(TargetError::NoPrompt)
    }

    fn eval(&mut self, token: Token) -> Result<Token, TargetError> {
        Ok(self.round(token, 1, 0)?.next)
    }

    fn argmax(&mut self) -> Option<Token> {
        match self.timeline.pending() {
            Some(id) => Token::try_from(id).ok(),
            None => top_of(self.timeline.last_logits(), 1).first().map(|(id, _)| *id),
        }
    }

    fn top_logits(&mut self, k: usize) -> Vec<(Token, f32)> {
        top_of(self.timeline.last_logits(), k)
    }

    fn arm(&mut self, depth: u32) -> Result<(), TargetError> {
        self.facts.drafting.check(depth)?;
        self.depth = (depth as usize).min(MAX_DEPTH);
        Ok(())
    }

    fn eval_speculative(&mut self, first: Token, budget: u32) -> Result<Cycle, TargetError> {
        if budget == 0 {
            return Err(TargetError::Budget);
        }
        let depth = if self.facts.drafting == Drafting::None { 0 } else { self.depth };
        self.round(first, budget as usize, depth)
    }

    fn counters(&mut self) -> Counters {
        self.counters
    }
}
