//! The CPU as a [`Backend`].

use std::sync::Arc;

use cudafast_model::{DraftHead, Home, Hyperparams, MemoryPlan, Weights};
use cudafast_runtime::{Backend, BackendError, Timeline, TimelineOptions};

use crate::model::Model;
use crate::pool::Pool;
use crate::rope::Rope;
use crate::timeline::{self, CpuTimeline};

/// What activations and caches are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// int8 activations in groups of 32, BF16 caches: how the engine runs.
    #[default]
    Int8,
    /// f32 activations and caches: the debug switch that is compared with the oracle.
    F32,
}

/// Statistics of the draft head's norm over the wide residual (qwen4exp.md 14: the sources disagree).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadNorm {
    /// One mean square over all channels.
    #[default]
    Single,
    /// One per residual stream.
    PerStream,
}

/// How the CPU backend runs.
#[derive(Debug, Clone, Default)]
pub struct CpuOptions {
    /// Worker threads; 0 = every core.
    pub threads: usize,
    /// Activations and caches.
    pub precision: Precision,
    /// Draft-head norm.
    pub head_norm: HeadNorm,
}

/// A model on the CPU.
pub struct CpuBackend {
    model: Arc<Model>,
}

impl CpuBackend {
    /// Takes bound weights. Errors: the worker threads cannot be started.
    pub fn new(
        hyperparams: Hyperparams,
        weights: Weights,
        head: Option<DraftHead>,
        options: &CpuOptions,
    ) -> Result<Self, BackendError> {
        let pool = Pool::new(options.threads)
            .map_err(|why| BackendError::Device { operation: "starting worker threads".into(), why })?;
        let rope = Rope::new(hyperparams.attention.rotary_dims, hyperparams.attention.rope_theta);
        let (precision, head_norm) = (options.precision, options.head_norm);
        Ok(Self { model: Arc::new(Model { hp: hyperparams, weights, head, precision, head_norm, pool, rope }) })
    }

    /// As [`Backend::open`], with the CPU's own type: probes and head rows for tests and tools.
    pub fn open_timeline(&self, options: &TimelineOptions) -> Result<CpuTimeline, BackendError> {
        let limit = self.model.hp.context_tokens;
        if options.ctx_tokens == 0 || options.ctx_tokens > limit {
            return Err(BackendError::ContextFull { needed: options.ctx_tokens, limit });
        }
        Ok(CpuTimeline::new(Arc::clone(&self.model), options.ctx_tokens))
    }
}

impl Backend for CpuBackend {
    fn describe(&self) -> String {
        let precision = match self.model.precision {
            Precision::Int8 => "int8 activations",
            Precision::F32 => "f32 activations",
        };
        format!("cpu, {} threads, {precision}", self.model.pool.threads())
    }

    fn hyperparams(&self) -> &Hyperparams {
        &self.model.hp
    }

    fn has_draft_head(&self) -> bool {
        self.model.head.is_some()
    }

    fn memory_plan(&self, ctx_tokens: usize) -> MemoryPlan {
        let cache_value_bytes = match self.model.precision {
            Precision::Int8 => 2,
            Precision::F32 => 4,
        };
        MemoryPlan::new(&self.model.hp, &self.model.weights, self.model.head.as_ref(), ctx_tokens, cache_value_bytes)
            .with_ngram_table(Home::Disk)
            .with_scratch(timeline::scratch_bytes(&self.model.hp))
    }

    fn open(&self, options: &TimelineOptions) -> Result<Box<dyn Timeline>, BackendError> {
        Ok(Box::new(self.open_timeline(options)?))
    }
}
