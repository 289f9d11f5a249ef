//! The lines of `sha256sum`: 64 digits, a blank, a blank or `*`, the name.
//!
//! A line that begins with a backslash has a name with `\\`, `\n` and `\r` for a backslash, a newline and a carriage return.
//! Empty lines and those that begin with `#` say nothing; a leading `./` of a name neither.

use std::fmt::Write as _;

use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::Pin;

pub(crate) fn parse(manifest: &str, text: &str) -> Result<Vec<Pin>, Error> {
    let mut pins = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refused = |why| Error::Line { manifest: manifest.to_owned(), line: index + 1, why };
        pins.push(pin(line).map_err(refused)?);
    }
    Ok(pins)
}

fn pin(line: &str) -> Result<Pin, &'static str> {
    let (escaped, line) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let no_digest = "it does not begin with 64 hexadecimal digits";
    let (digest, rest) = line.split_at_checked(64).ok_or(no_digest)?;
    let sha256: Digest = digest.parse().map_err(|_| no_digest)?;
    let name = rest.strip_prefix("  ").or_else(|| rest.strip_prefix(" *"));
    let name = name.ok_or("two blanks, or a blank and `*`, do not follow the digits")?;
    let name = if escaped { unescaped(name).ok_or("the name has an unknown escape")? } else { name.to_owned() };
    let path = name.strip_prefix("./").unwrap_or(&name).to_owned();
    Ok(Pin { path, bytes: None, sha256 })
}

fn unescaped(name: &str) -> Option<String> {
    let mut chars = name.chars();
    let mut plain = String::with_capacity(name.len());
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            c => c,
        });
    }
    Some(plain)
}

pub(crate) fn render(pins: &[Pin]) -> String {
    let mut text = String::new();
    for Pin { path, sha256, .. } in pins {
        let escaped = path.contains(['\\', '\n', '\r']);
        let name =
            if escaped { path.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r") } else { path.clone() };
        let _ = writeln!(text, "{}{sha256}  {name}", if escaped { "\\" } else { "" });
    }
    text
}
