//! Sets of shards: from a path, or from bytes, to one directory of tensors.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    buffer::Buffer,
    error::Error,
    header::{self, ALIGNMENT_KEY, Budget, Header},
    limits::MAX_SHARDS,
    metadata::Metadata,
    place::{self, ShardName},
    tensor::{Place, Tensor},
};

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// An open model: one file or all shards of a set, checked against each other. Cheap to clone.
#[derive(Clone)]
pub struct ShardSet {
    inner: Arc<Inner>,
}

struct Inner {
    label: String,
    shards: Vec<Shard>,
    metadata: Metadata,
    tensors: Vec<Tensor>,
    /// Indices into `tensors`, ascending names.
    by_name: Vec<u32>,
}

/// One file of a set.
#[derive(Clone, Debug)]
pub struct Shard {
    path: PathBuf,
    file_bytes: u64,
    data_start: u64,
}

impl Shard {
    /// Its path, or the label it was given if it came from memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where its tensor data begins. A shard without tensors may end before that.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }
}

impl ShardSet {
    /// Opens the model at `path`: any shard of a set, a single file, or a directory that holds one model (files named
    /// `mtp-*.gguf` are draft heads, not models). Maps the files; reads nothing but their headers.
    ///
    /// While the set or any [`crate::TensorData`] of it lives, its files may be renamed or deleted but must not be
    /// rewritten or shortened in place: the mapping would show other weights, or end the process.
    pub fn open(path: &Path) -> Result<Self, Error> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Self::open_file(&place::model_in(path)?),
            _ => Self::open_file(path),
        }
    }

    fn open_file(path: &Path) -> Result<Self, Error> {
        if let Some(name) = ShardName::parse(path)
            && name.count > 1
        {
            return Self::open_set(&name);
        }
        let part = Part::read(path, map(path)?, 0, Budget::FULL)?;
        if let Some(count) = part.placing.count.filter(|&count| count > 1) {
            let no = part.placing.no.unwrap_or(0).saturating_add(1);
            return Err(Error::ShardName { path: path.into(), count, expected: ShardName::tail(no, count) });
        }
        Self::of_one(part)
    }

    fn open_set(name: &ShardName) -> Result<Self, Error> {
        let given = name.path_of(name.no);
        header::at_most(&given, "the number of shards", name.count, MAX_SHARDS)?;
        if !(1..=name.count).contains(&name.no) {
            return Err(Error::ForeignShard {
                path: given,
                key: "the shard's number in the file name".into(),
                found: name.no.to_string(),
                expected: format!("1 to {}", name.count),
            });
        }
        // All must be there before any is read: the first thing to know about half a download is what is missing. One
        // that cannot be looked at is there, and `map` says why.
        let is_missing = |path: &PathBuf| matches!(path.try_exists(), Ok(false));
        let mut missing = (1..=name.count).map(|no| name.path_of(no)).filter(is_missing);
        if let Some(path) = missing.next() {
            return Err(Error::MissingShard { path, missing: 1 + missing.count() as u64, count: name.count });
        }
        let first = name.path_of(1);
        let part = Part::read(&first, map(&first)?, 0, Budget::FULL)?;
        let total = part.total_in_set(0, name.count)?;
        let mut set = Building::new(part);
        for no in 2..=name.count {
            let path = name.path_of(no);
            let part = Part::read(&path, map(&path)?, set.shards.len(), set.budget)?;
            agree(&path, SPLIT_TENSORS, part.total_in_set(no - 1, name.count)?, total)?;
            set.add(part)?;
        }
        set.finish(Some(total))
    }

    /// A file that is a whole model: the split keys may be absent, but must not say otherwise.
    fn of_one(part: Part) -> Result<Self, Error> {
        agree(&part.shard.path, SPLIT_COUNT, part.placing.count.unwrap_or(1), 1)?;
        agree(&part.shard.path, SPLIT_NO, part.placing.no.unwrap_or(0), 0)?;
        let total = part.placing.tensors;
        Building::new(part).finish(total)
    }

    /// One complete file in static memory, such as an embedded model. `label` is what errors call it. Bytes that do not
    /// start at a multiple of 8 are copied.
    pub fn from_static(label: &str, bytes: &'static [u8]) -> Result<Self, Error> {
        Self::from_buffer(label, Buffer::from_static(bytes))
    }

    /// One complete file in owned memory. `label` is what errors call it.
    pub fn from_vec(label: &str, bytes: Vec<u8>) -> Result<Self, Error> {
        Self::from_buffer(label, Buffer::from_vec(bytes))
    }

    fn from_buffer(label: &str, buffer: Buffer) -> Result<Self, Error> {
        let part = Part::read(Path::new(label), buffer, 0, Budget::FULL)?;
        match part.placing.count.filter(|&count| count > 1) {
            Some(count) => Err(Error::SetInMemory { path: label.into(), count }),
            None => Self::of_one(part),
        }
    }

    /// Keys of the first shard, which has all of them.
    pub fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// All tensors: shard by shard, in the order of each shard's table.
    pub fn tensors(&self) -> &[Tensor] {
        &self.inner.tensors
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let Inner { tensors, by_name, .. } = &*self.inner;
        let at = by_name.binary_search_by(|&i| tensors[i as usize].name().cmp(name)).ok()?;
        Some(&tensors[by_name[at] as usize])
    }

    /// The files, in order; a single file is a set of one.
    pub fn shards(&self) -> &[Shard] {
        &self.inner.shards
    }

    /// Path of the first shard, or the label given, for messages.
    pub fn label(&self) -> &str {
        &self.inner.label
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardSet({}, {} shards, {} tensors)", self.label(), self.shards().len(), self.tensors().len())
    }
}

fn map(path: &Path) -> Result<Buffer, Error> {
    let unreadable = |source| Error::Open { path: path.into(), source };
    // Before opening: opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Error::NotAFile { path: path.into() });
    }
    let file = File::open(path).map_err(unreadable)?;
    Buffer::map(&file).map_err(unreadable)
}

/// One file that has been read and checked by itself.
struct Part {
    shard: Shard,
    placing: Placing,
    metadata: Metadata,
    tensors: Vec<Tensor>,
    header_bytes: u64,
}

/// What a shard says of its place in the set.
struct Placing {
    no: Option<u64>,
    count: Option<u64>,
    tensors: Option<u64>,
}

impl Part {
    fn read(path: &Path, buffer: Buffer, index: usize, budget: Budget) -> Result<Self, Error> {
        let header = Header::read(path, &buffer, budget)?;
        let buffer = Arc::new(buffer);
        let shard = Shard { path: path.into(), file_bytes: buffer.len() as u64, data_start: header.data_start };
        let at =
            Place { path, buffer: &buffer, shard: index, data_start: header.data_start, alignment: header.alignment };
        let tensors = at.tensors(header.tensors)?;
        let metadata = header.metadata;
        let placing = Placing {
            no: metadata.u64_opt(SPLIT_NO)?,
            count: metadata.u64_opt(SPLIT_COUNT)?,
            tensors: metadata.u64_opt(SPLIT_TENSORS)?,
        };
        Ok(Self { shard, placing, metadata, tensors, header_bytes: header.len })
    }

    /// Holds what the shard says of itself against its place by name, and gives the number of tensors it says the set has.
    fn total_in_set(&self, no: u64, count: u64) -> Result<u64, Error> {
        let path = &self.shard.path;
        let need = |key: &str, value: Option<u64>| {
            let expected = "a number, as the file is named as a shard";
            value.ok_or_else(|| Error::MissingKey { path: path.clone(), key: key.into(), expected })
        };
        agree(path, SPLIT_COUNT, need(SPLIT_COUNT, self.placing.count)?, count)?;
        agree(path, SPLIT_NO, need(SPLIT_NO, self.placing.no)?, no)?;
        need(SPLIT_TENSORS, self.placing.tensors)
    }
}

/// A set of which the first shard, and maybe more, have been read.
struct Building {
    metadata: Metadata,
    tensors: Vec<Tensor>,
    shards: Vec<Shard>,
    budget: Budget,
}

impl Building {
    fn new(first: Part) -> Self {
        let budget = Budget::FULL.less(first.header_bytes, first.tensors.len());
        Self { metadata: first.metadata, tensors: first.tensors, shards: vec![first.shard], budget }
    }

    fn add(&mut self, part: Part) -> Result<(), Error> {
        same_model(&self.metadata, &part.metadata)?;
        self.budget = self.budget.less(part.header_bytes, part.tensors.len());
        self.shards.push(part.shard);
        self.tensors.extend(part.tensors);
        Ok(())
    }

    /// `total` is how many tensors the set says it has.
    fn finish(self, total: Option<u64>) -> Result<ShardSet, Error> {
        let Self { metadata, tensors, shards, .. } = self;
        let found = tensors.len() as u64;
        if let Some(expected) = total.filter(|&total| total != found) {
            return Err(Error::TensorCount { path: shards[0].path.clone(), found, expected });
        }
        let mut by_name: Vec<u32> = (0..).take(tensors.len()).collect();
        // Stable, so that of two with one name the first stays first.
        by_name.sort_by_key(|&i| tensors[i as usize].name());
        for two in by_name.windows(2) {
            let [first, again] = [&tensors[two[0] as usize], &tensors[two[1] as usize]];
            if first.name() == again.name() {
                return Err(Error::DuplicateTensor {
                    path: shards[again.shard()].path.clone(),
                    tensor: again.name().into(),
                    first: shards[first.shard()].path.clone(),
                });
            }
        }
        let label = shards[0].path.display().to_string();
        Ok(ShardSet { inner: Arc::new(Inner { label, shards, metadata, tensors, by_name }) })
    }
}

fn agree(path: &Path, key: &str, found: u64, expected: u64) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (found.to_string(), expected.to_string());
    Err(Error::ForeignShard { path: path.into(), key: key.into(), found, expected })
}

/// Only the first shard speaks for the model. What another shard says besides its place in the set must be said by the
/// first too: it would be ignored otherwise.
fn same_model(first: &Metadata, other: &Metadata) -> Result<(), Error> {
    let own = |key: &str| key.starts_with("split.") || key == ALIGNMENT_KEY;
    for (key, value) in other.iter().filter(|(key, _)| !own(key)) {
        let expected = first.get(key);
        if expected != Some(value) {
            return Err(Error::ForeignShard {
                path: other.path().into(),
                key: key.into(),
                found: value.to_string(),
                expected: expected
                    .map_or("no such key, as in the first shard".into(), |v| format!("{v} as in the first shard")),
            });
        }
    }
    Ok(())
}
