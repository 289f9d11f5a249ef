//! The prompt, from wherever it was given.

use std::io::{BufRead, Read};
use std::path::Path;

use cudafast_runtime::{Engine, TokenId};
use cudafast_text::{SpecialTokens, Tokenizer};

use crate::args::PromptArgs;
use crate::failure::Failure;

/// A prompt as it was given.
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<TokenId>),
}

impl Prompt {
    /// Reads what was named. Standard input and files are taken as they are, a last newline included.
    pub(crate) fn read(args: &PromptArgs) -> Result<Self, Failure> {
        Ok(match (&args.ids, &args.prompt_file, &args.prompt) {
            (Some(ids), _, _) => Prompt::Ids(ids.0.clone()),
            (None, Some(path), _) => Prompt::Text(read_text(path)?),
            (None, None, Some(text)) if text == "-" => Prompt::Text(read_stdin()?),
            (None, None, text) => Prompt::Text(text.clone().unwrap_or_default()),
        })
    }

    /// Its tokens. Special tokens in a text are taken for what they are: who writes a raw prompt may mean them.
    pub(crate) fn tokens(&self, engine: &Engine) -> Result<Vec<TokenId>, Failure> {
        match self {
            Prompt::Ids(_) => self.tokens_by(engine.tokenizer()),
            Prompt::Text(text) => Ok(engine.prompt(text)?),
        }
    }

    /// As [`tokens`](Self::tokens), where there is no engine.
    pub(crate) fn tokens_by(&self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, Failure> {
        match self {
            Prompt::Ids(ids) => {
                tokenizer.check_ids(ids).map_err(|source| Failure::Ids { source })?;
                Ok(ids.clone())
            }
            Prompt::Text(text) => {
                tokenizer.encode(text, SpecialTokens::Parse).map_err(|source| Failure::Encode { source })
            }
        }
    }
}

/// A whole file; `-` is standard input.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let shown = path.display().to_string();
    let unreadable = |source| Failure::Read { path: shown.clone(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    utf8(bounded(file, &shown, unreadable)?, shown.clone())
}

/// All of standard input.
pub(crate) fn read_stdin() -> Result<String, Failure> {
    let name = "standard input";
    utf8(bounded(std::io::stdin().lock(), name, |source| Failure::Stdin { source })?, name.into())
}

/// Most bytes of a text: 128 for each token of the longest trained context. A device or an endless pipe is refused here
/// instead of filling the memory.
pub(crate) const MAX_TEXT_BYTES: u64 = 32 << 20;

fn bounded(
    source: impl Read,
    name: &str,
    unreadable: impl FnOnce(std::io::Error) -> Failure,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(Failure::TextTooLong { path: name.into(), limit: MAX_TEXT_BYTES });
    }
    Ok(bytes)
}

/// The next line of a conversation, without its end; `None` at the end of the input.
pub(crate) fn read_line(input: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let name = "standard input";
    let mut bytes = Vec::new();
    let read = input.take(MAX_TEXT_BYTES + 1).read_until(b'\n', &mut bytes);
    if read.map_err(|source| Failure::Stdin { source })? == 0 {
        return Ok(None);
    }
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(Failure::TextTooLong { path: name.into(), limit: MAX_TEXT_BYTES });
    }
    let line = utf8(bytes, name.into())?;
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}

fn utf8(bytes: Vec<u8>, path: String) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| Failure::NotUtf8 { path, at: error.utf8_error().valid_up_to() })
}
