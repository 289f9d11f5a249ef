//! From a model's name to a backend: find, bind, plan, in this order, so that what cannot run is refused before it costs
//! anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cudafast_cpu::{CpuBackend, CpuOptions, Isa};
use cudafast_gguf::{ShardSet, draft_heads_in};
use cudafast_model::{DraftHead, Hyperparams, WeightSource, Weights};
use cudafast_runtime::{Backend, MAX_DEPTH};
use cudafast_tiny::Source;

use super::{Drafting, TargetError, Token};

/// Context where none was asked for, in tokens: what the contract's memory plan has room for (track-contract.md 6.3).
const CTX_TOKENS: usize = 8192;

/// Which model, and how it is to run.
#[derive(Debug, Clone)]
pub struct Choice {
    /// A .gguf file, a directory that holds one model, or `embedded`.
    pub model: PathBuf,
    /// The draft head; left out: the one beside the model.
    pub mtp_model: Option<PathBuf>,
    /// How deep it will draft. [`Drafting::None`] loads no head, [`Drafting::Fixed`] demands one.
    pub drafting: Drafting,
    /// Tokens of the timeline; left out: 8192, or the trained context where that is less.
    pub ctx_tokens: Option<usize>,
    /// Ids that end a correctness run, besides the model's own.
    pub stop_ids: Vec<Token>,
    /// Worker threads on the CPU; 0 = every core.
    pub threads: usize,
    /// What it runs on.
    pub device: Device,
}

/// What a model runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// A card by its number; in a build with the feature `cuda`.
    Cuda(u32),
}

impl FromStr for Device {
    type Err = TargetError;
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let refused = || TargetError::Device { found: text.to_owned() };
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(Self::Cuda).ok_or_else(refused),
        }
    }
}

impl Choice {
    /// The model at `model`, or `embedded`, with the draft head beside it, at any depth.
    pub fn of(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            mtp_model: None,
            drafting: Drafting::UpTo(MAX_DEPTH as u32),
            ctx_tokens: None,
            stop_ids: Vec::new(),
            threads: 0,
            device: Device::Cpu,
        }
    }
}

/// A backend and what it was made of.
pub(super) struct Loaded {
    pub(super) backend: Box<dyn Backend>,
    pub(super) device: String,
    pub(super) model_label: String,
    pub(super) head_label: Option<String>,
    pub(super) ctx_tokens: usize,
}

/// Loads on the device that was chosen.
pub(super) fn open(choice: &Choice) -> Result<Loaded, TargetError> {
    if let Drafting::Fixed(depth) | Drafting::UpTo(depth) = choice.drafting
        && depth as usize > MAX_DEPTH
    {
        return Err(TargetError::DraftTokens { found: depth.saturating_add(1), max: MAX_DEPTH as u32 + 1 });
    }
    let target = model(&choice.model)?;
    let head = head(choice, &target)?;
    let hyperparams = Hyperparams::from_source(&target)?;
    let trained = hyperparams.context_tokens;
    let ctx_tokens = choice.ctx_tokens.unwrap_or(CTX_TOKENS.min(trained));
    if ctx_tokens == 0 || ctx_tokens > trained {
        return Err(TargetError::Context { found: ctx_tokens, trained });
    }
    let vocab = hyperparams.vocab;
    let foreign = |id: &&Token| usize::try_from(**id).map_or(true, |id| id >= vocab);
    if let Some(id) = choice.stop_ids.iter().find(foreign) {
        return Err(TargetError::StopId { id: *id, vocab });
    }
    let weights = Weights::bind(&target, &hyperparams)?;
    let bound = match &head {
        Some(file) => Some(DraftHead::bind(file, &target, &hyperparams, &weights)?),
        None => None,
    };
    let (backend, device) = match choice.device {
        Device::Cpu => on_cpu(choice, hyperparams, weights, bound, ctx_tokens)?,
        Device::Cuda(card) => on_card(card, hyperparams, weights, bound, ctx_tokens)?,
    };
    Ok(Loaded {
        backend,
        device,
        model_label: target.label().to_owned(),
        head_label: head.map(|head| head.label().to_owned()),
        ctx_tokens,
    })
}

fn on_cpu(
    choice: &Choice,
    hyperparams: Hyperparams,
    weights: Weights,
    head: Option<DraftHead>,
    ctx_tokens: usize,
) -> Result<(Box<dyn Backend>, String), TargetError> {
    let options = CpuOptions { threads: choice.threads, ..CpuOptions::default() };
    let backend = CpuBackend::new(hyperparams, weights, head, &options)?;
    if let Some(available) = available_memory() {
        backend.memory_plan(ctx_tokens).check(available)?;
    }
    Ok((Box::new(backend), format!("cpu {}", Isa::current())))
}

#[cfg(feature = "cuda")]
fn on_card(
    card: u32,
    hyperparams: Hyperparams,
    weights: Weights,
    head: Option<DraftHead>,
    ctx_tokens: usize,
) -> Result<(Box<dyn Backend>, String), TargetError> {
    use cudafast_cuda::{CudaBackend, CudaOptions, Synthetic};
    let options = CudaOptions { device: card, ..CudaOptions::default() };
    let backend = CudaBackend::new(hyperparams, weights, head, Synthetic::default(), &options)?;
    backend.memory_plan(ctx_tokens).check(backend.room().bytes()?)?;
    let (major, minor) = backend.capability();
    Ok((Box::new(backend), format!("cuda sm_{major}{minor}")))
}

#[cfg(not(feature = "cuda"))]
fn on_card(
    card: u32,
    _: Hyperparams,
    _: Weights,
    _: Option<DraftHead>,
    _: usize,
) -> Result<(Box<dyn Backend>, String), TargetError> {
    Err(TargetError::NoCuda { card })
}

fn is_embedded(path: &Path) -> bool {
    path == Path::new("embedded")
}

fn model(path: &Path) -> Result<WeightSource, TargetError> {
    if is_embedded(path) { tiny(cudafast_tiny::model()) } else { Ok(ShardSet::open(path)?.into()) }
}

/// The draft head that was named, else the one beside the model.
fn head(choice: &Choice, target: &WeightSource) -> Result<Option<WeightSource>, TargetError> {
    if choice.drafting == Drafting::None {
        return Ok(None);
    }
    if let Some(path) = &choice.mtp_model {
        return if is_embedded(path) { tiny(cudafast_tiny::draft_head()) } else { Ok(ShardSet::open(path)?.into()) }
            .map(Some);
    }
    if is_embedded(&choice.model) {
        return tiny(cudafast_tiny::draft_head()).map(Some);
    }
    let folder = if choice.model.is_dir() { choice.model.clone() } else { folder_of(&choice.model) };
    let heads = draft_heads_in(&folder)?;
    match (&heads[..], choice.drafting) {
        ([only], _) => Ok(Some(ShardSet::open(only)?.into())),
        ([], Drafting::Fixed(_)) => Err(TargetError::NoDraftHead { model: target.label().to_owned() }),
        ([], _) => Ok(None),
        (several, _) => Err(TargetError::SeveralDraftHeads { folder, count: several.len() }),
    }
}

fn tiny(source: Source) -> Result<WeightSource, TargetError> {
    Ok(match source {
        Source::Embedded { label, bytes } => ShardSet::from_static(label, bytes)?.into(),
        Source::Tree { path } => ShardSet::open(&path)?.into(),
    })
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Bytes the system can give without swapping, where it says so.
fn available_memory() -> Option<u64> {
    let kib = fs::read_to_string("/proc/meminfo").ok()?;
    let line = kib.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
