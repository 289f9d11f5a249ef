//! Messages on their way into a template.

use serde_json::{Map, Value};

use crate::{Error, tojson::MAX_DEPTH};

/// The messages as templates expect them: objects, with the arguments of tool calls as objects too.
///
/// Clients send `arguments` as a JSON string, templates walk them as a mapping. A string that holds an object is unwrapped
/// once, so a history renders the same whichever form it came in; any other string is left as it is.
pub(crate) fn prepared(messages: &[Value]) -> Result<Vec<Value>, Error> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            let Value::Object(fields) = message else {
                return Err(Error::BadMessage { index, found: kind(message) });
            };
            let mut fields = fields.clone();
            if let Some(Value::Array(calls)) = fields.get_mut("tool_calls") {
                for call in calls {
                    unwrap_arguments(call);
                }
            }
            Ok(Value::Object(fields))
        })
        .collect()
}

fn unwrap_arguments(call: &mut Value) {
    let Some(call) = call.as_object_mut() else { return };
    let holder = match call.get("function") {
        Some(Value::Object(_)) => call.get_mut("function").and_then(Value::as_object_mut),
        _ => Some(call),
    };
    let Some(arguments) = holder.and_then(|holder| holder.get_mut("arguments")) else { return };
    let object = arguments.as_str().and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    if let Some(object) = object {
        *arguments = Value::Object(object);
    }
}

/// Refuses values that recursive code could not walk safely.
pub(crate) fn check_depth(value: &Value, place: &str) -> Result<(), Error> {
    let mut level = vec![value];
    for _ in 0..MAX_DEPTH {
        level = level
            .into_iter()
            .flat_map(|value| -> Box<dyn Iterator<Item = &Value>> {
                match value {
                    Value::Array(items) => Box::new(items.iter()),
                    Value::Object(fields) => Box::new(fields.values()),
                    _ => Box::new(std::iter::empty()),
                }
            })
            .collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    Err(Error::TooDeep { place: place.into(), limit: MAX_DEPTH })
}

/// The value as the template engine holds it; the depth has been checked.
pub(crate) fn to_template(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => ().into(),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => value.into(),
            (_, Some(value), _) => value.into(),
            (_, _, value) => value.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_template).collect(),
        Value::Object(fields) => {
            minijinja::Value::from_pairs(fields.iter().map(|(name, value)| (name.as_str(), to_template(value))))
        }
    }
}

/// About how much text a value holds; the depth has been checked.
pub(crate) fn size_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len() as u64,
        Value::Array(items) => 8 + items.iter().map(size_bytes).sum::<u64>(),
        Value::Object(fields) => {
            8 + fields.iter().map(|(name, value)| name.len() as u64 + size_bytes(value)).sum::<u64>()
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
