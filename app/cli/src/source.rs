//! Which files: the model, and the draft head that goes with it.

use std::path::{Path, PathBuf};

use cudafast_gguf::{ShardSet, draft_heads_in};
use cudafast_model::{SynthFile, WeightSource};
use cudafast_tiny::Source;

use crate::args::{HeadArgs, ModelArgs};
use crate::failure::Failure;
use crate::load::available_memory;
use crate::progress::Progress;
use crate::runner::Runner;

/// How much of a model is wanted. Files are mapped, and so the same either way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// To run it.
    Whole,
    /// To look at it: a synthetic one is then not made, which would take its memory.
    Outline,
}

/// What `runner` needs of a model: a card makes a synthetic one itself.
fn contents(runner: &Runner) -> Contents {
    if runner.is_cpu() { Contents::Whole } else { Contents::Outline }
}

/// The model that was named, or the embedded one.
pub(crate) fn open_model(args: &ModelArgs, runner: &Runner) -> Result<WeightSource, Failure> {
    model(args, contents(runner))
}

/// As [`open_model`], to look at keys, shapes and sizes alone.
pub(crate) fn outline_model(args: &ModelArgs) -> Result<WeightSource, Failure> {
    model(args, Contents::Outline)
}

/// The model, and the draft head that was named, else the one beside it.
pub(crate) fn open_with_head(
    model_args: &ModelArgs,
    head_args: &HeadArgs,
    runner: &Runner,
) -> Result<(WeightSource, Head), Failure> {
    if runner.is_cpu() {
        check_room(model_args, head_args)?;
    }
    with_head(model_args, head_args, contents(runner))
}

/// As [`open_with_head`], to look at keys, shapes and sizes alone.
pub(crate) fn outline_with_head(model_args: &ModelArgs, head_args: &HeadArgs) -> Result<(WeightSource, Head), Failure> {
    with_head(model_args, head_args, Contents::Outline)
}

fn with_head(
    model_args: &ModelArgs,
    head_args: &HeadArgs,
    contents: Contents,
) -> Result<(WeightSource, Head), Failure> {
    let target = model(model_args, contents)?;
    let head = head(model_args, head_args, &target, contents)?;
    Ok((target, head))
}

/// Refuses, before any of it is made, a synthetic model that does not fit memory together with its head.
fn check_room(model: &ModelArgs, head: &HeadArgs) -> Result<(), Failure> {
    let Some(spec) = &model.synth else { return Ok(()) };
    let alone = head.no_mtp || head.mtp_model.is_some();
    let head_bytes = if alone { 0 } else { spec.0.draft_head()?.tensor_bytes() };
    fits(spec.0.model()?.tensor_bytes() + head_bytes)
}

fn model(args: &ModelArgs, contents: Contents) -> Result<WeightSource, Failure> {
    match (&args.model, &args.synth) {
        (Some(path), _) => Ok(ShardSet::open(path)?.into()),
        (None, Some(spec)) => synthetic(spec.0.model()?, contents),
        (None, None) => open_tiny(cudafast_tiny::model()),
    }
}

/// What there is to draft with.
pub(crate) enum Head {
    One(WeightSource),
    None,
    /// More than one beside the model, and no telling which.
    Several {
        folder: PathBuf,
        heads: Vec<PathBuf>,
    },
}

impl Head {
    /// Why there is none, where that may surprise.
    pub(crate) fn note(&self) -> Option<String> {
        let Head::Several { folder, heads } = self else { return None };
        let (folder, count) = (folder.display(), heads.len());
        let first = heads.first().map(|head| format!(", e.g. --mtp-model {}", head.display())).unwrap_or_default();
        Some(format!("{folder}: {count} draft heads beside the model, none is used; name one{first}"))
    }

    pub(crate) fn file(&self) -> Option<&WeightSource> {
        match self {
            Head::One(file) => Some(file),
            Head::None | Head::Several { .. } => None,
        }
    }
}

/// The draft head that was named, else the one beside the model.
fn head(model: &ModelArgs, args: &HeadArgs, target: &WeightSource, contents: Contents) -> Result<Head, Failure> {
    if args.no_mtp {
        return Ok(Head::None);
    }
    if let Some(path) = &args.mtp_model {
        return Ok(Head::One(ShardSet::open(path)?.into()));
    }
    if let Some(spec) = &model.synth {
        return synthetic(spec.0.draft_head()?, contents).map(Head::One);
    }
    let target = match target {
        WeightSource::Shards(target) if model.model.is_some() => target,
        _ => return open_tiny(cudafast_tiny::draft_head()).map(Head::One),
    };
    let folder = target.shards().first().map(|shard| parent(shard.path())).unwrap_or_default();
    let heads = draft_heads_in(&folder)?;
    match &heads[..] {
        [] => Ok(Head::None),
        [path] => Ok(Head::One(ShardSet::open(path)?.into())),
        _ => Ok(Head::Several { folder, heads }),
    }
}

fn fits(needed: u64) -> Result<(), Failure> {
    match available_memory() {
        Some(available) if needed > available => Err(Failure::SynthRoom { needed, available }),
        _ => Ok(()),
    }
}

fn synthetic(file: SynthFile, contents: Contents) -> Result<WeightSource, Failure> {
    if contents == Contents::Outline {
        return Ok(file.outline()?.into());
    }
    fits(file.tensor_bytes())?;
    let progress = Progress::bytes("making weights", file.tensor_bytes());
    let step = |bytes| {
        progress.advance(bytes);
        Ok(())
    };
    Ok(file.fill(&step)?.into())
}

fn open_tiny(source: Source) -> Result<WeightSource, Failure> {
    Ok(match source {
        Source::Embedded { label, bytes } => ShardSet::from_static(label, bytes)?.into(),
        Source::Tree { path } => ShardSet::open(&path)?.into(),
    })
}

fn parent(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
