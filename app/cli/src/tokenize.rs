//! `cudafast tokenize`: the tokens of a text.

use std::fmt::Write as _;

use cudafast_text::SpecialTokens;

use crate::args::TokenizeArgs;
use crate::failure::Failure;
use crate::{output, prompt, source};

pub(crate) fn run(args: &TokenizeArgs) -> Result<(), Failure> {
    let tokenizer = cudafast_runtime::tokenizer(&source::outline_model(&args.model)?)?;
    let text = match args.text.as_deref() {
        None | Some("-") => prompt::read_stdin()?,
        Some(text) => text.to_owned(),
    };
    let special = if args.no_special { SpecialTokens::Literal } else { SpecialTokens::Parse };
    let ids = tokenizer.encode(&text, special).map_err(|source| Failure::Encode { source })?;
    if args.json {
        return output::json(&ids);
    }
    let mut lines = String::new();
    for id in ids {
        // Escaped, so that a line stays a line and part of a character shows as the bytes it is.
        let _ = writeln!(lines, "{id}\t{}", shown(tokenizer.token_bytes(id)));
    }
    output::text(&lines)
}

/// Bytes as text in quotes; what is not UTF-8 as `\xNN`.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(char::escape_debug));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_on_one_line_whatever_they_are() {
        assert_eq!(shown(b" a\n\"\xf0\x9f"), r#"" a\n\"\xf0\x9f""#);
        assert_eq!(shown("é".as_bytes()), "\"é\"");
    }
}
