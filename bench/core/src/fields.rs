//! A JSON object read key by key, so that a refusal names the key's full path, what stands there and what belongs there.
//! `null` is a value of the wrong type, never an absent key.

use bench_pins::Digest;
use serde_json::{Map, Value};

use crate::json;
use crate::pin::is_lower_hex;

/// A key with the wrong thing behind it, or with nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}; must be {wanted}")]
pub struct FieldError {
    /// From the document's root: `target.files[2].bytes`.
    pub key: String,
    /// A short form of what stands there; `absent`.
    pub found: String,
    /// What belongs there.
    pub wanted: &'static str,
}

type Found<T> = Result<T, FieldError>;

/// A document as a value in which no key stands twice.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    json::refuse_repeated_keys(bytes)?;
    serde_json::from_slice(bytes)
}

/// An object and where it stands.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The whole document; `None` if it is no object.
    pub(crate) fn root(value: &'a Value) -> Option<Self> {
        value.as_object().map(|map| Self { map, path: String::new() })
    }

    /// The full path of one of its keys.
    pub(crate) fn key(&self, key: &str) -> String {
        // A key may hold anything; a refusal is one line.
        let key = key.escape_debug();
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    /// What stands behind a key.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// All keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// Keys that are none of these, sorted: the map is in the document's order or not, as another crate's feature has it.
    pub(crate) fn unknown(&self, known: &[&str]) -> Vec<String> {
        let mut unknown: Vec<_> =
            self.keys().filter(|key| !known.contains(key)).map(|key| key.escape_debug().to_string()).collect();
        unknown.sort_unstable();
        unknown
    }

    /// The refusal of a key's value.
    pub(crate) fn wrong(&self, key: &str, wanted: &'static str) -> FieldError {
        FieldError { key: self.key(key), found: self.map.get(key).map_or("absent".into(), shown), wanted }
    }

    /// A value that `read` accepts.
    fn read<T>(&self, key: &str, wanted: &'static str, read: impl FnOnce(&'a Value) -> Option<T>) -> Found<Option<T>> {
        self.map.get(key).map(|value| read(value).ok_or_else(|| self.wrong(key, wanted))).transpose()
    }

    /// Makes a key's absence a refusal.
    pub(crate) fn need<T>(&self, key: &str, value: Option<T>, wanted: &'static str) -> Found<T> {
        value.ok_or_else(|| self.wrong(key, wanted))
    }

    /// A text that is not blank, and one line.
    pub(crate) fn text(&self, key: &str) -> Found<Option<&'a str>> {
        let sound = |text: &&str| !text.trim().is_empty() && !text.contains(char::is_control);
        self.read(key, "a text that is not blank, without control characters", |value| value.as_str().filter(sound))
    }

    /// One of several words.
    pub(crate) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)], wanted: &'static str) -> Found<Option<T>> {
        self.read(key, wanted, |value| words.iter().find(|(word, _)| value == word).map(|(_, meaning)| *meaning))
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, key: &str) -> Found<Option<bool>> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A JSON integer `low..=high`; `2.0` is none.
    pub(crate) fn integer(&self, key: &str, low: u64, high: u64, wanted: &'static str) -> Found<Option<u64>> {
        self.read(key, wanted, |value| value.as_u64().filter(|number| (low..=high).contains(number)))
    }

    /// A count that fits 32 bits and is not 0.
    pub(crate) fn count(&self, key: &str) -> Found<Option<u32>> {
        let found = self.integer(key, 1, u64::from(u32::MAX), "a positive integer of at most 32 bits")?;
        Ok(found.and_then(|number| u32::try_from(number).ok()))
    }

    /// A number that `accept` accepts.
    pub(crate) fn number(&self, key: &str, wanted: &'static str, accept: impl Fn(f64) -> bool) -> Found<Option<f64>> {
        self.read(key, wanted, |value| value.as_f64().filter(|number| number.is_finite() && accept(*number)))
    }

    /// A finite number above 0.
    pub(crate) fn positive(&self, key: &str) -> Found<Option<f64>> {
        self.number(key, "a finite number above 0", |number| number > 0.0)
    }

    /// 64 lower-case hexadecimal digits.
    pub(crate) fn digest(&self, key: &str) -> Found<Option<Digest>> {
        self.read(key, "64 lower-case hexadecimal digits", |value| {
            value.as_str().filter(|text| is_lower_hex(text, 64))?.parse().ok()
        })
    }

    /// 40 lower-case hexadecimal digits.
    pub(crate) fn commit(&self, key: &str) -> Found<Option<&'a str>> {
        self.read(key, "40 lower-case hexadecimal digits", |value| value.as_str().filter(|text| is_lower_hex(text, 40)))
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Found<Option<Fields<'a>>> {
        let path = self.key(key);
        self.read(key, "an object", |value| value.as_object().map(|map| Fields { map, path }))
    }

    /// A list of objects.
    pub(crate) fn objects(&self, key: &str) -> Found<Option<Vec<Fields<'a>>>> {
        let path = self.key(key);
        self.read(key, "a list of objects", |value| {
            let entries = value.as_array()?.iter().enumerate();
            entries
                .map(|(index, entry)| Some(Fields { map: entry.as_object()?, path: format!("{path}[{index}]") }))
                .collect()
        })
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Found<Option<Vec<String>>> {
        self.read(key, "a list of texts", |value| {
            value.as_array()?.iter().map(|entry| entry.as_str().map(str::to_owned)).collect()
        })
    }

    /// A list of integers that fit `u32`.
    pub(crate) fn integers(&self, key: &str, low: u32, wanted: &'static str) -> Found<Option<Vec<u32>>> {
        self.read(key, wanted, |value| {
            let number = |entry: &Value| u32::try_from(entry.as_u64()?).ok().filter(|number| *number >= low);
            value.as_array()?.iter().map(number).collect()
        })
    }

    /// A group of keys that stand together: all of them, or none (benchd.md 5). `None`: none.
    pub(crate) fn group(&self, keys: &[&str]) -> Found<Option<()>> {
        let missing = keys.iter().find(|key| !self.map.contains_key(**key));
        match missing {
            None => Ok(Some(())),
            Some(_) if keys.iter().all(|key| !self.map.contains_key(*key)) => Ok(None),
            Some(missing) => Err(self.wrong(missing, "declared, since others of its group are")),
        }
    }
}

/// A short form for messages.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::String(text) if text.chars().count() > 80 => format!("a text of {} bytes", text.len()),
        scalar => scalar.to_string(),
    }
}
