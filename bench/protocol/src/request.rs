use serde::{Deserialize, Serialize};

use crate::object::{parse, some};
use crate::spec::SpecConfig;
use crate::{Error, Verb};

/// One request line; the fields in wire order (engine-protocol-v1.md 4).
///
/// `S` is how `spec` is read: [`SpecConfig`] is closed, [`LenientSpec`](crate::LenientSpec) is what a worker reads, so that
/// a mode it does not run is refused with the request's own id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(bound(serialize = "S: Serialize", deserialize = "S: Deserialize<'de>"))]
pub struct Request<S = SpecConfig> {
    /// Counts from 1; the response carries it.
    pub id: i64,
    /// A verb's name; see [`Request::verb`].
    pub kind: String,
    /// `prefill`, `correctness`, `correctness_begin`: the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub prompt_tokens: Option<Vec<i64>>,
    /// `decode_step`, `correctness_step`: the token to evaluate.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub token: Option<i64>,
    /// `decode_begin`, `free_decode_begin`: the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub seed_tokens: Option<Vec<i64>>,
    /// `correctness`: the most tokens to generate.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub steps: Option<i64>,
    /// `free_decode_run`: the tokens to commit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub count: Option<u32>,
    /// `decode_begin`, `free_decode_begin`: how to decode; absent is serial.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub spec: Option<S>,
}

impl<S> Request<S> {
    /// The verb, if `kind` names one.
    pub fn verb(&self) -> Option<Verb> {
        Verb::from_name(&self.kind)
    }
}

impl<'de, S: Deserialize<'de>> Request<S> {
    /// Reads a line, with or without its line end. Errors: anything but one object of the closed envelope.
    pub fn parse(line: &'de [u8]) -> Result<Self, Error> {
        Ok(parse(line)?)
    }
}

impl<S: Serialize> Request<S> {
    /// The canonical line, with its line end.
    pub fn to_line(&self) -> Result<Vec<u8>, Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}
