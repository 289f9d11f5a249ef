//! From files to an engine: check, bind, plan, in this order, so that what cannot run is refused before it costs anything.

use std::cell::Cell;
use std::time::{Duration, Instant};

use cudafast_cpu::{CpuBackend, CpuOptions};
use cudafast_model::{DraftHead, Home, Hyperparams, MemoryPlan, PlanItem, WeightSource, Weights};
use cudafast_runtime::{Backend, Engine, GenerateOptions, Penalties, Sampling, Session, SessionOptions};

use crate::args::{Depth, GenerateArgs, HeadArgs, ModelArgs, SamplingArgs};
use crate::failure::Failure;
use crate::output;
use crate::progress::Waiting;
use crate::runner::Runner;
use crate::source::{self, Head};

/// A model ready to run.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) model: WeightSource,
    pub(crate) took: Duration,
    room: Room,
    /// What to tell before the first session, once nothing is left to refuse: an error stands alone.
    notes: Cell<Vec<String>>,
    /// Why the file's chat template cannot be used, where it has one that cannot.
    template_fault: Cell<Option<Failure>>,
}

/// The memory that the model runs from.
enum Room {
    Host,
    #[cfg(feature = "cuda")]
    Device(cudafast_cuda::DeviceRoom),
}

/// Context where nobody knows how much is needed: long for a talk, and little memory.
const CTX_TOKENS: usize = 32_768;

/// The model and the draft head that were named, for generating.
pub(crate) fn open(
    model: &ModelArgs,
    head: &HeadArgs,
    generate: &GenerateArgs,
    runner: &Runner,
) -> Result<Loaded, Failure> {
    let (file, head) = source::open_with_head(model, head, runner)?;
    check_depth(generate, &head)?;
    load(file, &head, runner)
}

/// Loads `target` and, where there is one, its draft head.
pub(crate) fn load(target: WeightSource, head: &Head, runner: &Runner) -> Result<Loaded, Failure> {
    let begun = Instant::now();
    let waiting = Waiting::begin(&format!("loading {}", target.label()));
    let (backend, room): (Box<dyn Backend>, Room) = match runner {
        Runner::Cpu(options) => (Box::new(cpu(&target, head, options)?), Room::Host),
        #[cfg(feature = "cuda")]
        Runner::Cuda(options) => {
            let backend = cuda(&target, head, options)?;
            let room = Room::Device(backend.room());
            (Box::new(backend), room)
        }
    };
    let tokenizer = cudafast_runtime::tokenizer(&target)?;
    let (template, template_fault) = match cudafast_runtime::chat_template(&target, &tokenizer) {
        Ok(template) => (template, None),
        Err(error) => (None, Some(error.into())), // a fault of chat alone: `run` goes on without
    };
    let engine = Engine::new(backend, tokenizer, template, target.label())?;
    drop(waiting);
    let notes = Cell::new(head.note().into_iter().collect());
    let took = begun.elapsed();
    Ok(Loaded { engine, model: target, took, room, notes, template_fault: Cell::new(template_fault) })
}

fn bind(target: &WeightSource, head: &Head) -> Result<(Hyperparams, Weights, Option<DraftHead>), Failure> {
    let hyperparams = Hyperparams::from_source(target)?;
    let weights = Weights::bind(target, &hyperparams)?;
    let bound = match head.file() {
        Some(file) => Some(DraftHead::bind(file, target, &hyperparams, &weights)?),
        None => None,
    };
    Ok((hyperparams, weights, bound))
}

/// The device side alone, on the CPU.
pub(crate) fn cpu(target: &WeightSource, head: &Head, options: &CpuOptions) -> Result<CpuBackend, Failure> {
    let (hyperparams, weights, head) = bind(target, head)?;
    Ok(CpuBackend::new(hyperparams, weights, head, options)?)
}

/// The device side alone, on a card. What a synthetic model is made of is made there.
#[cfg(feature = "cuda")]
pub(crate) fn cuda(
    target: &WeightSource,
    head: &Head,
    options: &cudafast_cuda::CudaOptions,
) -> Result<cudafast_cuda::CudaBackend, Failure> {
    fn synthetic(source: &WeightSource) -> Option<&cudafast_model::SynthFile> {
        match source {
            WeightSource::Synthetic(made) => Some(made.file()),
            _ => None,
        }
    }
    let (hyperparams, weights, bound) = bind(target, head)?;
    let made = cudafast_cuda::Synthetic { model: synthetic(target), head: head.file().and_then(synthetic) };
    Ok(cudafast_cuda::CudaBackend::new(hyperparams, weights, bound, made, options)?)
}

/// Refuses a depth that needs a head where none is. Before a model is loaded for nothing.
fn check_depth(args: &GenerateArgs, head: &Head) -> Result<(), Failure> {
    match (args.depth, head) {
        (Depth::Fixed(1..), Head::Several { .. }) => {
            Err(Failure::SeveralHeads { note: head.note().unwrap_or_default() })
        }
        (Depth::Fixed(depth @ 1..), Head::None) => Err(cudafast_runtime::Error::NoDraftHead { depth }.into()),
        _ => Ok(()),
    }
}

impl Loaded {
    /// Refuses a model that cannot chat, with the reason.
    pub(crate) fn require_template(&self) -> Result<(), Failure> {
        if self.engine.template().is_some() {
            return Ok(());
        }
        let none = || cudafast_runtime::Error::NoTemplate { label: self.engine.label().to_owned() }.into();
        Err(self.template_fault.take().unwrap_or_else(none))
    }

    /// A session with room for `ctx_tokens` and its plan, refused with the sum where memory will not do.
    pub(crate) fn open_session(&self, ctx_tokens: usize, snapshots: usize) -> Result<(Session, MemoryPlan), Failure> {
        let plan = self.plan(ctx_tokens, snapshots)?;
        match &self.room {
            Room::Host => {
                if let Some(available) = available_memory() {
                    plan.check(available.saturating_add(self.in_memory_bytes(&plan)))?;
                }
            }
            // Snapshots are the host's there.
            #[cfg(feature = "cuda")]
            Room::Device(room) => plan.clone().with_snapshots(0).check(room.bytes()?)?,
        }
        let session = self.engine.open_session(&SessionOptions { ctx_tokens, snapshots })?;
        self.template_fault.take().iter().for_each(|fault| output::note(&fault.one_line()));
        self.notes.take().iter().for_each(|note| output::note(note));
        Ok((session, plan))
    }

    /// Every byte of a run. Refuses a context the model was not trained for.
    pub(crate) fn plan(&self, ctx_tokens: usize, snapshots: usize) -> Result<MemoryPlan, Failure> {
        let (found, trained) = (ctx_tokens, self.trained_tokens());
        if found == 0 || found > trained {
            return Err(cudafast_runtime::Error::InvalidContext { found, trained }.into());
        }
        let plan = self.engine.backend().memory_plan(ctx_tokens).with_snapshots(snapshots);
        Ok(match self.model {
            WeightSource::Synthetic(_) => plan.with_ngram_table(Home::Device), // no file to leave it in
            _ => plan,
        })
    }

    /// What of the plan is in memory already: a mapped file is not until it is read, a synthetic model is.
    fn in_memory_bytes(&self, plan: &MemoryPlan) -> u64 {
        let WeightSource::Synthetic(_) = self.model else { return 0 };
        let weights = plan.lines().iter().filter(|line| matches!(line.item, PlanItem::Weights(_)));
        weights.map(|line| line.bytes).sum()
    }

    /// The context where none was asked for and nobody knows how much is needed.
    pub(crate) fn default_ctx_tokens(&self) -> usize {
        CTX_TOKENS.min(self.trained_tokens())
    }

    /// The context the model was trained for.
    pub(crate) fn trained_tokens(&self) -> usize {
        self.engine.backend().hyperparams().context_tokens
    }

    /// How to generate, as typed.
    pub(crate) fn generate_options(&self, args: &GenerateArgs) -> Result<GenerateOptions, Failure> {
        Ok(GenerateOptions {
            max_tokens: args.max_tokens,
            stop: self.engine.stop_tokens(),
            stop_strings: args.stop.clone(),
            sampling: self.sampling(&args.sampling)?,
            logit_bias: args.sampling.logit_bias.iter().map(|bias| (bias.0, bias.1)).collect(),
            top_logprobs: None,
            depth: args.depth.into(),
        })
    }

    /// What was typed, else what the file recommends, else greedy.
    fn sampling(&self, args: &SamplingArgs) -> Result<Sampling, Failure> {
        let file = self.model.metadata();
        let temperature = match args.temp {
            Some(temperature) => temperature,
            None => file.f32_opt("general.sampling.temp")?.unwrap_or(0.0),
        };
        let top_k = match args.top_k {
            Some(top_k) => top_k,
            None => file.u32_opt("general.sampling.top_k")?.unwrap_or(0) as usize,
        };
        let top_p = match args.top_p {
            Some(top_p) => top_p,
            None => file.f32_opt("general.sampling.top_p")?.unwrap_or(1.0),
        };
        let penalties = Penalties::new(args.repeat_penalty, args.presence_penalty, args.frequency_penalty)?;
        Ok(Sampling::new(temperature, top_k, top_p, args.min_p, args.seed)?.with_penalties(penalties))
    }
}

/// Bytes the system can give without swapping, where it says so.
pub(crate) fn available_memory() -> Option<u64> {
    let kib = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = kib.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
