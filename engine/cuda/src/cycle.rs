//! Rounds as captured graphs (qwen4exp.md 10): verify, accept, seed the draft head, chain drafts, one host round trip.
//!
//! The host writes a [`Control`] into mapped memory and launches one graph. The graph's first node copies it to the
//! device, its last one writes an [`Outcome`] back and then the round's generation, which the host polls. Widths, depths
//! and context buckets have graphs of their own, captured when first asked for; positions, tokens and acceptance are data.
//!
//! Where the host chooses the tokens (sampling, edits that differ by row), a round is two graphs with its choice between
//! them: rows and logits, then head and drafts.

use std::collections::HashMap;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;

use crate::control::{AT_WORDS, CONTROL_ROWS, CONTROL_WORDS, Control, Outcome, word};
use crate::driver::{Context, DeviceBuffer, DeviceSlice, Graph, PinnedBuffer, Stream};
use crate::error::CudaError;
use crate::forward::{Arena, HeadRows, KernelScratch, Next, NgramRows, Pass, Phase, TargetRows};
use crate::launch::cycle;
use crate::model::Model;
use crate::state::{self, DeviceState};

/// Shortest context bucket, in tokens: below it every query is dense, and grids are small anyway.
const LEAST_BUCKET: usize = 4096;
/// A round takes milliseconds: past this the device is asked whether it has faulted.
const PATIENCE: Duration = Duration::from_millis(500);

/// Which part of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// All of it, tokens chosen greedily on the device.
    Whole,
    /// Rows, logits, and the outcome of greedy choice; no head.
    Verify,
    /// The head's rows and drafts behind what the control block says was accepted.
    Draft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct GraphKey {
    part: Part,
    rows: usize,
    depth: usize,
    visible: usize,
}

/// Device memory that the graphs of a timeline use.
pub(crate) struct Workspace {
    pub(crate) model: Arc<Model>,
    pub(crate) state: DeviceState,
    /// The target's rows of a round: its residual and logits stay for what comes after.
    pub(crate) decode: Arena,
    /// The head's rows of a round.
    pub(crate) drafting: Option<Arena>,
    pub(crate) control: DeviceBuffer<u32>,
    /// One bit an id that may be chosen.
    pub(crate) mask: DeviceBuffer<u32>,
    /// `[positions][2][half]`.
    pub(crate) rope: DeviceBuffer<f32>,
}

/// The rounds of one timeline.
pub(crate) struct Cycle {
    // Graphs first: they go before what they use.
    graphs: HashMap<GraphKey, Graph>,
    pub(crate) work: Arc<Workspace>,
    request: PinnedBuffer<u32>,
    outcome: PinnedBuffer<u32>,
    /// `[8][P]` rows of an n-gram table that stays on the host.
    gathered: Option<PinnedBuffer<f32>>,
    generation: u32,
    /// What the device's mask holds; none: all are allowed.
    mask: Option<Vec<u32>>,
    limit: usize,
}

/// Context bucket of rows that end at `end`: powers of two, so that a long answer needs few graphs.
fn bucket(end: usize, limit: usize) -> usize {
    end.next_power_of_two().max(LEAST_BUCKET).min(limit.max(end))
}

/// Bytes of the working memory of rounds, the control block's few apart.
pub(crate) fn bytes(model: &Model, ctx_tokens: usize) -> u64 {
    let hp = &model.hp;
    let scratch = model.kernel_scratch(Phase::Decode, CONTROL_ROWS, state::cache_rows(ctx_tokens));
    let arena = |logits| crate::forward::arena_bytes(hp, CONTROL_ROWS, logits, scratch);
    let rope = state::cache_rows(ctx_tokens) * hp.attention.rotary_dims * size_of::<f32>();
    let head = if model.head.is_some() { arena(1) } else { 0 };
    arena(CONTROL_ROWS) + head + rope as u64 + (hp.vocab / 8) as u64
}

impl Workspace {
    pub(crate) fn new(model: Arc<Model>, stream: &Stream, ctx_tokens: usize) -> Result<Self, CudaError> {
        let (context, hp): (&Context, _) = (&model.context, &model.hp);
        let limit = state::cache_rows(ctx_tokens);
        let scratch: KernelScratch = model.kernel_scratch(Phase::Decode, CONTROL_ROWS, limit);
        let has_head = model.head.is_some();
        let drafting = if has_head { Some(Arena::new(context, stream, hp, CONTROL_ROWS, 1, scratch)?) } else { None };
        let rope = DeviceBuffer::new(context, "rotary angles", limit * hp.attention.rotary_dims)?;
        model.fill_rope(stream, rope.all())?;
        let mask = DeviceBuffer::new(context, "mask of ids", hp.vocab.div_ceil(32))?;
        stream.fill(mask.all(), 0xFF)?;
        Ok(Self {
            state: DeviceState::new(context, stream, hp, has_head, ctx_tokens)?,
            decode: Arena::new(context, stream, hp, CONTROL_ROWS, CONTROL_ROWS, scratch)?,
            drafting,
            control: DeviceBuffer::new(context, "control block", CONTROL_WORDS)?,
            mask,
            rope,
            model,
        })
    }

    /// `at`: first word of an `At` in the control block.
    fn pass<'a>(&'a self, stream: &'a Stream, rows: usize, at: usize, visible: usize) -> Pass<'a> {
        let model = &*self.model;
        Pass {
            stream,
            kernels: &model.kernels,
            hp: &model.hp,
            tensors: &model.target,
            arena: &self.decode,
            rope: self.rope.all(),
            phase: Phase::Decode,
            rows,
            at: self.control.all().part(at, AT_WORDS),
            hash: model.hash.all(),
            visible,
        }
    }

    /// Logits of the first `rows` residual rows, which no block has normed, to the first rows of logits.
    pub(crate) fn logits_of(&self, stream: &Stream, rows: usize) -> Result<(), CudaError> {
        let pass = self.pass(stream, rows, word!(target), LEAST_BUCKET);
        let (x, weights) = (self.residual(0, rows), &self.model.weights);
        pass.norm(x, Next::Read(&weights.output_hc))?;
        pass.logits(&weights.output_hc, (&weights.output, &self.model.target), x, self.logits(0, rows))
    }

    /// Residual rows of the last forward.
    pub(crate) fn residual(&self, first: usize, rows: usize) -> DeviceSlice<'_, f32> {
        let wide = self.model.hp.wide();
        self.decode.all(self.decode.parts.x).part(first * wide, rows * wide)
    }

    /// Their logits.
    pub(crate) fn logits(&self, first: usize, rows: usize) -> DeviceSlice<'_, f32> {
        let vocab = self.model.hp.vocab;
        self.decode.all(self.decode.parts.logits).part(first * vocab, rows * vocab)
    }

    fn field(&self, at: usize, len: usize) -> DeviceSlice<'_, u32> {
        self.control.all().part(at, len)
    }

    /// The target's rows, their logits, and what a greedy choice accepts.
    fn verify(
        &self,
        stream: &Stream,
        rows: usize,
        visible: usize,
        gathered: Option<DeviceSlice<'_, f32>>,
    ) -> Result<(), CudaError> {
        let (model, kernels) = (&*self.model, &self.model.kernels);
        let (hp, weights) = (&model.hp, &model.weights);
        let pass = self.pass(stream, rows, word!(target), visible);
        let before = hp.ngram.ngram - 1;
        let ngram = match gathered {
            Some(rows_of) => NgramRows::Gathered(rows_of.part(0, rows * hp.ngram.width())),
            None => NgramRows::Hashed(self.field(word!(tokens) - before, before + rows)),
        };
        let x = self.residual(0, rows);
        let of = TargetRows { tokens: self.field(word!(tokens), rows), ngram, x };
        pass.target(weights, &self.state, of)?;
        let logits = self.logits(0, rows);
        pass.logits(&weights.output_hc, (&weights.output, &model.target), x, logits)?;
        let parts = self.decode.first(self.decode.parts.argmax, cycle::argmax_parts(rows));
        let mask = Some(self.mask.all());
        cycle::argmax(stream, kernels, cycle::ArgmaxArgs { logits, mask, parts, vocab: hp.vocab })?;
        cycle::accept(stream, kernels, parts, self.control.all())
    }

    /// The head's rows behind `residual: [rows][W]`, then `depth` drafts. Nothing where no head is loaded.
    fn draft(
        &self,
        stream: &Stream,
        residual: DeviceSlice<'_, f32>,
        depth: usize,
        visible: usize,
    ) -> Result<(), CudaError> {
        let (model, kernels) = (&*self.model, &self.model.kernels);
        let (Some(w), Some(arena), Some(caches)) = (&model.head, &self.drafting, &self.state.head) else {
            return Ok(());
        };
        let hp = &model.hp;
        let rows = residual.len() / hp.wide();
        let shared = model.shared_with_head();
        let seed = Pass { tensors: &model.head_tensors, arena, ..self.pass(stream, rows, word!(seed), visible) };
        let single = model.single_head_norm();
        // The row that drafts start from: where there is one row, its own place.
        let row = arena.first(arena.parts.x, hp.wide());
        let x = if rows == 1 { row } else { arena.first(arena.parts.head_x, rows * hp.wide()) };
        let tokens = self.field(word!(followers), rows);
        seed.head(w, caches, shared, single, HeadRows { residual, tokens, x })?;
        if depth == 0 {
            return Ok(());
        }
        let step = Pass { rows: 1, at: self.field(word!(chain), AT_WORDS), ..seed };
        if rows > 1 {
            cycle::pick(stream, kernels, x, self.control.all(), row)?;
            step.norm(row, Next::Read(&w.hc_head))?;
        }
        let logits = arena.first(arena.parts.logits, hp.vocab);
        let parts = arena.first(arena.parts.argmax, cycle::argmax_parts(1));
        for i in 0..depth {
            if i > 0 {
                let tokens = self.field(word!(chain_token), 1);
                step.head(w, caches, shared, single, HeadRows { residual: row, tokens, x: row })?;
            }
            step.logits(&w.hc_head, (&w.output, shared), row, logits)?;
            cycle::argmax(stream, kernels, cycle::ArgmaxArgs { logits, mask: None, parts, vocab: hp.vocab })?;
            cycle::draft(stream, kernels, parts, self.control.all())?;
        }
        Ok(())
    }
}

impl Cycle {
    /// Memory for rounds of a timeline of `ctx_tokens`.
    pub(crate) fn new(model: Arc<Model>, stream: &Stream, ctx_tokens: usize) -> Result<Self, CudaError> {
        let context = model.context.clone();
        let gathered = if model.table_on_device() {
            None
        } else {
            let values = CONTROL_ROWS * model.hp.ngram.width();
            Some(PinnedBuffer::new(&context, "n-gram rows", values)?)
        };
        Ok(Self {
            graphs: HashMap::new(),
            work: Arc::new(Workspace::new(model, stream, ctx_tokens)?),
            request: PinnedBuffer::new(&context, "round request", CONTROL_WORDS)?,
            outcome: PinnedBuffer::new(&context, "round outcome", size_of::<Outcome>() / 4)?,
            gathered,
            generation: 0,
            mask: None,
            limit: state::cache_rows(ctx_tokens),
        })
    }

    /// Which ids may be chosen from now on; `mask` has a bit for every id.
    pub(crate) fn allow(&mut self, stream: &Stream, mask: Option<&[u32]>) -> Result<(), CudaError> {
        if self.mask.as_deref() == mask {
            return Ok(());
        }
        match mask {
            Some(mask) => stream.upload(mask, self.work.mask.all())?,
            None => stream.fill(self.work.mask.all(), 0xFF)?,
        }
        self.mask = mask.map(<[u32]>::to_vec);
        Ok(())
    }

    /// Runs a part of a round for `control` and waits for its outcome. `tokens` are all tokens of the timeline up to the
    /// last row.
    pub(crate) fn run(
        &mut self,
        stream: &Stream,
        part: Part,
        control: &mut Control,
        depth: usize,
        tokens: &[u32],
    ) -> Result<Outcome, CudaError> {
        let rows = control.rows as usize;
        let end = control.target.position as usize + rows + depth;
        let visible = bucket(end, self.limit);
        if part != Part::Draft {
            self.gather(tokens, rows);
        }
        let depth = if part == Part::Verify { 0 } else { depth };
        let key = GraphKey { part, rows, depth, visible };
        if !self.graphs.contains_key(&key) {
            let graph = self.capture(stream, key)?;
            self.graphs.insert(key, graph);
        }
        self.place(control);
        match self.graphs.get(&key) {
            Some(graph) => stream.replay(graph)?,
            None => return Err(stale()),
        }
        self.wait(stream)
    }

    /// Head rows and drafts behind the one residual row `row`, which need not be the first: launched one by one.
    pub(crate) fn draft_behind(
        &mut self,
        stream: &Stream,
        row: usize,
        control: &mut Control,
        depth: usize,
    ) -> Result<Outcome, CudaError> {
        let work = Arc::clone(&self.work);
        let visible = bucket(control.seed.position as usize + 1 + depth, self.limit);
        self.place(control);
        let kernels = &work.model.kernels;
        cycle::begin(stream, kernels, self.request.mapped(), work.control.all())?;
        work.draft(stream, work.residual(row, 1), depth, visible)?;
        cycle::end(stream, kernels, work.control.all(), self.outcome.mapped())?;
        self.wait(stream)
    }

    /// Numbers the round and writes its request.
    fn place(&mut self, control: &mut Control) {
        self.generation = self.generation.wrapping_add(1);
        control.generation = self.generation;
        for (slot, value) in self.request.iter_mut().zip(bytemuck::cast_slice(std::slice::from_ref(control))) {
            *slot = *value;
        }
        // The launch that follows is the driver's doorbell, behind a fence of its own.
        fence(Ordering::SeqCst);
    }

    /// Rows of a table that is on the host, for the last `rows` of `tokens`.
    fn gather(&mut self, tokens: &[u32], rows: usize) {
        let Some(gathered) = &mut self.gathered else { return };
        let model = &self.work.model;
        let width = model.hp.ngram.width();
        if let Some(out) = gathered.get_mut(..rows * width) {
            model.gather_ngrams(tokens, rows, out);
        }
    }

    fn capture(&self, stream: &Stream, key: GraphKey) -> Result<Graph, CudaError> {
        let GraphKey { part, rows, depth, visible } = key;
        let work = &self.work;
        let kernels = &work.model.kernels;
        let name = format!("{part:?} of {rows} rows, {depth} drafts, {visible} tokens").to_lowercase();
        let gathered = self.gathered.as_ref().map(PinnedBuffer::mapped);
        let (request, outcome) = (self.request.mapped(), self.outcome.mapped());
        let keep: Arc<dyn std::any::Any + Send + Sync> = Arc::clone(work) as _;
        stream.capture(&name, vec![keep], |stream| {
            cycle::begin(stream, kernels, request, work.control.all())?;
            if part != Part::Draft {
                work.verify(stream, rows, visible, gathered)?;
            }
            if part != Part::Verify {
                work.draft(stream, work.residual(0, rows), depth, visible)?;
            }
            cycle::end(stream, kernels, work.control.all(), outcome)
        })
    }

    /// Polls for the round's generation.
    fn wait(&self, stream: &Stream) -> Result<Outcome, CudaError> {
        let begun = Instant::now();
        let mut turns = 0_u32;
        while self.outcome.read_volatile(0) != self.generation {
            spin_loop();
            turns = turns.wrapping_add(1);
            // The clock costs more than the word: look at it now and then.
            if turns.is_multiple_of(4096) && begun.elapsed() > PATIENCE {
                stream.synchronize()?;
                if self.outcome.read_volatile(0) != self.generation {
                    return Err(stale());
                }
            }
        }
        fence(Ordering::Acquire);
        let mut outcome = Outcome::zeroed();
        let words: &mut [u32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut outcome));
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.outcome.read_volatile(i);
        }
        Ok(outcome)
    }

    /// Nodes of the graph that a round of these numbers runs, once it has run.
    pub(crate) fn nodes(&self, rows: usize, depth: usize) -> Option<usize> {
        let fits = |key: &&GraphKey| (key.part, key.rows, key.depth) == (Part::Whole, rows, depth);
        self.graphs.keys().find(fits).and_then(|key| self.graphs.get(key)?.nodes().ok())
    }
}

/// A round that ended without its outcome.
fn stale() -> CudaError {
    CudaError::Driver { call: "a round".into(), code: "it ended without an outcome".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_rows_and_stay_inside_the_caches() {
        for end in [1, 4096, 4097, 60_000, 262_151] {
            let bucket = bucket(end, 262_151);
            assert!(bucket >= end && bucket <= 262_151, "{end}: {bucket}");
        }
        assert_eq!(bucket(5, 263), 263, "a short context is one bucket");
    }
}
