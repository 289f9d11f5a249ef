//! Closed JSON: what serde would let through.
//!
//! A derived `deny_unknown_fields` struct refuses unknown and repeated keys, but takes an array for an object and a `null`
//! for an absent key. [`document`], [`objects`] and [`present`] close both. Documents with keys that are not ours, where no
//! struct sees a repetition, pass [`refuse_repeated_keys`] first.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An object and nothing else; the whole of a document, or one element of a list.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMaps<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMaps<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(OnlyMaps(PhantomData)).map(Self)
    }
}

/// A document that is one object, up to the last byte.
pub(crate) fn document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice::<Object<T>>(bytes).map(|object| object.0)
}

/// A key that may be absent but not `null`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An object that may be absent but not `null`.
pub(crate) fn present_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|object| Some(object.0))
}

/// A list of objects.
pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|object| object.0).collect())
}

/// A list of objects that may be absent but not `null`.
pub(crate) fn present_objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    objects(deserializer).map(Some)
}

/// Whether the bytes are one JSON value in which no object has a key twice. `serde_json::Value` would keep the last of two,
/// so that two readers of one file could see two documents.
pub(crate) fn refuse_repeated_keys(bytes: &[u8]) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    KeysOnce.deserialize(&mut reader)?;
    reader.end()
}

struct KeysOnce;

impl<'de> DeserializeSeed<'de> for KeysOnce {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeysOnce {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(KeysOnce)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                map.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            seen.insert(key);
            map.next_value_seed(KeysOnce)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(default, deserialize_with = "present")]
        a: Option<i64>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(deserialize_with = "objects")]
        list: Vec<Inner>,
        #[serde(default, deserialize_with = "present_object")]
        one: Option<Inner>,
    }

    #[test]
    fn only_objects_are_objects_and_null_is_not_absence() {
        let read = |text: &str| document::<Outer>(text.as_bytes());
        let read_whole = read(r#"{"list":[{"a":1},{}],"one":{}}"#).unwrap();
        assert_eq!(read_whole.list.iter().map(|inner| inner.a).collect::<Vec<_>>(), [Some(1), None]);
        assert!(read_whole.one.unwrap().a.is_none());
        for bad in [
            r#"[[{"a":1}]]"#,
            r#"{"list":[[1]]}"#,
            r#"{"list":[],"one":[1]}"#,
            r#"{"list":[],"one":null}"#,
            r#"{"list":[{"a":null}]}"#,
            r#"{"list":[{"a":1.0}]}"#,
            r#"{"list":[{"a":1,"a":1}]}"#,
            r#"{"list":[],"list":[]}"#,
            r#"{"list":[],"b":1}"#,
            r#"{"list":null}"#,
            r#"{"list":[]} {}"#,
            "null",
            "",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_repeated_key_is_found_at_any_depth_and_behind_any_spelling() {
        for good in [r#"{"a":{"a":[{"a":1},{"a":2}]}}"#, "3", "[null,true,-1,1.5,\"x\"]"] {
            refuse_repeated_keys(good.as_bytes()).unwrap();
        }
        for bad in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"c":2,"\u0061":3}}]"#, "{} x", "{", ""] {
            assert!(refuse_repeated_keys(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
