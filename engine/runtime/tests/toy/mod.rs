//! A deterministic model of 300 tokens that implements the backend contract by the letter and counts what it runs.
//!
//! Its state is a hash over every token before it, so any state that does not belong to the tokens shows in the logits. The
//! draft head proposes what the model would choose greedily, wrong once in about four times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cudafast_model::{
    AttentionParams, GdnParams, Hyperparams, IndexerParams, LayerKind, MemoryPlan, MoeParams, NgramParams,
};
use cudafast_runtime::sampler::{argmax, choose};
use cudafast_runtime::{
    Backend, BackendError, CHUNK_TOKENS, CancelFlag, Engine, LogitEdit, LogitRows, MAX_DEPTH, Round, RoundRequest,
    SamplerScratch, Sampling, Snapshot, Timeline, TimelineOptions, TokenId, TokenLogprobs,
};
use cudafast_text::{Tokenizer, Vocab};

pub(crate) const VOCAB: usize = 300;
pub(crate) const TRAINED_TOKENS: usize = 4096;

/// What a timeline did, seen from the test.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) prefilled: AtomicUsize,
    pub(crate) rounds: Mutex<Vec<RoundSeen>>,
    pub(crate) cancel_at: Mutex<Option<(usize, CancelFlag)>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundSeen {
    pub(crate) drafted: usize,
    pub(crate) next_depth: usize,
    pub(crate) budget: usize,
}

pub(crate) struct Toy {
    pub(crate) seen: Arc<Seen>,
    pub(crate) head: bool,
    /// Round that claims to have committed nothing.
    pub(crate) stall_at: Option<usize>,
    hyperparams: Hyperparams,
}

impl Toy {
    pub(crate) fn new(head: bool) -> Self {
        let hyperparams = Hyperparams {
            layers: vec![LayerKind::Gdn],
            hidden: 1,
            streams: 1,
            hyper_rank: 1,
            vocab: VOCAB,
            context_tokens: TRAINED_TOKENS,
            rms_eps: 1e-6,
            gdn: GdnParams { key_heads: 1, value_heads: 1, head_dim: 1, conv_kernel: 1 },
            attention: AttentionParams { heads: 1, kv_heads: 1, head_dim: 1, rotary_dims: 0, rope_theta: 1.0 },
            indexer: IndexerParams { heads: 1, head_dim: 1, budget_tokens: 4, ratio: 4 },
            moe: MoeParams { experts: 1, used: 1, expert_ff: 1, shared_ff: 1 },
            ngram: NgramParams {
                layer: 0,
                ngram: 2,
                heads_per_ngram: 1,
                conv_kernel: 1,
                eos: 298,
                row_width: 1,
                multipliers: vec![1, 1],
                head_sizes: vec![2],
                head_offsets: vec![0],
            },
            eos_token: Some(299),
        };
        Self { seen: Arc::default(), head, stall_at: None, hyperparams }
    }
}

impl Backend for Toy {
    fn describe(&self) -> String {
        "toy".into()
    }
    fn hyperparams(&self) -> &Hyperparams {
        &self.hyperparams
    }
    fn has_draft_head(&self) -> bool {
        self.head
    }
    fn memory_plan(&self, ctx_tokens: usize) -> MemoryPlan {
        MemoryPlan::of_tensors(&self.hyperparams, [], None, ctx_tokens, 2)
    }
    fn open(&self, options: &TimelineOptions) -> Result<Box<dyn Timeline>, BackendError> {
        Ok(Box::new(ToyTimeline {
            seen: Arc::clone(&self.seen),
            head: self.head,
            stall_at: self.stall_at,
            ctx_tokens: options.ctx_tokens,
            tokens: Vec::new(),
            hashes: vec![START],
            pending: None,
            drafts: Vec::new(),
            last_round: 0,
            last: Vec::new(),
            scratch: SamplerScratch::default(),
        }))
    }
}

/// A vocabulary of the 256 bytes, in GPT-2's alphabet.
pub(crate) fn bytes_vocab() -> Vocab {
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut shifted = 256..;
    let letter = |b| char::from_u32(if printable(b) { b } else { shifted.next().unwrap() }).unwrap().to_string();
    Vocab {
        tokens: (0..256).map(letter).collect(),
        token_types: vec![1; 256],
        pre: "qwen35".into(),
        model: "gpt2".into(),
        ..Vocab::default()
    }
}

/// An engine around a toy. Every one of its ids stands for something.
pub(crate) fn engine(toy: Toy) -> Engine {
    let mut vocab = bytes_vocab();
    vocab.tokens.extend((256..VOCAB).map(|id| format!("<{id}>")));
    vocab.token_types.resize(VOCAB, 3);
    engine_with(toy, vocab)
}

/// An engine whose tokenizer may know fewer ids than the model has rows.
pub(crate) fn engine_with(toy: Toy, vocab: Vocab) -> Engine {
    Engine::new(Box::new(toy), Tokenizer::new(vocab).unwrap(), None, "toy").unwrap()
}

const START: u64 = 0x1234_5678;

fn mix(state: u64, token: TokenId) -> u64 {
    let v = (state ^ u64::from(token).wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    v ^ (v >> 29)
}

/// The model: logits of the row whose history hashes to `state`.
pub(crate) fn logits_of(state: u64) -> Vec<f32> {
    (0..VOCAB as TokenId).map(|id| (mix(state, id + 1) >> 40) as f32 / (1u32 << 22) as f32).collect()
}

/// Logits after `tokens`, computed from nothing.
pub(crate) fn logits_after(tokens: &[TokenId]) -> Vec<f32> {
    logits_of(tokens.iter().fold(START, |s, t| mix(s, *t)))
}

struct ToyTimeline {
    seen: Arc<Seen>,
    head: bool,
    stall_at: Option<usize>,
    ctx_tokens: usize,
    tokens: Vec<TokenId>,
    /// `hashes[i]`: after `i` tokens.
    hashes: Vec<u64>,
    pending: Option<TokenId>,
    drafts: Vec<TokenId>,
    last_round: usize,
    last: Vec<f32>,
    scratch: SamplerScratch,
}

impl ToyTimeline {
    fn state(&self) -> u64 {
        self.hashes[self.tokens.len()]
    }
    fn push(&mut self, token: TokenId) {
        assert!(self.tokens.len() < self.ctx_tokens, "a row past the context");
        self.hashes.push(mix(self.state(), token));
        self.tokens.push(token);
    }
    fn truncate(&mut self, tokens: usize) {
        self.tokens.truncate(tokens);
        self.hashes.truncate(tokens + 1);
        self.last = if tokens == 0 { Vec::new() } else { logits_of(self.state()) };
    }
    fn forget_pending(&mut self) {
        self.pending = None;
        self.drafts.clear();
        self.last_round = 0;
    }
    fn chain(&mut self, next: TokenId, depth: usize) {
        self.pending = Some(next);
        self.drafts.clear();
        let mut state = mix(self.state(), next);
        for _ in 0..depth {
            let right = argmax(&logits_of(state)).unwrap();
            let draft = if mix(state, 7).is_multiple_of(4) { (right + 1) % VOCAB as TokenId } else { right };
            self.drafts.push(draft);
            state = mix(state, draft);
        }
    }
    fn check_depth(&self, call: &'static str, depth: usize) -> Result<(), BackendError> {
        if depth > MAX_DEPTH || (depth > 0 && !self.head) {
            return Err(BackendError::Misuse { call, why: format!("depth {depth}") });
        }
        Ok(())
    }
}

impl Timeline for ToyTimeline {
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
        let needed = self.tokens.len() + tokens.len();
        if needed > self.ctx_tokens {
            return Err(BackendError::ContextFull { needed, limit: self.ctx_tokens });
        }
        self.forget_pending();
        for &token in tokens {
            if self.tokens.len().is_multiple_of(CHUNK_TOKENS) {
                if let Some((at, flag)) = &*self.seen.cancel_at.lock().unwrap()
                    && self.tokens.len() >= *at
                {
                    flag.raise();
                }
                if cancel.is_raised() {
                    self.truncate(self.tokens.len());
                    return Err(BackendError::Cancelled { position: self.tokens.len() });
                }
            }
            self.push(token);
            self.seen.prefilled.fetch_add(1, Ordering::Relaxed);
            if let LogitRows::Each(sink) = &mut rows {
                sink(self.tokens.len() - 1, &logits_of(self.state()));
            }
        }
        self.truncate(self.tokens.len());
        Ok(())
    }
    fn last_logits(&self) -> &[f32] {
        &self.last
    }
    fn choose(&mut self, sampling: &Sampling, edit: Option<&LogitEdit>, depth: usize) -> Result<TokenId, BackendError> {
        self.check_depth("choose", depth)?;
        if self.tokens.is_empty() {
            return Err(BackendError::Misuse { call: "choose", why: "no row".into() });
        }
        let next = choose(&self.last, edit, sampling, &self.tokens, &mut self.scratch)?;
        self.chain(next, depth);
        Ok(next)
    }
    fn round(&mut self, request: &RoundRequest<'_>) -> Result<Round, BackendError> {
        self.check_depth("round", request.next_depth)?;
        let fed = self.pending.ok_or(BackendError::Misuse { call: "round", why: "nothing pending".into() })?;
        let position = self.tokens.len();
        assert!(request.budget >= 1);
        let mut drafts = request.drafts.map_or_else(|| self.drafts.clone(), <[_]>::to_vec);
        drafts.truncate(request.budget - 1);
        let stalls = {
            let mut rounds = self.seen.rounds.lock().unwrap();
            let (drafted, next_depth, budget) = (drafts.len(), request.next_depth, request.budget);
            rounds.push(RoundSeen { drafted, next_depth, budget });
            self.stall_at == Some(rounds.len())
        };
        if stalls {
            let (committed, logits, logprobs, drafts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            return Ok(Round { position, committed, drafted: 0, accepted: 0, next: fed, drafts, logits, logprobs });
        }
        self.push(fed);
        let mut accepted = 0;
        let mut logprobs = Vec::new();
        let next = loop {
            let edit = request.edits.get(accepted);
            let row = logits_of(self.state());
            let next = choose(&row, edit, request.sampling, &self.tokens, &mut self.scratch)?;
            logprobs.extend(request.top_logprobs.map(|top| TokenLogprobs::of(&row, next, top)));
            let ended = request.stop.contains(&self.tokens[self.tokens.len() - 1]);
            if ended || drafts.get(accepted) != Some(&next) {
                break next;
            }
            self.push(next);
            accepted += 1;
        };
        self.truncate(self.tokens.len());
        self.last_round = accepted + 1;
        let rows = self.hashes[position + 1..].iter();
        let logits = if request.want_logits { rows.flat_map(|s| logits_of(*s)).collect() } else { Vec::new() };
        self.chain(next, request.next_depth);
        let committed = self.tokens[position..].to_vec();
        let drafted = drafts.len();
        let drafts = self.drafts.clone();
        Ok(Round { position, committed, drafted, accepted, next, drafts, logits, logprobs })
    }
    fn rewind(&mut self, keep_rows: usize) -> Result<(), BackendError> {
        if keep_rows == 0 || keep_rows > self.last_round {
            return Err(BackendError::Misuse { call: "rewind", why: format!("{keep_rows} of {}", self.last_round) });
        }
        self.truncate(self.tokens.len() - self.last_round + keep_rows);
        self.forget_pending();
        Ok(())
    }
    fn snapshot(&self) -> Snapshot {
        let (layers, ngram_conv, residual) = (Vec::new(), Vec::new(), Vec::new());
        Snapshot { tokens: self.tokens.clone(), layers, ngram_conv, residual, logits: self.last.clone(), head: None }
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), BackendError> {
        self.reset();
        for &token in &snapshot.tokens {
            self.push(token);
        }
        self.truncate(self.tokens.len());
        Ok(())
    }
    fn reset(&mut self) {
        self.truncate(0);
        self.forget_pending();
    }
}
