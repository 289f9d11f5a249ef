//! Which files: the model, and the draft head that goes with it.

use std::path::{Path, PathBuf};

use cudafast_gguf::ShardSet;
use cudafast_tiny::Source;

use crate::args::{HeadArgs, ModelArgs};
use crate::failure::Failure;
use crate::output;

/// The model that was named, or the embedded one.
pub(crate) fn open_model(args: &ModelArgs) -> Result<ShardSet, Failure> {
    match &args.model {
        Some(path) => Ok(ShardSet::open(path)?),
        None => open_tiny(cudafast_tiny::model()),
    }
}

/// The draft head that was named, else the one beside the model; `None` where there is none or no telling which.
pub(crate) fn open_head(model: &ModelArgs, args: &HeadArgs, target: &ShardSet) -> Result<Option<ShardSet>, Failure> {
    if args.no_mtp {
        return Ok(None);
    }
    if let Some(path) = &args.mtp_model {
        return Ok(Some(ShardSet::open(path)?));
    }
    if model.model.is_none() {
        return open_tiny(cudafast_tiny::draft_head()).map(Some);
    }
    let beside = target.shards().first().map(|shard| parent(shard.path())).unwrap_or_default();
    let mut heads = heads_in(&beside)?;
    match heads.len() {
        0 => Ok(None),
        1 => Ok(Some(ShardSet::open(&heads.remove(0))?)),
        count => {
            let first = heads[0].display();
            output::note(&format!(
                "{}: {count} draft heads beside the model, none is used; name one, e.g. --mtp-model {first}",
                beside.display()
            ));
            Ok(None)
        }
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

/// Files named `mtp-*.gguf`, by name.
fn heads_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |source| Failure::Read { path: folder.display().to_string(), source };
    let mut heads = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("mtp-") && name.ends_with(".gguf") && path.is_file() {
            heads.push(path);
        }
    }
    heads.sort();
    Ok(heads)
}
