//! As much of JSON Schema as `engine-protocol-v1.schema.json` uses.

use serde_json::Value;

pub(crate) struct Schema {
    root: Value,
}

impl Schema {
    pub(crate) fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/track/engine-protocol-v1.schema.json");
        Self { root: serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() }
    }

    fn definition(&self, name: &str) -> &Value {
        let found = &self.root["$defs"][name];
        assert!(found.is_object(), "the schema defines no {name}");
        found
    }

    pub(crate) fn properties(&self, name: &str) -> Vec<String> {
        self.definition(name)["properties"].as_object().unwrap().keys().cloned().collect()
    }

    /// Whether a line is one of the definition's objects.
    pub(crate) fn accepts(&self, name: &str, line: &[u8]) -> bool {
        serde_json::from_slice(line).is_ok_and(|value| self.valid(self.definition(name), &value))
    }

    fn valid(&self, schema: &Value, value: &Value) -> bool {
        let of_kind = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            _ => panic!("type {kind}"),
        };
        schema.as_object().unwrap().iter().all(|(keyword, wanted)| match keyword.as_str() {
            "type" => of_kind(wanted.as_str().unwrap()),
            "$ref" => self.valid(self.definition(wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap()), value),
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_some_and(|number| number >= wanted.as_f64().unwrap()),
            "pattern" => {
                value.as_str().is_some_and(|text| regex::Regex::new(wanted.as_str().unwrap()).unwrap().is_match(text))
            }
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| self.valid(wanted, item))),
            "required" => wanted.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some()),
            "properties" => value.as_object().is_none_or(|object| {
                object.iter().all(|(key, value)| wanted.get(key).is_none_or(|schema| self.valid(schema, value)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = |key: &str| schema.get("properties").is_some_and(|known| known.get(key).is_some());
                object
                    .iter()
                    .all(|(key, value)| known(key) || wanted.as_bool().unwrap_or_else(|| self.valid(wanted, value)))
            }),
            "$comment" => true,
            _ => panic!("keyword {keyword}"),
        })
    }
}
