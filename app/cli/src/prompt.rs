//! The prompt, from wherever it was given.

use std::io::Read;
use std::path::Path;

use cudafast_runtime::{Engine, TokenId};

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
            Prompt::Ids(ids) => {
                engine.tokenizer().check_ids(ids).map_err(|source| Failure::Ids { source })?;
                Ok(ids.clone())
            }
            Prompt::Text(text) => Ok(engine.prompt(text)?),
        }
    }
}

/// A whole file; `-` is standard input.
fn read_text(path: &Path) -> Result<String, Failure> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| Failure::Read { path: shown.clone(), source })?;
    utf8(bytes, shown)
}

/// All of standard input.
pub(crate) fn read_stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|source| Failure::Stdin { source })?;
    utf8(bytes, "standard input".into())
}

fn utf8(bytes: Vec<u8>, path: String) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| Failure::NotUtf8 { path, at: error.utf8_error().valid_up_to() })
}
