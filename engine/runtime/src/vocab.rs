//! From a file's keys to a tokenizer and a chat template: the one place that knows both `tokenizer.*` keys and what they mean.

use cudafast_model::WeightSource;
use cudafast_text::{ChatTemplate, Tokenizer, Vocab};

use crate::error::Error;

/// The tokenizer of any file that carries a byte-level BPE vocabulary, whatever its architecture.
pub fn tokenizer(file: &WeightSource) -> Result<Tokenizer, Error> {
    let label = || file.label().to_owned();
    Tokenizer::new(vocab(file)?).map_err(|source| Error::Vocabulary { label: label(), source })
}

fn vocab(file: &WeightSource) -> Result<Vocab, Error> {
    let metadata = file.metadata();
    let key = cudafast_model::Error::from;
    let strings = |name| -> Result<Vec<String>, Error> {
        Ok(metadata.str_array(name).map_err(key)?.iter().map(str::to_owned).collect())
    };
    let narrow = |(index, found): (usize, i64)| {
        i32::try_from(found).map_err(|_| Error::TokenType { label: file.label().to_owned(), index, found })
    };
    Ok(Vocab {
        // First, so that a vocabulary of another kind is refused for that and not for a key it has no use for.
        model: metadata.str("tokenizer.ggml.model").map_err(key)?.to_owned(),
        pre: metadata.str("tokenizer.ggml.pre").map_err(key)?.to_owned(),
        tokens: strings("tokenizer.ggml.tokens")?,
        token_types: metadata
            .i64_array("tokenizer.ggml.token_type")
            .map_err(key)?
            .into_iter()
            .enumerate()
            .map(narrow)
            .collect::<Result<_, _>>()?,
        merges: strings("tokenizer.ggml.merges")?,
        eos: metadata.u32_opt("tokenizer.ggml.eos_token_id").map_err(key)?,
        bos: metadata.u32_opt("tokenizer.ggml.bos_token_id").map_err(key)?,
        add_bos: metadata.bool_opt("tokenizer.ggml.add_bos_token").map_err(key)?.unwrap_or(false),
    })
}

/// The chat template of a file that has one.
pub fn chat_template(file: &WeightSource, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, Error> {
    let source = file.metadata().str_opt("tokenizer.chat_template").map_err(cudafast_model::Error::from)?;
    let Some(source) = source else { return Ok(None) };
    let spelled = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id]));
    let template =
        ChatTemplate::new(source).map_err(|source| Error::Template { label: file.label().to_owned(), source })?;
    Ok(Some(template.with_tokens(spelled(tokenizer.bos()), spelled(tokenizer.eos()))))
}
