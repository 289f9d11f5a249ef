//! The CPU backend with every row of logits that a token is chosen from written down.

use std::sync::{Arc, Mutex};

use cudafast_cpu::{CpuBackend, CpuOptions};
use cudafast_gguf::ShardSet;
use cudafast_model::{DraftHead, Hyperparams, MemoryPlan, WeightSource, Weights};
use cudafast_runtime::{
    Backend, BackendError, CancelFlag, Engine, LogitEdit, LogitRows, Round, RoundRequest, Sampling, Snapshot, Timeline,
    TimelineOptions, TokenId, chat_template, tokenizer,
};

/// Bits of the rows, in order.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<Vec<Vec<u32>>>>);

impl Recorded {
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
    pub(crate) fn take(&self) -> Vec<Vec<u32>> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
    fn add(&self, row: &[f32]) {
        self.0.lock().unwrap().push(row.iter().map(|v| v.to_bits()).collect());
    }
}

/// The embedded model with its draft head, on one thread.
pub(crate) fn tiny_story() -> (Engine, Recorded) {
    let open = |file: &str| WeightSource::from(ShardSet::open(&cudafast_tiny::tree_path(file)).unwrap());
    let (model, head) = (open(cudafast_tiny::MODEL_FILE), open(cudafast_tiny::DRAFT_HEAD_FILE));
    let hp = Hyperparams::from_source(&model).unwrap();
    let weights = Weights::bind(&model, &hp).unwrap();
    let head = DraftHead::bind(&head, &model, &hp, &weights).unwrap();
    let cpu = CpuBackend::new(hp, weights, Some(head), &CpuOptions { threads: 1, ..CpuOptions::default() }).unwrap();
    let tokenizer = tokenizer(&model).unwrap();
    let template = chat_template(&model, &tokenizer).unwrap();
    let recorded = Recorded::default();
    let backend = Recorder { cpu, recorded: recorded.clone() };
    (Engine::new(Box::new(backend), tokenizer, template, "tiny").unwrap(), recorded)
}

struct Recorder {
    cpu: CpuBackend,
    recorded: Recorded,
}

impl Backend for Recorder {
    fn describe(&self) -> String {
        self.cpu.describe()
    }
    fn hyperparams(&self) -> &Hyperparams {
        self.cpu.hyperparams()
    }
    fn has_draft_head(&self) -> bool {
        self.cpu.has_draft_head()
    }
    fn memory_plan(&self, ctx_tokens: usize) -> MemoryPlan {
        self.cpu.memory_plan(ctx_tokens)
    }
    fn open(&self, options: &TimelineOptions) -> Result<Box<dyn Timeline>, BackendError> {
        Ok(Box::new(Watched { timeline: self.cpu.open(options)?, recorded: self.recorded.clone() }))
    }
}

struct Watched {
    timeline: Box<dyn Timeline>,
    recorded: Recorded,
}

impl Timeline for Watched {
    fn position(&self) -> usize {
        self.timeline.position()
    }
    fn tokens(&self) -> &[TokenId] {
        self.timeline.tokens()
    }
    fn pending(&self) -> Option<TokenId> {
        self.timeline.pending()
    }
    fn drafts(&self) -> &[TokenId] {
        self.timeline.drafts()
    }
    fn prefill(&mut self, tokens: &[TokenId], rows: LogitRows<'_>, cancel: &CancelFlag) -> Result<(), BackendError> {
        self.timeline.prefill(tokens, rows, cancel)
    }
    fn last_logits(&self) -> &[f32] {
        self.timeline.last_logits()
    }
    fn choose(&mut self, sampling: &Sampling, edit: Option<&LogitEdit>, depth: usize) -> Result<TokenId, BackendError> {
        self.recorded.add(self.timeline.last_logits());
        self.timeline.choose(sampling, edit, depth)
    }
    fn round(&mut self, request: &RoundRequest<'_>) -> Result<Round, BackendError> {
        let round = self.timeline.round(&RoundRequest { want_logits: true, ..request.clone() })?;
        round.logits.chunks_exact(round.logits.len() / round.committed.len()).for_each(|row| self.recorded.add(row));
        Ok(round)
    }
    fn rewind(&mut self, keep_rows: usize) -> Result<(), BackendError> {
        self.timeline.rewind(keep_rows)
    }
    fn snapshot(&self) -> Snapshot {
        self.timeline.snapshot()
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), BackendError> {
        self.timeline.restore(snapshot)
    }
    fn reset(&mut self) {
        self.timeline.reset();
    }
}
