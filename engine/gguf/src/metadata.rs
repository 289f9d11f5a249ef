//! The keys of a file and the questions asked of them.

use std::path::{Path, PathBuf};

use crate::{
    error::Error,
    value::{Array, StrArray, Value},
};

/// Keys and values of one file, in file order. Integers may have been written in any width: the getters take whatever
/// fits (gguf-qwen4exp.md, head).
///
/// Each getter comes twice: `x` refuses a missing key with [`Error::MissingKey`], `x_opt` answers `None` to it. Both
/// refuse a value of another kind or out of range with [`Error::WrongKind`].
#[derive(Clone, Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(Box<str>, Value)>,
    /// Indices into `entries`, ascending keys: four bytes a key instead of a second copy of it.
    by_key: Vec<u32>,
}

impl Metadata {
    /// Keys that come from no file. `label` is what messages call their source.
    pub fn from_entries(label: &str, entries: impl IntoIterator<Item = (String, Value)>) -> Result<Self, Error> {
        Self::new(Path::new(label), entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    pub(crate) fn new(path: &Path, entries: Vec<(Box<str>, Value)>) -> Result<Self, Error> {
        let mut by_key: Vec<u32> = (0..).take(entries.len()).collect();
        by_key.sort_unstable_by_key(|&i| &entries[i as usize].0);
        if let Some(two) = by_key.windows(2).find(|two| entries[two[0] as usize].0 == entries[two[1] as usize].0) {
            return Err(Error::DuplicateKey { path: path.into(), key: entries[two[0] as usize].0.to_string() });
        }
        Ok(Self { path: path.into(), entries, by_key })
    }

    /// The file these keys are from, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// The value under `key`, of whatever kind.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let at = self.by_key.binary_search_by(|&i| (*self.entries[i as usize].0).cmp(key)).ok()?;
        Some(&self.entries[self.by_key[at] as usize].1)
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(v) => Ok(Some(v)),
            None => {
                Err(Error::WrongKind { path: self.path.clone(), key: key.into(), found: value.to_string(), expected })
            }
        }
    }

    fn need<T>(&self, key: &str, expected: &'static str, found: Option<T>) -> Result<T, Error> {
        found.ok_or_else(|| Error::MissingKey { path: self.path.clone(), key: key.into(), expected })
    }
}

/// Writes both forms of a getter.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident, $opt:ident -> $out:ty, $expected:literal, $read:expr;)*) => {
        impl Metadata {$(
            $(#[$doc])*
            pub fn $name(&self, key: &str) -> Result<$out, Error> {
                self.need(key, $expected, self.$opt(key)?)
            }

            #[doc = concat!("As [`Self::", stringify!($name), "`], `None` if the key is absent.")]
            pub fn $opt(&self, key: &str) -> Result<Option<$out>, Error> {
                self.read(key, $expected, $read)
            }
        )*}
    };
}

getters! {
    /// A non-negative integer of any type.
    u64, u64_opt -> u64, "a non-negative integer", |v| u64::try_from(v.integer()?).ok();
    /// A non-negative integer of any type that fits 32 bits.
    u32, u32_opt -> u32, "a non-negative integer of 32 bits", |v| u32::try_from(v.integer()?).ok();
    /// An integer of any type that fits a signed 64-bit one.
    i64, i64_opt -> i64, "an integer", |v| i64::try_from(v.integer()?).ok();
    /// An f32. An f64 is not narrowed.
    f32, f32_opt -> f32, "an f32", |v| match v {
        Value::F32(x) => Some(*x),
        _ => None,
    };
    /// A bool.
    bool, bool_opt -> bool, "a bool", |v| match v {
        Value::Bool(x) => Some(*x),
        _ => None,
    };
    /// A string.
    str, str_opt -> &str, "a string", |v| match v {
        Value::String(x) => Some(x.as_str()),
        _ => None,
    };
    /// An array of any kind.
    array, array_opt -> &Array, "an array", |v| match v {
        Value::Array(x) => Some(x),
        _ => None,
    };
    /// An array of non-negative integers of any type, widened.
    u64_array, u64_array_opt -> Vec<u64>, "an array of non-negative integers", |v| match v {
        Value::Array(x) => integers(x),
        _ => None,
    };
    /// An array of integers of any type, widened.
    i64_array, i64_array_opt -> Vec<i64>, "an array of integers", |v| match v {
        Value::Array(x) => integers(x),
        _ => None,
    };
    /// An array of f32.
    f32_array, f32_array_opt -> &[f32], "an array of f32", |v| match v {
        Value::Array(Array::F32(x)) => Some(x.as_slice()),
        _ => None,
    };
    /// An array of strings.
    str_array, str_array_opt -> &StrArray, "an array of strings", |v| match v {
        Value::Array(Array::String(x)) => Some(x),
        _ => None,
    };
}

/// All elements as `T`, or `None` if they are no integers or one does not fit.
fn integers<T>(array: &Array) -> Option<Vec<T>>
where
    T: TryFrom<u8> + TryFrom<i8> + TryFrom<u16> + TryFrom<i16>,
    T: TryFrom<u32> + TryFrom<i32> + TryFrom<u64> + TryFrom<i64>,
{
    fn all<T: TryFrom<S>, S: Copy>(v: &[S]) -> Option<Vec<T>> {
        v.iter().map(|&x| T::try_from(x).ok()).collect()
    }
    match array {
        Array::U8(v) => all(v),
        Array::I8(v) => all(v),
        Array::U16(v) => all(v),
        Array::I16(v) => all(v),
        Array::U32(v) => all(v),
        Array::I32(v) => all(v),
        Array::U64(v) => all(v),
        Array::I64(v) => all(v),
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) => None,
    }
}
