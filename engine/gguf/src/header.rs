//! One file's header, read once from bytes that may say anything (gguf-qwen4exp.md 1 and 7).

use std::{fmt, path::Path};

use crate::{
    error::{Error, shown, shown_bytes},
    layout::{TypeLayout, type_layout},
    limits::{MAX_HEADER_BYTES, MAX_KEYS, MAX_NAME_BYTES, MAX_TENSORS},
    metadata::Metadata,
    value::{Array, StrArray, Value, kind},
};

pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// Alignment of a file that does not name one.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
pub(crate) const VERSION: u32 = 3;
/// Least bytes of a key with its value: length of the key, type, a u8.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
/// Least bytes of a tensor entry: length of the name, rank, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// What the header of one file says. Shapes and types are checked, places are not yet.
pub(crate) struct Header {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorEntry>,
    pub(crate) alignment: u64,
    /// Header bytes, without the padding behind them.
    pub(crate) len: u64,
    /// First byte of the data part; past the end in a file that has no tensors and no padding.
    pub(crate) data_start: u64,
}

pub(crate) struct TensorEntry {
    pub(crate) name: Box<str>,
    pub(crate) ne: [u64; 4],
    pub(crate) rank: u8,
    pub(crate) layout: TypeLayout,
    pub(crate) byte_len: u64,
    /// From the start of the data part.
    pub(crate) offset: u64,
}

/// What a set may still use of [`crate::limits`].
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) header_bytes: u64,
    pub(crate) tensors: u64,
}

impl Budget {
    /// Of a set of which nothing has been read.
    pub(crate) const FULL: Self = Self { header_bytes: MAX_HEADER_BYTES, tensors: MAX_TENSORS };

    /// What is left after a file of so many header bytes and tensors, which this budget allowed.
    pub(crate) fn less(self, header_bytes: u64, tensors: usize) -> Self {
        Self {
            header_bytes: self.header_bytes.saturating_sub(header_bytes),
            tensors: self.tensors.saturating_sub(tensors as u64),
        }
    }
}

impl Header {
    pub(crate) fn read(path: &Path, bytes: &[u8], budget: Budget) -> Result<Self, Error> {
        let mut r = Reader { path, bytes, at: 0, most: budget.header_bytes };
        let magic = &bytes[..bytes.len().min(4)];
        if magic != MAGIC {
            return Err(Error::NotGguf { path: path.into(), found: magic.into() });
        }
        r.take(4, What::Start)?;
        let version = r.u32(What::Start)?;
        if version != VERSION {
            return Err(Error::UnsupportedVersion { path: path.into(), found: version });
        }
        let tensor_count = r.u64(What::Start)?;
        let key_count = r.u64(What::Start)?;
        let key_count = r.count(key_count, MIN_KEY_BYTES, What::KeyCount)?;
        let tensor_count = r.count(tensor_count, MIN_TENSOR_BYTES, What::TensorCount)?;
        at_most(path, What::KeyCount, key_count as u64, MAX_KEYS)?;
        at_most(path, What::TensorCount, tensor_count as u64, budget.tensors)?;

        let mut entries = Vec::with_capacity(key_count);
        for i in 0..key_count {
            let key = r.name(What::Key(i))?;
            let value = r.value(&key)?;
            entries.push((key, value));
        }
        let metadata = Metadata::new(path, entries)?;
        let alignment = alignment(path, metadata.get(ALIGNMENT_KEY))?;

        let mut tensors = Vec::with_capacity(tensor_count);
        for i in 0..tensor_count {
            tensors.push(r.tensor(i)?);
        }
        let len = r.at as u64;
        // The header is at most MAX_HEADER_BYTES and the alignment at most 2^63, so this does fit; the error is for form.
        let data_start = len
            .checked_next_multiple_of(alignment)
            .ok_or_else(|| Error::BadAlignment { path: path.into(), found: alignment.to_string() })?;
        Ok(Self { metadata, tensors, alignment, len, data_start })
    }
}

/// The alignment of a file in which `value` stands under [`ALIGNMENT_KEY`].
pub(crate) fn alignment(path: &Path, value: Option<&Value>) -> Result<u64, Error> {
    let Some(value) = value else { return Ok(DEFAULT_ALIGNMENT) };
    let alignment = value.integer().and_then(|v| u64::try_from(v).ok());
    alignment
        .filter(|a| a.is_power_of_two() && *a >= 8)
        .ok_or_else(|| Error::BadAlignment { path: path.into(), found: value.to_string() })
}

/// Holds an honest number against a limit of ours (see [`crate::limits`]).
pub(crate) fn at_most(path: &Path, what: impl fmt::Display, found: u64, most: u64) -> Result<(), Error> {
    if found <= most {
        return Ok(());
    }
    Err(Error::TooMany { path: path.into(), what: what.to_string(), found, most })
}

/// What is being read, for messages; formatted only when one is needed.
#[derive(Clone, Copy)]
enum What<'a> {
    Start,
    KeyCount,
    TensorCount,
    Key(usize),
    Value(&'a str),
    Length(&'a str),
    Element(&'a str, usize),
    TensorName(usize),
    Tensor(&'a str),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Start => write!(f, "the first 24 bytes"),
            Self::KeyCount => write!(f, "the number of keys"),
            Self::TensorCount => write!(f, "the number of tensors"),
            Self::Key(i) => write!(f, "the name of key {i}"),
            Self::Value(key) => write!(f, "the value of `{}`", shown(key)),
            Self::Length(key) => write!(f, "the array length of `{}`", shown(key)),
            Self::Element(key, i) => write!(f, "element {i} of `{}`", shown(key)),
            Self::TensorName(i) => write!(f, "the name of tensor {i}"),
            Self::Tensor(name) => write!(f, "the entry of tensor `{}`", shown(name)),
        }
    }
}

struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    /// Header bytes this file may have.
    most: u64,
}

impl<'a> Reader<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, n: u64, what: What<'_>) -> Result<&'a [u8], Error> {
        let end = (self.at as u64).saturating_add(n);
        if n > self.left() {
            let len = self.bytes.len() as u64;
            return Err(Error::TruncatedHeader { path: self.path.into(), what: what.to_string(), end, len });
        }
        if end > self.most {
            let most = MAX_HEADER_BYTES;
            return Err(Error::HeaderTooLarge { path: self.path.into(), what: what.to_string(), most });
        }
        // Inside the slice, so it fits usize.
        let taken = &self.bytes[self.at..end as usize];
        self.at = end as usize;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: What<'_>) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: What<'_>) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: What<'_>) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// `count` items of at least `each` bytes must fit into what is left of the file, before anything is allocated.
    fn count(&self, count: u64, each: u64, what: What<'_>) -> Result<usize, Error> {
        let most = self.left() / each;
        if count > most {
            return Err(Error::CountTooLarge { path: self.path.into(), what: what.to_string(), found: count, most });
        }
        Ok(count as usize) // no more than the slice has bytes
    }

    /// The name of a key or a tensor.
    fn name(&mut self, what: What<'_>) -> Result<Box<str>, Error> {
        let len = self.u64(what)?;
        if len <= self.left() {
            at_most(self.path, format_args!("the length of {what}"), len, MAX_NAME_BYTES)?;
        }
        self.text(len, what).map(String::into_boxed_str)
    }

    fn string(&mut self, what: What<'_>) -> Result<String, Error> {
        let len = self.u64(what)?;
        self.text(len, what)
    }

    fn text(&mut self, len: u64, what: What<'_>) -> Result<String, Error> {
        let copy = self.take(len, what)?.to_vec();
        String::from_utf8(copy).map_err(|e| self.not_utf8(what, shown_bytes(e.as_bytes())))
    }

    fn not_utf8(&self, what: What<'_>, found: String) -> Error {
        Error::NotUtf8 { path: self.path.into(), what: what.to_string(), found }
    }

    fn value(&mut self, key: &str) -> Result<Value, Error> {
        let what = What::Value(key);
        Ok(match self.u32(what)? {
            kind::U8 => Value::U8(u8::from_le_bytes(self.array(what)?)),
            kind::I8 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            kind::U16 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            kind::I16 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            kind::U32 => Value::U32(u32::from_le_bytes(self.array(what)?)),
            kind::I32 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            kind::U64 => Value::U64(u64::from_le_bytes(self.array(what)?)),
            kind::I64 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            kind::F32 => Value::F32(f32::from_le_bytes(self.array(what)?)),
            kind::F64 => Value::F64(f64::from_le_bytes(self.array(what)?)),
            kind::BOOL => {
                let [byte] = self.array(what)?;
                Value::Bool(self.bool(byte, key)?)
            }
            kind::STRING => Value::String(self.string(what)?),
            kind::ARRAY => Value::Array(self.array_value(key)?),
            found => return Err(Error::UnknownValueType { path: self.path.into(), key: key.into(), found }),
        })
    }

    fn bool(&self, byte: u8, key: &str) -> Result<bool, Error> {
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(Error::BadBool { path: self.path.into(), key: key.into(), found }),
        }
    }

    fn array_value(&mut self, key: &str) -> Result<Array, Error> {
        let elements = self.u32(What::Value(key))?;
        let count = self.u64(What::Value(key))?;
        Ok(match elements {
            kind::U8 => Array::U8(self.plain(key, count, u8::from_le_bytes)?),
            kind::I8 => Array::I8(self.plain(key, count, i8::from_le_bytes)?),
            kind::U16 => Array::U16(self.plain(key, count, u16::from_le_bytes)?),
            kind::I16 => Array::I16(self.plain(key, count, i16::from_le_bytes)?),
            kind::U32 => Array::U32(self.plain(key, count, u32::from_le_bytes)?),
            kind::I32 => Array::I32(self.plain(key, count, i32::from_le_bytes)?),
            kind::U64 => Array::U64(self.plain(key, count, u64::from_le_bytes)?),
            kind::I64 => Array::I64(self.plain(key, count, i64::from_le_bytes)?),
            kind::F32 => Array::F32(self.plain(key, count, f32::from_le_bytes)?),
            kind::F64 => Array::F64(self.plain(key, count, f64::from_le_bytes)?),
            kind::BOOL => {
                let count = self.count(count, 1, What::Length(key))?;
                let bytes = self.take(count as u64, What::Value(key))?;
                // Checked first: collecting results would grow the vector by doubling.
                bytes.iter().try_for_each(|&byte| self.bool(byte, key).map(drop))?;
                Array::Bool(bytes.iter().map(|&byte| byte == 1).collect())
            }
            kind::STRING => Array::String(self.strings(key, count)?),
            kind::ARRAY => return Err(Error::NestedArray { path: self.path.into(), key: key.into() }),
            found => return Err(Error::UnknownValueType { path: self.path.into(), key: key.into(), found }),
        })
    }

    fn plain<T, const N: usize>(&mut self, key: &str, count: u64, le: fn([u8; N]) -> T) -> Result<Vec<T>, Error> {
        let count = self.count(count, N as u64, What::Length(key))?;
        let bytes = self.take((count * N) as u64, What::Value(key))?;
        let (elements, _) = bytes.as_chunks::<N>();
        Ok(elements.iter().map(|&element| le(element)).collect())
    }

    /// Two passes: the first measures, so that the second fills allocations of the right size. The text is checked in
    /// our copy of it, which nobody else can change.
    fn strings(&mut self, key: &str, count: u64) -> Result<StrArray, Error> {
        let count = self.count(count, 8, What::Length(key))?;
        let start = self.at;
        let mut text_bytes = 0;
        for i in 0..count {
            let len = self.u64(What::Element(key, i))?;
            text_bytes += self.take(len, What::Element(key, i))?.len();
        }
        self.at = start;
        let (mut text, mut ends) = (Vec::with_capacity(text_bytes), Vec::with_capacity(count));
        for i in 0..count {
            let len = self.u64(What::Element(key, i))?;
            text.extend_from_slice(self.take(len, What::Element(key, i))?);
            ends.push(text.len());
        }
        StrArray::new(text, ends).map_err(|(i, found)| self.not_utf8(What::Element(key, i), found))
    }

    fn tensor(&mut self, i: usize) -> Result<TensorEntry, Error> {
        let name = self.name(What::TensorName(i))?;
        let what = What::Tensor(&name);
        let bad = |ne: &[u64], reason: String| Error::BadShape {
            path: self.path.into(),
            tensor: name.to_string(),
            ne: ne.to_vec(),
            reason,
        };
        let rank = self.u32(what)?;
        let Some(rank @ 1..=4) = u8::try_from(rank).ok() else {
            return Err(bad(&[], format!("it has {rank} dimensions, expected 1 to 4")));
        };
        let mut ne = [1; 4];
        for n in &mut ne[..usize::from(rank)] {
            *n = self.u64(what)?;
        }
        let type_id = self.u32(what)?;
        let offset = self.u64(what)?;
        let layout = type_layout(type_id).ok_or_else(|| Error::UnsupportedType {
            path: self.path.into(),
            tensor: name.to_string(),
            found: type_id,
        })?;
        let used = &ne[..usize::from(rank)];
        let byte_len = layout.tensor_bytes(used).map_err(|reason| bad(used, reason))?;
        Ok(TensorEntry { name, ne, rank, layout, byte_len, offset })
    }
}
