//! `tojson` as chat templates know it: Python's `json.dumps(x, ensure_ascii=False)`, not the HTML-safe filter of plain
//! Jinja. Tool schemas are shown to the model in exactly this form, so spacing and number forms matter.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Rest, ValueKind},
};

use crate::python::{float_repr, margin, too_deep};

/// Levels of nesting that are walked; as deep as serde_json reads.
pub(crate) const MAX_DEPTH: usize = 128;

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(crate) fn tojson(state: &State, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let mut positional = args.0.into_iter();
    let mut argument = |name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(positional.next().or(named).filter(|v| !v.is_none()))
    };
    let ensure_ascii = argument("ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = argument("indent")?.map(|v| margin("tojson", &v)).transpose()?;
    let separators = argument("separators")?.map(|v| separator_pair(&v)).transpose()?;
    let sort_keys = argument("sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    if positional.next().is_some() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let item = if indent.is_some() { "," } else { ", " };
    let (item, key) = separators.unwrap_or_else(|| (item.into(), ": ".into()));
    let mut writer = Writer { state, out: String::new(), ensure_ascii, indent, item, key, sort_keys };
    writer.value(value, 0)?;
    Ok(writer.out)
}

fn separator_pair(value: &Value) -> Result<(String, String), Error> {
    let parts: Vec<Value> = value.try_iter()?.collect();
    match parts.as_slice() {
        [item, key] if item.as_str().is_some() && key.as_str().is_some() => Ok((item.to_string(), key.to_string())),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
    }
}

struct Writer<'a, 's, 'e> {
    state: &'a State<'s, 'e>,
    out: String,
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        // Lists share their items, so the text can be far larger than the value: pay before writing.
        let margin_bytes = self.indent.as_ref().map_or(0, |indent| indent.len() * depth);
        let bytes = value.as_str().map_or(0, str::len) + self.item.len() + self.key.len() + margin_bytes;
        self.state.consume_fuel(1 + bytes as u64 / 16)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.checked();
                self.container('[', ']', depth, items, |writer, item| writer.value(&item, depth + 1))?;
            }
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                let problem = format!("tojson: a value of kind `{kind}` has no JSON form");
                return Err(Error::new(ErrorKind::BadSerialization, problem));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
        if self.sort_keys {
            keys.sort();
        }
        self.container('{', '}', depth, keys.into_iter().map(Ok), |writer, key| {
            match key.kind() {
                ValueKind::String => writer.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    writer.out.push('"');
                    writer.value(&key, depth + 1)?;
                    writer.out.push('"');
                }
                kind => {
                    let problem = format!("tojson: a key of kind `{kind}` has no JSON form");
                    return Err(Error::new(ErrorKind::BadSerialization, problem));
                }
            }
            writer.out.push_str(&writer.key);
            writer.value(&value.get_item(&key)?, depth + 1)
        })
    }

    fn container(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: impl Iterator<Item = Result<Value, Error>>,
        mut write: impl FnMut(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if depth >= MAX_DEPTH {
            return Err(too_deep());
        }
        self.out.push(open);
        let mut empty = true;
        for item in items {
            if !empty {
                self.out.push_str(&self.item);
            }
            empty = false;
            self.line_break(depth + 1);
            write(self, item?)?;
        }
        if !empty {
            self.line_break(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line_break(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        let text = if value.is_integer() {
            value.to_string()
        } else {
            match f64::try_from(value.clone())? {
                number if number.is_nan() => "NaN".into(),
                f64::INFINITY => "Infinity".into(),
                f64::NEG_INFINITY => "-Infinity".into(),
                number => float_repr(number),
            }
        };
        self.out.push_str(&text);
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
