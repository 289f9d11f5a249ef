//! Where templates rely on Python underneath Jinja: printing, string methods, tests, the clock.

use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, Value,
    value::{Kwargs, Rest, Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

use crate::tojson::{MAX_DEPTH, tojson};

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

/// `values | join(between, attribute)`.
fn join(state: &State, values: &Value, between: Option<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let between = between.or(kwargs.get("d")?).map_or(Ok(String::new()), |v| str_of(state, &v))?;
    let attribute: Option<String> = kwargs.get("attribute")?;
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
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
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

pub(crate) fn is_truthy_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool) && value.is_true()
}

pub(crate) fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a value is nested deeper than {MAX_DEPTH} levels"))
}

/// Methods of Python's `str` that differ from, or are missing in, the ready-made set; the rest goes there.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return pycompat::unknown_method_callback(state, value, name, args) };
    let characters = |at: usize| text[..at].chars().count();
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Ok(strip(text, chars, name != "rstrip", name != "lstrip").into())
        }
        "split" | "rsplit" => {
            let (args, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
            let mut positional = args.0.into_iter();
            let separator = positional.next().or(kwargs.get("sep")?).filter(|v| !v.is_none());
            let most = positional.next().or(kwargs.get("maxsplit")?);
            kwargs.assert_all_used()?;
            let most = most.map_or(Ok(-1), i64::try_from)?;
            let separator = separator.map(|v| str_argument("sep", &v)).transpose()?;
            split(text, separator.as_deref(), usize::try_from(most).unwrap_or(usize::MAX), name == "rsplit")
        }
        "splitlines" => {
            let (args, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
            let keep = args.first().cloned().or(kwargs.get("keepends")?).is_some_and(|v| v.is_true());
            kwargs.assert_all_used()?;
            Ok(split_lines(text, keep).into_iter().map(Value::from).collect())
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(empty_separator());
            }
            let parts = if name == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match parts {
                Some((before, after)) => [before, separator, after],
                None if name == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Tuple::from(parts.map(Value::from)).into())
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let found = if name == "index" { text.find(wanted) } else { text.rfind(wanted) };
            found
                .map(|at| characters(at).into())
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("{name}: substring not found")))
        }
        "isspace" => {
            let () = from_args(args)?;
            Ok((!text.is_empty() && text.chars().all(is_python_space)).into())
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn str_argument(name: &str, value: &Value) -> Result<String, Error> {
    let wrong = || Error::new(ErrorKind::InvalidOperation, format!("{name} must be a string, not {}", value.kind()));
    value.as_str().map(str::to_owned).ok_or_else(wrong)
}

/// What `str.strip` and `str.split` take for white space: Unicode's, and the four ASCII information separators.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn strip<'t>(text: &'t str, chars: Option<&str>, start: bool, end: bool) -> &'t str {
    let strips = |c: char| chars.map_or_else(|| is_python_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(strips) } else { text };
    if end { text.trim_end_matches(strips) } else { text }
}

fn empty_separator() -> Error {
    Error::new(ErrorKind::InvalidOperation, "empty separator")
}

/// At most `most` cuts, from the left or from the right. Without a separator runs of white space cut, and the ends are
/// bare.
fn split(text: &str, separator: Option<&str>, most: usize, from_right: bool) -> Result<Value, Error> {
    let limit = most.saturating_add(1);
    let mut parts: Vec<&str> = match (separator, from_right) {
        (Some(""), _) => return Err(empty_separator()),
        (Some(separator), false) => text.splitn(limit, separator).collect(),
        (Some(separator), true) => text.rsplitn(limit, separator).collect(),
        (None, _) => {
            let mut parts = Vec::new();
            let mut rest = strip(text, None, !from_right, from_right);
            while !rest.is_empty() {
                let cut = if from_right { rest.rfind(is_python_space) } else { rest.find(is_python_space) };
                match cut.filter(|_| parts.len() < most) {
                    None => {
                        parts.push(rest);
                        break;
                    }
                    Some(at) if from_right => {
                        parts.push(strip(&rest[at..], None, true, false));
                        rest = strip(&rest[..at], None, false, true);
                    }
                    Some(at) => {
                        parts.push(&rest[..at]);
                        rest = strip(&rest[at..], None, true, false);
                    }
                }
            }
            parts
        }
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Lines as Python cuts them: at every line boundary Unicode knows, `\r\n` being one.
fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.find(ends).unwrap_or(rest.len());
        let end = match rest[line..].chars().next() {
            Some('\r') if rest[line + 1..].starts_with('\n') => 2,
            Some(c) => c.len_utf8(),
            None => 0,
        };
        lines.push(&rest[..if keep_ends { line + end } else { line }]);
        rest = &rest[line + end..];
    }
    lines
}
