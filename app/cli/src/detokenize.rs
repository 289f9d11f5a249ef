//! `cudafast detokenize`: the bytes of token ids.

use std::path::Path;

use cudafast_runtime::TokenId;

use crate::args::DetokenizeArgs;
use crate::failure::Failure;
use crate::{output, prompt, source};

pub(crate) fn run(args: &DetokenizeArgs) -> Result<(), Failure> {
    let (name, ids) = match (&args.file, &args.ids[..]) {
        (None, given) if !given.is_empty() && given != ["-"] => {
            ("IDS".into(), ids(&given.join(" ")).map_err(|part| Failure::NoIdArgument { part })?)
        }
        (file, _) => {
            let path = file.as_deref().unwrap_or(Path::new("-"));
            let (name, text) = (prompt::name_of(path), prompt::read_text(path)?);
            let ids = ids(&text).map_err(|part| Failure::NoId { name: name.clone(), part })?;
            (name, ids)
        }
    };
    let tokenizer = cudafast_runtime::tokenizer(&source::outline_model(&args.model)?)?;
    tokenizer.check_ids(&ids).map_err(|source| Failure::ForeignId { name, source })?;
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
    output::bytes(&bytes)
}

/// Numbers with commas, blanks and newlines between them, in brackets or not; else the part that is none. No ids at all are
/// the empty text.
fn ids(text: &str) -> Result<Vec<TokenId>, String> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let mut ids = Vec::new();
    for field in inner.split(',') {
        let mut parts = field.split_whitespace().peekable();
        if parts.peek().is_none() && inner.contains(',') {
            return Err(String::new()); // two commas with nothing between them
        }
        for part in parts {
            ids.push(part.parse().map_err(|_| shortened(part))?);
        }
    }
    Ok(ids)
}

/// Enough of it to find it.
fn shortened(part: &str) -> String {
    const MOST: usize = 40;
    match part.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &part[..end]),
        None => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_whole_or_the_part_that_is_none_is_named() {
        for text in ["1,2 3\n4", "[1, 2,3,4]", " 1\t2\r\n3 4 ", "[1 2 3 4]\n"] {
            assert_eq!(ids(text), Ok(vec![1, 2, 3, 4]), "{text:?}");
        }
        assert_eq!(ids(" \n"), Ok(vec![]));
        assert_eq!(ids("[]"), Ok(vec![]));
        for (text, part) in [
            ("1,-2", "-2"),
            ("1 4294967296", "4294967296"),
            ("[1,2", "[1"),
            ("[[1]]", "[1]"),
            ("1,,2", ""),
            ("1,", ""),
            ("1.0", "1.0"),
            ("0x10", "0x10"),
        ] {
            assert_eq!(ids(text), Err(part.to_owned()), "{text:?}");
        }
        assert!(ids(&"x".repeat(1000)).unwrap_err().len() < 50);
    }
}
