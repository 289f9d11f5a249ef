//! The prompt, from wherever it was given.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use cudafast_runtime::{Engine, TokenId};
use cudafast_text::{SpecialTokens, Tokenizer};

use crate::args::PromptArgs;
use crate::failure::Failure;

const STDIN: &str = "standard input";

/// A prompt as it was given.
pub(crate) struct Prompt {
    /// Where it was given.
    name: String,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Text(String),
    Ids(Vec<TokenId>),
}

impl Prompt {
    /// Reads what was named. Standard input and files are taken as they are, a last newline included.
    pub(crate) fn read(args: &PromptArgs) -> Result<Self, Failure> {
        let (name, content) = match (&args.ids, &args.prompt_file, &args.prompt) {
            (Some(ids), _, _) => ("--ids".into(), Content::Ids(ids.0.clone())),
            (None, Some(path), _) => (name_of(path), Content::Text(read_text(path)?)),
            (None, None, Some(text)) if text == "-" => (STDIN.into(), Content::Text(read_stdin()?)),
            (None, None, text) => ("PROMPT".into(), Content::Text(text.clone().unwrap_or_default())),
        };
        Ok(Self { name, content })
    }

    /// Its tokens, at least one. Special tokens in a text are taken for what they are: who writes a raw prompt may mean them.
    pub(crate) fn tokens(&self, engine: &Engine) -> Result<Vec<TokenId>, Failure> {
        self.some(match &self.content {
            Content::Ids(_) => return self.tokens_by(engine.tokenizer()),
            Content::Text(text) => engine.prompt(text)?,
        })
    }

    /// As [`tokens`](Self::tokens), where there is no engine.
    pub(crate) fn tokens_by(&self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, Failure> {
        self.some(match &self.content {
            Content::Ids(ids) => {
                tokenizer.check_ids(ids).map_err(|source| Failure::Ids { source })?;
                ids.clone()
            }
            Content::Text(text) => {
                tokenizer.encode(text, SpecialTokens::Parse).map_err(|source| Failure::Encode { source })?
            }
        })
    }

    fn some(&self, tokens: Vec<TokenId>) -> Result<Vec<TokenId>, Failure> {
        if tokens.is_empty() { Err(Failure::NoTokens { name: self.name.clone() }) } else { Ok(tokens) }
    }
}

/// What messages call a file; `-` is standard input.
pub(crate) fn name_of(path: &Path) -> String {
    if path == Path::new("-") { STDIN.into() } else { path.display().to_string() }
}

/// A whole file; `-` is standard input.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let shown = name_of(path);
    let unreadable = |source| Failure::Read { path: shown.clone(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    utf8(bounded(file, &shown, unreadable)?, shown.clone())
}

/// All of standard input.
pub(crate) fn read_stdin() -> Result<String, Failure> {
    let whole = unless_gone(|| bounded(std::io::stdin().lock(), STDIN, |source| Failure::Stdin { source }))?;
    utf8(whole, STDIN.into())
}

/// What `read` has of standard input, unless that is a terminal that went away meanwhile: it reads as an end or as a fault.
fn unless_gone<T>(read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let before = std::io::stdin().is_terminal();
    let given = read();
    if before && !std::io::stdin().is_terminal() { Err(Failure::Interrupted) } else { given }
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
pub(crate) fn read_line() -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let read = || {
        let read = std::io::stdin().lock().take(MAX_TEXT_BYTES + 1).read_until(b'\n', &mut bytes);
        read.map_err(|source| Failure::Stdin { source })
    };
    if unless_gone(read)? == 0 {
        return Ok(None);
    }
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(Failure::TextTooLong { path: STDIN.into(), limit: MAX_TEXT_BYTES });
    }
    let line = utf8(bytes, STDIN.into())?;
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}

fn utf8(bytes: Vec<u8>, path: String) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| Failure::NotUtf8 { path, at: error.utf8_error().valid_up_to() })
}
