//! What serde's derived code is too generous about: arrays for objects, and `null` for absent.

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde::ser::{Error as _, Serializer};

/// A deserializer of an object only. Derived code also takes an array of the fields in order.
pub(crate) struct Object<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Object<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Gives a type with `#[serde(remote = "Self")]` its two traits, the second by way of [`Object`].
macro_rules! object_only {
    ($($name:ident),*) => { $(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::deserialize($crate::object::Object(deserializer))
            }
        }
    )* };
}
pub(crate) use object_only;

/// One object and nothing behind it.
pub(crate) fn parse<'de, T: Deserialize<'de>>(line: &'de [u8]) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let message = T::deserialize(Object(&mut deserializer))?;
    deserializer.end()?;
    Ok(message)
}

/// An optional field whose key is there: `null` is no value of any field (engine-protocol-v1.md 3).
pub(crate) fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A number that JSON has. serde_json writes the others as `null`.
pub(crate) fn finite<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if !number.is_finite() {
        return Err(S::Error::custom(format_args!("{number} is no JSON number")));
    }
    serializer.serialize_f64(*number)
}

/// [`finite`], of a field that is there: absent ones are not written.
pub(crate) fn some_finite<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => finite(number, serializer),
        None => serializer.serialize_none(),
    }
}
