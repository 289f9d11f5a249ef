//! Writes files and sets that [`crate::ShardSet`] opens.

use std::{
    borrow::Cow,
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, shown},
    header::{self, ALIGNMENT_KEY},
    layout::type_layout,
    limits::{MAX_HEADER_BYTES, MAX_KEYS, MAX_NAME_BYTES, MAX_SHARDS, MAX_TENSORS},
    place::ShardName,
    raw::{RawFile, RawKv, RawTensor, padding},
    value::Value,
};

const SPLIT_KEYS: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

/// Builds a file or a set: keys and tensors in the order given. Tensor bytes may be borrowed, owned, or made while
/// writing, so that a file larger than memory can be written.
///
/// Nothing is checked before a `write` call: that one refuses what the reader would refuse.
#[derive(Default)]
pub struct Writer<'a> {
    kv: Vec<(String, Value)>,
    tensors: Vec<Source<'a>>,
}

struct Source<'a> {
    name: String,
    ne: Vec<u64>,
    type_id: u32,
    bytes: Bytes<'a>,
}

/// Makes a tensor's bytes.
type Fill<'a> = dyn Fn(&mut dyn Write) -> io::Result<()> + 'a;

enum Bytes<'a> {
    Ready(Cow<'a, [u8]>),
    Streamed(Box<Fill<'a>>),
}

/// How a set is cut into shards.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// A shard is cut before the tensor that would take its tensor bytes past this.
    pub max_shard_bytes: u64,
    /// Whether the first shard holds the keys alone, as in the published sets.
    pub keys_alone: bool,
}

impl<'a> Writer<'a> {
    /// Nothing yet: no keys, no tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. `general.alignment`, if given, is obeyed.
    pub fn kv(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.kv.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor with its bytes. `ne` is fastest first.
    pub fn tensor(
        mut self,
        name: impl Into<String>,
        ne: &[u64],
        type_id: u32,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        self.tensors.push(Source { name: name.into(), ne: ne.into(), type_id, bytes: Bytes::Ready(bytes.into()) });
        self
    }

    /// Adds a tensor whose bytes `fill` writes when its turn comes: exactly as many as shape and type take.
    pub fn tensor_with(
        mut self,
        name: impl Into<String>,
        ne: &[u64],
        type_id: u32,
        fill: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        let bytes = Bytes::Streamed(Box::new(fill));
        self.tensors.push(Source { name: name.into(), ne: ne.into(), type_id, bytes });
        self
    }

    /// The whole file as parts that can still be spoilt, for tests of readers.
    pub fn to_raw(&self) -> Result<RawFile, Error> {
        let path = Path::new("memory");
        let plan = self.plan(path)?;
        let mut raw = self.raw(&plan, &self.whole());
        self.write_data(path, &plan, &self.whole(), &mut raw.data)?;
        Ok(raw)
    }

    /// The whole file in memory.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        self.to_raw().map(|raw| raw.to_bytes())
    }

    /// Writes one complete file to `out`.
    pub fn write_to(&self, out: &mut impl Write) -> Result<(), Error> {
        let path = Path::new("output");
        self.write_part(path, &self.plan(path)?, &self.whole(), out)
    }

    /// Writes one complete file at `path`, replacing what was there. After an error the file is incomplete.
    pub fn write_file(&self, path: &Path) -> Result<(), Error> {
        self.create(path, &self.plan(path)?, &self.whole())
    }

    /// Writes a set as `<base>-00001-of-0000N.gguf` and so on, adding the `split.*` keys. Returns the paths in order.
    /// One shard is a set of one. After an error the set is incomplete.
    pub fn write_set(&self, dir: &Path, base: &str, split: Split) -> Result<Vec<PathBuf>, Error> {
        let (plan, parts) = self.parts(dir, base, split)?;
        let mut paths = Vec::new();
        for (name, part) in parts {
            let path = dir.join(name);
            self.create(&path, &plan, &part)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// The files that [`write_set`](Self::write_set) would make: names and bytes. Makes nothing.
    pub fn outline_set(&self, base: &str, split: Split) -> Result<Vec<(String, u64)>, Error> {
        let (plan, parts) = self.parts(Path::new(""), base, split)?;
        Ok(parts.into_iter().map(|(name, part)| (name, self.file_bytes(&plan, &part))).collect())
    }

    /// Bytes of the file that [`write_file`](Self::write_file) would make.
    pub fn outline_file(&self) -> Result<u64, Error> {
        Ok(self.file_bytes(&self.plan(Path::new("output"))?, &self.whole()))
    }

    fn file_bytes(&self, plan: &Plan, part: &Part) -> u64 {
        let header = self.raw(plan, part).header().len() as u64;
        header + padding(header, plan.alignment) + part.range.clone().map(|i| plan.padded(i)).sum::<u64>()
    }

    /// The files of a set: names and contents.
    fn parts(&self, dir: &Path, base: &str, split: Split) -> Result<(Plan, Vec<(String, Part)>), Error> {
        let label = dir.join(base);
        if let Some((key, _)) = self.kv.iter().find(|(key, _)| SPLIT_KEYS.contains(&key.as_str())) {
            return Err(Error::DuplicateKey { path: label, key: key.clone() });
        }
        let plan = self.plan(&label)?;
        let ranges = plan.cut(split);
        let count = ranges.len() as u64;
        header::at_most(&label, "the number of shards", count, MAX_SHARDS)?;
        let part = |(no, range): (u16, Range<usize>)| {
            let own = self.kv.iter().filter(|(key, _)| no == 0 || key == ALIGNMENT_KEY);
            let mut keys: Vec<RawKv> = own.map(|(key, value)| RawKv::new(key, value)).collect();
            // Both fit: at most MAX_SHARDS and MAX_TENSORS.
            let said = [Value::U16(no), Value::U16(count as u16), Value::I32(self.tensors.len() as i32)];
            keys.extend(SPLIT_KEYS.iter().zip(&said).map(|(key, value)| RawKv::new(key, value)));
            (format!("{base}-{}.gguf", ShardName::tail(u64::from(no) + 1, count)), Part { range, keys })
        };
        let parts = (0..).zip(ranges).map(part).collect();
        Ok((plan, parts))
    }

    fn whole(&self) -> Part {
        let keys = self.kv.iter().map(|(key, value)| RawKv::new(key, value)).collect();
        Part { range: 0..self.tensors.len(), keys }
    }

    fn plan(&self, path: &Path) -> Result<Plan, Error> {
        header::at_most(path, "the number of keys", self.kv.len() as u64, MAX_KEYS)?;
        header::at_most(path, "the number of tensors", self.tensors.len() as u64, MAX_TENSORS)?;
        for name in self.kv.iter().map(|(key, _)| key).chain(self.tensors.iter().map(|t| &t.name)) {
            let what = format_args!("the length of the name `{}`", shown(name));
            header::at_most(path, what, name.len() as u64, MAX_NAME_BYTES)?;
        }
        let mut names = HashSet::new();
        if let Some((key, _)) = self.kv.iter().find(|(key, _)| !names.insert(key)) {
            return Err(Error::DuplicateKey { path: path.into(), key: key.clone() });
        }
        let alignment = self.kv.iter().find(|(key, _)| key == ALIGNMENT_KEY).map(|(_, value)| value);
        let mut plan = Plan { alignment: header::alignment(path, alignment)?, lens: Vec::new() };
        let mut total = 0u64;
        names.clear();
        for t in &self.tensors {
            if !names.insert(&t.name) {
                return Err(Error::DuplicateTensor { path: path.into(), tensor: t.name.clone(), first: path.into() });
            }
            let layout = type_layout(t.type_id).ok_or_else(|| Error::UnsupportedType {
                path: path.into(),
                tensor: t.name.clone(),
                found: t.type_id,
            })?;
            let bad = |reason: String| Error::BadShape {
                path: path.into(),
                tensor: t.name.clone(),
                ne: t.ne.clone(),
                reason,
            };
            let expected = layout.tensor_bytes(&t.ne).map_err(bad)?;
            if let Bytes::Ready(bytes) = &t.bytes {
                t.check_len(path, bytes.len() as u64, expected)?;
            }
            let end = total.checked_add(expected).and_then(|end| end.checked_next_multiple_of(plan.alignment));
            total = end.ok_or_else(|| bad("with those before it, its size does not fit 64 bits".into()))?;
            plan.lens.push(expected);
        }
        Ok(plan)
    }

    /// The part without its data. Offsets restart at 0 in every part.
    fn raw(&self, plan: &Plan, part: &Part) -> RawFile {
        let mut raw = RawFile { kv: part.keys.clone(), alignment: plan.alignment, ..RawFile::default() };
        let mut offset = 0;
        for i in part.range.clone() {
            let t = &self.tensors[i];
            raw.tensors.push(RawTensor {
                name: t.name.clone().into(),
                n_dims: None,
                ne: t.ne.clone(),
                type_id: t.type_id,
                offset,
            });
            offset += plan.padded(i);
        }
        raw
    }

    fn create(&self, path: &Path, plan: &Plan, part: &Part) -> Result<(), Error> {
        let failed = |source| Error::Write { path: path.into(), at: "the header".into(), source };
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
        self.write_part(path, plan, part, &mut out)
    }

    fn write_part(&self, path: &Path, plan: &Plan, part: &Part, out: &mut impl Write) -> Result<(), Error> {
        let failed = |source| Error::Write { path: path.into(), at: "the header".into(), source };
        let header = self.raw(plan, part).header();
        let header_bytes = header.len() as u64;
        if header_bytes > MAX_HEADER_BYTES {
            return Err(Error::HeaderTooLarge { path: path.into(), what: "its end".into(), most: MAX_HEADER_BYTES });
        }
        out.write_all(&header).map_err(failed)?;
        write_zeros(out, padding(header_bytes, plan.alignment)).map_err(failed)?;
        self.write_data(path, plan, part, out)?;
        out.flush().map_err(failed)
    }

    fn write_data(&self, path: &Path, plan: &Plan, part: &Part, out: &mut impl Write) -> Result<(), Error> {
        for i in part.range.clone() {
            let t = &self.tensors[i];
            let failed =
                |source| Error::Write { path: path.into(), at: format!("tensor `{}`", shown(&t.name)), source };
            match &t.bytes {
                Bytes::Ready(bytes) => out.write_all(bytes).map_err(failed)?,
                Bytes::Streamed(fill) => {
                    let mut counted = Counted { out: &mut *out, left: plan.lens[i], over: 0 };
                    fill(&mut counted).map_err(failed)?;
                    let found = plan.lens[i] - counted.left + counted.over;
                    t.check_len(path, found, plan.lens[i])?;
                }
            }
            write_zeros(out, plan.padded(i) - plan.lens[i]).map_err(failed)?;
        }
        Ok(())
    }
}

impl Source<'_> {
    fn check_len(&self, path: &Path, found: u64, expected: u64) -> Result<(), Error> {
        if found == expected {
            return Ok(());
        }
        Err(Error::WrongLength { path: path.into(), tensor: self.name.clone(), found, expected })
    }
}

fn write_zeros(out: &mut impl Write, n: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(n), out).map(drop)
}

/// One file of the output.
struct Part {
    range: Range<usize>,
    keys: Vec<RawKv>,
}

/// What was checked before the first byte is written.
struct Plan {
    alignment: u64,
    /// Bytes of each tensor.
    lens: Vec<u64>,
}

impl Plan {
    /// Bytes from the start of tensor `i` to where the next one starts.
    fn padded(&self, i: usize) -> u64 {
        self.lens[i] + padding(self.lens[i], self.alignment)
    }

    /// The ranges of tensors of each shard; never none.
    fn cut(&self, split: Split) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        if split.keys_alone {
            parts.push(0..0);
        }
        let (mut start, mut bytes) = (0, 0u64);
        for (i, &len) in self.lens.iter().enumerate() {
            if i > start && bytes.saturating_add(len) > split.max_shard_bytes {
                parts.push(start..i);
                (start, bytes) = (i, 0);
            }
            bytes = bytes.saturating_add(len);
        }
        if start < self.lens.len() || parts.is_empty() {
            parts.push(start..self.lens.len());
        }
        parts
    }
}

/// Passes on at most `left` bytes and counts what came past that, so that a wrong `fill` cannot overwrite what follows.
struct Counted<'a, W> {
    out: &'a mut W,
    left: u64,
    over: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.over += bytes.len() as u64;
            return Ok(bytes.len());
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let written = self.out.write(&bytes[..most])?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
