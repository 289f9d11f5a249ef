//! Python's methods on strings, lists and mappings, where the ready-made set lacks or bends them.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Rest, Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

/// Methods of Python's `str` that differ from, or are missing in, the ready-made set; the rest goes there.
pub(crate) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return match (value.kind(), name) {
            (ValueKind::Seq | ValueKind::Iterable, "index") => {
                let (wanted,): (&Value,) = from_args(args)?;
                let at = value.try_iter()?.position(|item| item == *wanted);
                at.map(Value::from).ok_or_else(|| {
                    Error::new(ErrorKind::InvalidOperation, format!("index: {wanted} is not in the list"))
                })
            }
            (ValueKind::Seq | ValueKind::Map, "copy") => from_args(args).map(|()| value.clone()),
            _ => pycompat::unknown_method_callback(state, value, name, args),
        };
    };
    // The engine charges for what a method returns; looking for it costs as well.
    state.consume_fuel(1 + text.len() as u64 / 64)?;
    match name {
        "format" if has_wide_field(text) => {
            Err(Error::new(ErrorKind::InvalidOperation, "format: a field is wider than 9999"))
        }
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
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let (wanted, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            let (skipped, inside) = span(text, start, end);
            if name == "count" {
                return Ok(inside.map_or(0, |inside| inside.matches(wanted).count()).into());
            }
            let find = |inside: &str| if name.starts_with('r') { inside.rfind(wanted) } else { inside.find(wanted) };
            match inside.and_then(|inside| find(inside).map(|at| skipped + inside[..at].chars().count())) {
                Some(at) => Ok(at.into()),
                None if name.ends_with("find") => Ok((-1).into()),
                None => Err(Error::new(ErrorKind::InvalidOperation, format!("{name}: substring not found"))),
            }
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            state.consume_fuel(1 + width as u64 / 16)?;
            Ok(justify(text, name, width, fill).into())
        }
        "title" => {
            let () = from_args(args)?;
            Ok(title(text).into())
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

/// Whether a format string has a width or precision of five digits or more, which would make text out of nothing.
fn has_wide_field(format: &str) -> bool {
    format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 4)
}

/// What `str.strip` and `str.split` take for white space: Unicode's, and the four ASCII information separators.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub(crate) fn strip<'t>(text: &'t str, chars: Option<&str>, start: bool, end: bool) -> &'t str {
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

/// Every letter after something that is none is capital, so `it's` becomes `It'S`: the method, unlike the filter.
fn title(text: &str) -> String {
    let mut title = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            title.extend(c.to_lowercase());
        } else {
            title.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    title
}

/// The part of `text` between two positions in characters, negative ones counting from the end, and how many characters
/// come before it. None where Python finds not even the empty string.
fn span(text: &str, start: Option<i64>, end: Option<i64>) -> (usize, Option<&str>) {
    if start.is_none() && end.is_none() {
        return (0, Some(text));
    }
    let count = text.chars().count();
    let place = |at: i64| usize::try_from(if at < 0 { at.saturating_add(count as i64).max(0) } else { at });
    let start = start.map_or(0, |at| place(at).unwrap_or(usize::MAX));
    let end = end.map_or(count, |at| place(at).unwrap_or(usize::MAX)).min(count);
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    (start, (start <= end).then(|| &text[byte(start)..byte(end)]))
}

/// `text` filled up to `width` characters.
fn justify(text: &str, name: &str, width: usize, fill: Option<char>) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let fill = fill.unwrap_or(if name == "zfill" { '0' } else { ' ' });
    let (sign, digits) = match text.chars().next() {
        Some('+' | '-') if name == "zfill" => text.split_at(1),
        _ => ("", text),
    };
    let left = match name {
        "ljust" => 0,
        // Python gives the odd blank to the left when the width is odd.
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let fill = |count: usize| std::iter::repeat_n(fill, count);
    sign.chars().chain(fill(left)).chain(digits.chars()).chain(fill(missing - left)).collect()
}

/// Lines as Python cuts them: at every line boundary Unicode knows, `\r\n` being one.
pub(crate) fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
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
