use std::fmt;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::{object_only, some};

/// The name of a way of decoding. This track runs the first two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecMode {
    /// One token a forward.
    #[default]
    Serial,
    /// Drafts of the draft head, verified together.
    Mtp,
    /// Another track's.
    Dflash,
    /// Another track's.
    Dspark,
}

impl SpecMode {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            SpecMode::Serial => "serial",
            SpecMode::Mtp => "mtp",
            SpecMode::Dflash => "dflash",
            SpecMode::Dspark => "dspark",
        }
    }
}

/// How to decode, as the benchmarker asks and as the engine echoes: closed (engine-protocol-v1.md 4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct SpecConfig {
    /// The way of decoding.
    pub mode: SpecMode,
    /// Of `mtp` only.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub mtp: Option<MtpBlock>,
    /// Another track's; carried, not read.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub dflash: Option<Map<String, Value>>,
    /// Another track's; carried, not read.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub dspark: Option<Map<String, Value>>,
}

/// The parameters of `mtp`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct MtpBlock {
    /// Drafts a round. Absent in a request: the engine decides. (The published schema requires it; the ruling does not,
    /// engine-protocol-v1.md 13.)
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub depth: Option<u32>,
}
object_only!(SpecConfig, MtpBlock);

impl SpecConfig {
    /// `{"mode":"serial"}`
    pub fn serial() -> Self {
        Self::default()
    }

    /// `{"mode":"mtp","mtp":{"depth":D}}`, or with an empty block for a depth of the engine's choice.
    pub fn mtp(depth: Option<u32>) -> Self {
        Self { mode: SpecMode::Mtp, mtp: Some(MtpBlock { depth }), ..Self::default() }
    }
}

/// `spec` as a worker reads it: any mode, and any keys beside the two it knows, which it can then refuse by name with the
/// request's own id (engine-protocol-v1.md 6, rule 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LenientSpec {
    /// The mode, whatever it is called.
    pub mode: String,
    /// Read closed, as ever.
    pub mtp: Option<MtpBlock>,
    /// The first key that is neither.
    pub other: Option<String>,
}

impl<'de> Deserialize<'de> for LenientSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LenientVisitor)
    }
}

struct LenientVisitor;

impl<'de> Visitor<'de> for LenientVisitor {
    type Value = LenientSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a `mode`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LenientSpec, A::Error> {
        let (mut mode, mut mtp, mut other) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "mode" if mode.is_some() => return Err(A::Error::duplicate_field("mode")),
                "mode" => mode = Some(map.next_value()?),
                "mtp" if mtp.is_some() => return Err(A::Error::duplicate_field("mtp")),
                "mtp" => mtp = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    other.get_or_insert(key);
                }
            }
        }
        let mode = mode.ok_or_else(|| A::Error::missing_field("mode"))?;
        Ok(LenientSpec { mode, mtp, other })
    }
}
