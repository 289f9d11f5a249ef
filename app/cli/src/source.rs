//! Which files: the model, and the draft head that goes with it.

use std::path::{Path, PathBuf};

use cudafast_gguf::{ShardSet, draft_heads_in};
use cudafast_tiny::Source;

use crate::args::{HeadArgs, ModelArgs};
use crate::failure::Failure;

/// The model that was named, or the embedded one.
pub(crate) fn open_model(args: &ModelArgs) -> Result<ShardSet, Failure> {
    match &args.model {
        Some(path) => Ok(ShardSet::open(path)?),
        None => open_tiny(cudafast_tiny::model()),
    }
}

/// What there is to draft with.
pub(crate) enum Head {
    One(Box<ShardSet>),
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

    pub(crate) fn file(&self) -> Option<&ShardSet> {
        match self {
            Head::One(file) => Some(file),
            Head::None | Head::Several { .. } => None,
        }
    }
}

/// The draft head that was named, else the one beside the model.
pub(crate) fn open_head(model: &ModelArgs, args: &HeadArgs, target: &ShardSet) -> Result<Head, Failure> {
    let one = |file| Head::One(Box::new(file));
    if args.no_mtp {
        return Ok(Head::None);
    }
    if let Some(path) = &args.mtp_model {
        return Ok(one(ShardSet::open(path)?));
    }
    if model.model.is_none() {
        return open_tiny(cudafast_tiny::draft_head()).map(one);
    }
    let folder = target.shards().first().map(|shard| parent(shard.path())).unwrap_or_default();
    let heads = draft_heads_in(&folder)?;
    match &heads[..] {
        [] => Ok(Head::None),
        [path] => Ok(one(ShardSet::open(path)?)),
        _ => Ok(Head::Several { folder, heads }),
    }
}

fn open_tiny(source: Source) -> Result<ShardSet, Failure> {
    Ok(match source {
        Source::Embedded { label, bytes } => ShardSet::from_static(label, bytes)?,
        Source::Tree { path } => ShardSet::open(&path)?,
    })
}

fn parent(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
