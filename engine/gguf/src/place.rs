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

/// The one model in a directory: a single file, or any shard of a set (whether it is complete is told at open).
///
/// Files named `mtp-*` are draft heads; hidden files (the `._x` that some systems leave behind) are nobody's model.
/// Subdirectories are not searched.
pub(crate) fn model_in(dir: &Path) -> Result<PathBuf, Error> {
    let unreadable = |source| Error::Open { path: dir.into(), source };
    let mut drafts = 0;
    let mut models = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.extension().is_none_or(|ext| ext != "gguf") || name.starts_with('.') || path.is_dir() {
            continue;
        }
        if name.starts_with("mtp-") {
            drafts += 1;
            continue;
        }
        // A set is called by its first shard, whichever of its shards are there.
        models.insert(ShardName::parse(&path).map_or_else(|| path.clone(), |name| name.path_of(1)));
    }
    let mut found = models.iter();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.clone()),
        (None, _) => Err(Error::NoModel { path: dir.into(), drafts }),
        (Some(_), Some(_)) => {
            let names = models.iter().map(|m| m.file_name().unwrap_or_default().to_string_lossy().into_owned());
            Err(Error::SeveralModels { path: dir.into(), models: names.collect() })
        }
    }
}
