//! Prompt rows: pieces of the prompt through the stack, and the draft head's cache behind them.

use crate::control::{AT_WORDS, At, NONE};
use crate::cycle::Workspace;
use crate::driver::{DeviceBuffer, DeviceSlice, Stream};
use crate::error::CudaError;
use crate::forward::{Arena, HeadRows, NgramRows, Pass, Phase, TargetRows, arena_bytes};
use crate::model::Model;
use crate::state;

/// Most rows of a piece. A multiple of the delta net's chunk, so that pieces are cut at absolute multiples of it.
const PIECE_ROWS: usize = 2048;
/// What the piece of a short context is rounded up to.
const CHUNK: usize = cudafast_runtime::CHUNK_TOKENS;

/// What pieces run in.
pub(crate) struct Prefill {
    arena: Arena,
    /// The tokens before a piece that its n-grams reach, then the piece's.
    tokens: DeviceBuffer<u32>,
    /// Where the target's rows stand, then the head's.
    at: DeviceBuffer<u32>,
    /// Rows of an n-gram table that stays on the host.
    gathered: Option<DeviceBuffer<f32>>,
}

/// Rows of a piece in a context of `ctx_tokens`.
fn rows(ctx_tokens: usize) -> usize {
    PIECE_ROWS.min(ctx_tokens.next_multiple_of(CHUNK))
}

/// Device bytes of a [`Prefill`].
pub(crate) fn bytes(model: &Model, ctx_tokens: usize) -> u64 {
    let rows = rows(ctx_tokens);
    let scratch = model.kernel_scratch(Phase::Prefill, rows, state::cache_rows(ctx_tokens));
    let gathered = if model.table_on_device() { 0 } else { rows * model.hp.ngram.width() * size_of::<f32>() };
    arena_bytes(&model.hp, rows, 0, scratch) + (gathered + rows * size_of::<u32>()) as u64
}

impl Prefill {
    pub(crate) fn new(model: &Model, stream: &Stream, ctx_tokens: usize) -> Result<Self, CudaError> {
        let (context, hp) = (&model.context, &model.hp);
        let rows = rows(ctx_tokens);
        let scratch = model.kernel_scratch(Phase::Prefill, rows, state::cache_rows(ctx_tokens));
        let gathered = if model.table_on_device() {
            None
        } else {
            Some(DeviceBuffer::new(context, "n-gram rows", rows * hp.ngram.width())?)
        };
        Ok(Self {
            arena: Arena::new(context, stream, hp, rows, 0, scratch)?,
            tokens: DeviceBuffer::new(context, "prompt tokens", hp.ngram.ngram - 1 + rows)?,
            at: DeviceBuffer::new(context, "row positions", 2 * AT_WORDS)?,
            gathered,
        })
    }

    /// Rows of the next piece from `position` on, of `left` that are to be run: up to an absolute multiple.
    pub(crate) fn piece(&self, position: usize, left: usize) -> usize {
        left.min(self.arena.rows - position % self.arena.rows)
    }

    /// Residual row `row` of the piece last run.
    pub(crate) fn residual(&self, model: &Model, row: usize, rows: usize) -> DeviceSlice<'_, f32> {
        let wide = model.hp.wide();
        self.arena.all(self.arena.parts.x).part((1 + row) * wide, rows * wide)
    }

    /// Runs the last `n` of `tokens` and seeds the head up to the row before the last. `before` is the residual row of the
    /// token before them.
    pub(crate) fn run(
        &self,
        work: &Workspace,
        stream: &Stream,
        tokens: &[u32],
        n: usize,
        before: DeviceSlice<'_, f32>,
    ) -> Result<(), CudaError> {
        let model = &*work.model;
        let hp = &model.hp;
        let position = tokens.len() - n;
        // Head row i joins R[i] with token i + 1: the rows before the piece's last, and the one before its first.
        let first = position.saturating_sub(1);
        self.place(stream, hp.ngram.ngram - 1, tokens, n, [position, first])?;
        let gathered = match &self.gathered {
            Some(buffer) => {
                let mut rows = vec![0.0; n * hp.ngram.width()];
                model.gather_ngrams(tokens, n, &mut rows);
                let slice = buffer.all().part(0, rows.len());
                stream.upload(&rows, slice)?;
                Some(slice)
            }
            None => None,
        };
        let history = hp.ngram.ngram - 1;
        let pass = Pass {
            stream,
            kernels: &model.kernels,
            hp,
            tensors: &model.target,
            arena: &self.arena,
            rope: work.rope.all(),
            phase: Phase::Prefill,
            rows: n,
            at: self.at.all().part(0, AT_WORDS),
            visible: tokens.len(),
            hash: model.hash.all(),
        };
        let of = TargetRows {
            tokens: self.tokens.all().part(history, n),
            ngram: match gathered {
                Some(rows) => NgramRows::Gathered(rows),
                None => NgramRows::Hashed(self.tokens.all().part(0, history + n)),
            },
            x: self.residual(model, 0, n),
        };
        pass.target(&model.weights, &work.state, of)?;
        let (Some(w), Some(caches)) = (&model.head, &work.state.head) else { return Ok(()) };
        // The row before the piece stands in front of its rows.
        let skip = usize::from(position == 0);
        let count = n - skip;
        if count == 0 {
            return Ok(());
        }
        let wide = hp.wide();
        let x = self.arena.all(self.arena.parts.x);
        if skip == 0 {
            stream.copy(before, x.part(0, wide))?;
        }
        let seed =
            Pass { tensors: &model.head_tensors, rows: count, at: self.at.all().part(AT_WORDS, AT_WORDS), ..pass };
        let rows = HeadRows {
            residual: x.part(skip * wide, count * wide),
            tokens: self.tokens.all().part(history + skip, count),
            x: self.arena.first(self.arena.parts.head_x, count * wide),
        };
        seed.head(w, caches, model.shared_with_head(), model.single_head_norm(), rows)
    }

    fn place(
        &self,
        stream: &Stream,
        history: usize,
        tokens: &[u32],
        n: usize,
        positions: [usize; 2],
    ) -> Result<(), CudaError> {
        let start = tokens.len() - n;
        let mut run = vec![NONE; history.saturating_sub(start)];
        run.extend_from_slice(&tokens[start.saturating_sub(history)..]);
        stream.upload(&run, self.tokens.all().part(0, history + n))?;
        let at = positions.map(|position| At { position: position as u32, ..At::default() });
        stream.upload(bytemuck::cast_slice(&at), self.at.all())
    }
}
