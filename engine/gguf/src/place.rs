//! Which files a path means: the shard naming rule and the rule for directories (gguf-qwen4exp.md 1).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::error::Error;

/// A file name of the pattern `<base>-%05d-of-%05d.gguf`. `no` counts from 1 here, from 0 in the header's `split.no`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShardName {
    base: PathBuf,
    pub(crate) no: u64,
    pub(crate) count: u64,
}

impl ShardName {
    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let (rest, count) = split_number(path.file_name()?.to_str()?.strip_suffix(".gguf")?)?;
        let (base, no) = split_number(rest.strip_suffix("-of")?)?;
        Some(Self { base: path.with_file_name(base), no, count })
    }

    /// The path of shard `no` of the same set.
    pub(crate) fn path_of(&self, no: u64) -> PathBuf {
        let mut name = self.base.clone().into_os_string();
        name.push(format!("-{}.gguf", Self::tail(no, self.count)));
        name.into()
    }

    /// The part of the name that numbers shard `no`.
    pub(crate) fn tail(no: u64, count: u64) -> String {
        format!("{no:05}-of-{count:05}")
    }
}

/// Cuts `-ddddd` off the end.
fn split_number(s: &str) -> Option<(&str, u64)> {
    let (rest, digits) = s.rsplit_once('-')?;
    let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
    Some((rest, plain.then(|| digits.parse().ok())??))
}

/// Whether a file name is a draft head's: `mtp-*.gguf`.
fn is_draft_head(path: &Path) -> bool {
    is_gguf(path) && name_of(path).starts_with("mtp-")
}

/// Hidden files (the `._x` that some systems leave behind) are nobody's model.
fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "gguf") && !name_of(path).starts_with('.') && !path.is_dir()
}

fn name_of(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// The draft heads in a directory (`mtp-*.gguf`), by name. A set of shards is one, called by its first shard.
pub fn draft_heads_in(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(files_in(dir, is_draft_head)?.into_iter().collect())
}

/// The files of a kind. A set is called by its first shard, whichever of its shards are there.
fn files_in(dir: &Path, kind: fn(&Path) -> bool) -> Result<BTreeSet<PathBuf>, Error> {
    let unreadable = |source| Error::Open { path: dir.into(), source };
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if kind(&path) {
            files.insert(ShardName::parse(&path).map_or_else(|| path.clone(), |name| name.path_of(1)));
        }
    }
    Ok(files)
}

/// The one model in a directory: a single file, or any shard of a set (whether it is complete is told at open).
///
/// Files named `mtp-*` are draft heads ([`draft_heads_in`]). Subdirectories are not searched.
pub(crate) fn model_in(dir: &Path) -> Result<PathBuf, Error> {
    let models = files_in(dir, |path| is_gguf(path) && !is_draft_head(path))?;
    let mut found = models.iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => Err(Error::NoModel { path: dir.into(), drafts: files_in(dir, is_draft_head)?.len() }),
        (Some(_), Some(_)) => {
            let names = models.iter().map(|m| m.file_name().unwrap_or_default().to_string_lossy().into_owned());
            Err(Error::SeveralModels { path: dir.into(), models: names.collect() })
        }
    }
}
