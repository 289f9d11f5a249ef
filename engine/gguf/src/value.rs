//! Metadata values, in the thirteen kinds of the container (gguf-qwen4exp.md 1).

use std::fmt;

use crate::error::{shown, shown_bytes};

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the variants are the container's value types under their own names
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// A metadata array: one kind for all elements, never nested.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // as above
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(StrArray),
}

/// An array of strings in two allocations: a vocabulary of 248,320 tokens as `Vec<String>` would take three times its
/// size in the file, and 24 bytes for every empty string.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StrArray {
    text: String,
    /// Where each string ends in `text`; ascending.
    ends: Vec<usize>,
}

/// Numbers of the value types in a file.
pub(crate) mod kind {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I8: u32 = 1;
    pub(crate) const U16: u32 = 2;
    pub(crate) const I16: u32 = 3;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const F32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const U64: u32 = 10;
    pub(crate) const I64: u32 = 11;
    pub(crate) const F64: u32 = 12;
}

impl Value {
    /// The value as a signed wide integer, whatever integer type it was written in.
    pub(crate) fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Type number and payload as they stand in a file.
    pub(crate) fn encode(&self) -> (u32, Vec<u8>) {
        match self {
            Self::U8(v) => (kind::U8, vec![*v]),
            Self::I8(v) => (kind::I8, v.to_le_bytes().into()),
            Self::U16(v) => (kind::U16, v.to_le_bytes().into()),
            Self::I16(v) => (kind::I16, v.to_le_bytes().into()),
            Self::U32(v) => (kind::U32, v.to_le_bytes().into()),
            Self::I32(v) => (kind::I32, v.to_le_bytes().into()),
            Self::U64(v) => (kind::U64, v.to_le_bytes().into()),
            Self::I64(v) => (kind::I64, v.to_le_bytes().into()),
            Self::F32(v) => (kind::F32, v.to_le_bytes().into()),
            Self::F64(v) => (kind::F64, v.to_le_bytes().into()),
            Self::Bool(v) => (kind::BOOL, vec![u8::from(*v)]),
            Self::String(v) => (kind::STRING, string_bytes(v.as_bytes())),
            Self::Array(array) => (kind::ARRAY, array.encode()),
        }
    }
}

/// Kind and value, short enough for an error message.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => write!(f, "u8 {v}"),
            Self::I8(v) => write!(f, "i8 {v}"),
            Self::U16(v) => write!(f, "u16 {v}"),
            Self::I16(v) => write!(f, "i16 {v}"),
            Self::U32(v) => write!(f, "u32 {v}"),
            Self::I32(v) => write!(f, "i32 {v}"),
            Self::U64(v) => write!(f, "u64 {v}"),
            Self::I64(v) => write!(f, "i64 {v}"),
            Self::F32(v) => write!(f, "f32 {v}"),
            Self::F64(v) => write!(f, "f64 {v}"),
            Self::Bool(v) => write!(f, "bool {v}"),
            Self::String(v) => write!(f, "string `{}`", shown(v)),
            Self::Array(array) => write!(f, "array of {} {}", array.len(), array.element_kind()),
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the elements' kind.
    pub fn element_kind(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "strings",
        }
    }

    fn encode(&self) -> Vec<u8> {
        fn plain<const N: usize, T: Copy>(kind: u32, v: &[T], le: impl Fn(T) -> [u8; N]) -> Vec<u8> {
            let mut out = array_head(kind, v.len());
            out.extend(v.iter().flat_map(|&x| le(x)));
            out
        }
        match self {
            Self::U8(v) => plain(kind::U8, v, u8::to_le_bytes),
            Self::I8(v) => plain(kind::I8, v, i8::to_le_bytes),
            Self::U16(v) => plain(kind::U16, v, u16::to_le_bytes),
            Self::I16(v) => plain(kind::I16, v, i16::to_le_bytes),
            Self::U32(v) => plain(kind::U32, v, u32::to_le_bytes),
            Self::I32(v) => plain(kind::I32, v, i32::to_le_bytes),
            Self::U64(v) => plain(kind::U64, v, u64::to_le_bytes),
            Self::I64(v) => plain(kind::I64, v, i64::to_le_bytes),
            Self::F32(v) => plain(kind::F32, v, f32::to_le_bytes),
            Self::F64(v) => plain(kind::F64, v, f64::to_le_bytes),
            Self::Bool(v) => plain(kind::BOOL, v, |b| [u8::from(b)]),
            Self::String(v) => {
                let mut out = array_head(kind::STRING, v.len());
                for s in v.iter() {
                    out.extend(string_bytes(s.as_bytes()));
                }
                out
            }
        }
    }
}

fn array_head(kind: u32, len: usize) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(len as u64).to_le_bytes()].concat()
}

pub(crate) fn string_bytes(s: &[u8]) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s].concat()
}

impl StrArray {
    /// Strings that end in `text` at `ends`, ascending up to its length; or the number of the first one that is not
    /// UTF-8, and how it looks.
    pub(crate) fn new(text: Vec<u8>, ends: Vec<usize>) -> Result<Self, (usize, String)> {
        let broken = |text: &[u8]| {
            let string = |i: usize| &text[if i == 0 { 0 } else { ends[i - 1] }..ends[i]];
            let i = (0..ends.len()).find(|&i| std::str::from_utf8(string(i)).is_err()).unwrap_or(0);
            (i, shown_bytes(string(i)))
        };
        let text = String::from_utf8(text).map_err(|e| broken(e.as_bytes()))?;
        // Text that is sound as a whole can still be cut inside a character.
        if ends.iter().all(|&end| text.is_char_boundary(end)) {
            Ok(Self { text, ends })
        } else {
            Err(broken(text.as_bytes()))
        }
    }

    /// Adds one string at the end.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }
}

impl fmt::Debug for StrArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<S: AsRef<str>> FromIterator<S> for StrArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut array = Self::default();
        strings.into_iter().for_each(|s| array.push(s.as_ref()));
        array
    }
}

impl<S: AsRef<str>> From<Vec<S>> for StrArray {
    fn from(strings: Vec<S>) -> Self {
        strings.into_iter().collect()
    }
}

macro_rules! values_from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from(v: $from) -> Self {
                Self::$variant(v.into())
            }
        }
        impl From<Vec<$from>> for Value {
            fn from(v: Vec<$from>) -> Self {
                Self::Array(Array::$variant(v.into()))
            }
        }
    )*};
}

values_from! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64, bool => Bool, String => String, &str => String,
}

impl From<StrArray> for Value {
    fn from(v: StrArray) -> Self {
        Self::Array(Array::String(v))
    }
}
