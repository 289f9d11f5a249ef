//! From a file's keys to a tokenizer and a chat template.

use cudafast_gguf::{Metadata, ShardSet};
use cudafast_text::{ChatTemplate, Tokenizer, Vocab};

use crate::failure::Failure;

/// The tokenizer of any file that carries a byte-level BPE vocabulary, whatever its architecture.
pub(crate) fn tokenizer(file: &ShardSet) -> Result<Tokenizer, Failure> {
    let label = || file.label().to_owned();
    let vocab = vocab(file.metadata(), label)?;
    Tokenizer::new(vocab).map_err(|source| Failure::Vocabulary { label: label(), source })
}

fn vocab(metadata: &Metadata, label: impl Fn() -> String) -> Result<Vocab, Failure> {
    let strings =
        |key| -> Result<Vec<String>, Failure> { Ok(metadata.str_array(key)?.iter().map(str::to_owned).collect()) };
    let narrow = |(index, found): (usize, i64)| {
        i32::try_from(found).map_err(|_| Failure::TokenType { label: label(), index, found })
    };
    Ok(Vocab {
        // First, so that a vocabulary of another kind is refused for that and not for a key it has no use for.
        model: metadata.str("tokenizer.ggml.model")?.to_owned(),
        pre: metadata.str("tokenizer.ggml.pre")?.to_owned(),
        tokens: strings("tokenizer.ggml.tokens")?,
        token_types: metadata
            .i64_array("tokenizer.ggml.token_type")?
            .into_iter()
            .enumerate()
            .map(narrow)
            .collect::<Result<_, _>>()?,
        merges: strings("tokenizer.ggml.merges")?,
        eos: metadata.u32_opt("tokenizer.ggml.eos_token_id")?,
        bos: metadata.u32_opt("tokenizer.ggml.bos_token_id")?,
        add_bos: metadata.bool_opt("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
    })
}

/// The chat template of a file that has one.
pub(crate) fn template(file: &ShardSet, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, Failure> {
    let Some(source) = file.metadata().str_opt("tokenizer.chat_template")? else { return Ok(None) };
    let spelled = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id]));
    let template =
        ChatTemplate::new(source).map_err(|source| Failure::Template { label: file.label().to_owned(), source })?;
    Ok(Some(template.with_tokens(spelled(tokenizer.bos()), spelled(tokenizer.eos()))))
}
