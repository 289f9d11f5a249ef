//! Where templates rely on Python underneath Jinja: printing, filters and tests, the clock.

use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, Value, filters,
    value::{Kwargs, Rest, ValueKind},
};

use crate::{
    methods::{method, split_lines, strip},
    tojson::{MAX_DEPTH, tojson},
};

/// The error behind `raise_exception`: the template's own verdict, kept apart from faults of the engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Raised(pub(crate) String);

/// The variable that holds the moment `strftime_now` tells; set per render.
pub(crate) const NOW_VARIABLE: &str = "__now_unix_s";

/// Gives the environment what the reference renderer adds to Jinja, and Python's behaviour where it differs.
pub(crate) fn install(env: &mut Environment<'_>) {
    minijinja_contrib::add_to_environment(env);
    env.set_unknown_method_callback(method);
    env.set_formatter(|out: &mut Output, state: &mut State, value: &Value| {
        match value.as_str() {
            Some(text) => out.write_str(text)?,
            None => out.write_str(&str_of(state, value)?)?,
        }
        Ok(())
    });
    env.add_filter("tojson", tojson);
    env.add_filter("string", |state: &State, value: &Value| str_of(state, value));
    env.add_filter("trim", |state: &State, value: &Value, chars: Option<&str>| {
        str_of(state, value).map(|text| strip(&text, chars, true, true).to_owned())
    });
    env.add_filter("join", join);
    env.add_filter("indent", indent);
    env.add_filter("int", |state: &State, value: &Value, default: Option<Value>, kwargs: Kwargs| {
        let default = default.or(kwargs.get("default")?).unwrap_or_else(|| 0.into());
        filters::int(state, value, Some(default), None, kwargs)
    });
    env.add_test("sequence", |v: &Value| v.is_undefined() || v.kind() == ValueKind::String || v.len().is_some());
    env.add_test("iterable", |v: &Value| v.kind() == ValueKind::String || v.try_iter().is_ok());
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    env.add_function("strftime_now", strftime_now);
}

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let bad = |source: jiff::Error| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now: `{format}`")).with_source(source)
    };
    let now = match state.lookup(NOW_VARIABLE).and_then(|now| now.as_i64()) {
        Some(seconds) => Timestamp::from_second(seconds).map_err(bad)?,
        None => Timestamp::now(),
    };
    strtime::format(format, &now.to_zoned_datetime(TimeZone::system())).map_err(bad)
}

/// `values | join(d='', attribute=none)`.
fn join(
    state: &State,
    values: &Value,
    between: Option<Value>,
    attribute: Option<String>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let between = between.or(kwargs.get("d")?).map_or(Ok(String::new()), |v| str_of(state, &v))?;
    let attribute = attribute.or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    let mut text = String::new();
    for (index, item) in values.try_iter()?.checked().enumerate() {
        let item = item?;
        if index > 0 {
            state.consume_fuel(1 + between.len() as u64 / 64)?;
            text.push_str(&between);
        }
        match &attribute {
            Some(name) => write_str(state, &item.get_attr(name)?, &mut text)?,
            None => write_str(state, &item, &mut text)?,
        }
    }
    Ok(text)
}

/// `text | indent(width=4, first=false, blank=false)`: the first line and empty lines stay at the margin unless asked.
fn indent(state: &State, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let mut positional = args.0.into_iter();
    let width = positional.next().or(kwargs.get("width")?);
    let first = positional.next().or(kwargs.get("first")?).is_some_and(|v| v.is_true());
    let blank = positional.next().or(kwargs.get("blank")?).is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let margin = width.map_or_else(|| Ok(" ".repeat(4)), |v| margin("indent", &v))?;
    // The line break added here makes a closing one count as the start of an empty line.
    let lines = str_of(state, value)? + "\n";
    let mut text = String::new();
    for (index, line) in split_lines(&lines, false).into_iter().enumerate() {
        state.consume_fuel(1 + margin.len() as u64 / 64)?;
        if index > 0 {
            text.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            text.push_str(&margin);
        }
        text.push_str(line);
    }
    Ok(text)
}

/// A margin given as a number of blanks or as itself. Python multiplies, so a negative number is none.
pub(crate) fn margin(filter: &str, value: &Value) -> Result<String, Error> {
    const MOST_BLANKS: i64 = 64;
    if let Some(text) = value.as_str() {
        return Ok(text.into());
    }
    let blanks =
        if value.kind() == ValueKind::Bool { i64::from(value.is_true()) } else { i64::try_from(value.clone())? };
    match usize::try_from(blanks.max(0)) {
        Ok(count) if blanks <= MOST_BLANKS => Ok(" ".repeat(count)),
        _ => {
            let problem = format!("{filter}: {blanks} blanks are more than {MOST_BLANKS}");
            Err(Error::new(ErrorKind::InvalidOperation, problem))
        }
    }
}

/// Python's `str(value)`.
pub(crate) fn str_of(state: &State, value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    write_str(state, value, &mut text)?;
    Ok(text)
}

fn write_str(state: &State, value: &Value, out: &mut String) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write_repr(state, value, out, 0)?,
    }
    Ok(())
}

/// Python's `repr(value)`. Pays per item: lists share items, so the text can be far larger than the value.
fn write_repr(state: &State, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    state.consume_fuel(1 + value.as_str().map_or(0, |s| s.len() as u64 / 16))?;
    if depth >= MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => out.push_str(&float_repr(f64::try_from(value.clone())?)),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ")") } else { ('[', "]") };
            out.push(open);
            let mut count = 0_usize;
            for item in value.try_iter()?.checked() {
                if count > 0 {
                    out.push_str(", ");
                }
                count += 1;
                write_repr(state, &item?, out, depth + 1)?;
            }
            out.push_str(if count == 1 && value.is_tuple() { ",)" } else { close });
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.checked().enumerate() {
                let key = key?;
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(state, &key, out, depth + 1)?;
                out.push_str(": ");
                write_repr(state, &value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A string as Python writes it in a list: single quotes unless only they occur inside.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                code @ 0..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// Whether `repr` writes a character as it is. Rust's own escaping agrees, except for marks at the start of a string.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~') || !(c.is_control() || format!("a{c}").escape_debug().skip(1).eq(c.escape_unicode()))
}

/// Python's `repr(float)`: the shortest digits that come back, plain between 1e-4 and 1e16, else with an exponent.
pub(crate) fn float_repr(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "nan".into() } else { format!("{number}") };
    }
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if number == 0.0 || (-4..16).contains(&exponent) => format!("{number:?}"),
        Ok(exponent) => format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        Err(_) => scientific,
    }
}

pub(crate) fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a value is nested deeper than {MAX_DEPTH} levels"))
}
