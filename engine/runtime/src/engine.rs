//! A loaded model on one device, with what turns text into its tokens and back.

use cudafast_text::{ChatTemplate, Tokenizer};

use crate::backend::{Backend, TimelineOptions, TokenId};
use crate::error::Error;
use crate::session::{Session, SessionOptions};

/// A backend, its tokenizer, and its chat template where the file has one.
pub struct Engine {
    backend: Box<dyn Backend>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    label: String,
    /// One bit per id that stands for something; `None` where all do.
    allowed: Option<Vec<u32>>,
}

impl Engine {
    /// `label` is what messages call the model: its path or its name. Refuses a tokenizer with ids the model has no row for.
    pub fn new(
        backend: Box<dyn Backend>,
        tokenizer: Tokenizer,
        template: Option<ChatTemplate>,
        label: impl Into<String>,
    ) -> Result<Self, Error> {
        let label = label.into();
        let (tokens, vocab) = (tokenizer.vocab_len(), backend.hyperparams().vocab);
        if tokens > vocab {
            return Err(Error::VocabularyMismatch { label, tokens, vocab });
        }
        let allowed = allowed(&tokenizer, vocab);
        Ok(Self { backend, tokenizer, template, label, allowed })
    }
    /// What messages call the model.
    pub fn label(&self) -> &str {
        &self.label
    }
    /// The device side.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }
    /// Text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
    /// The file's chat template.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }
    /// Ids that end an answer.
    pub fn stop_tokens(&self) -> Vec<TokenId> {
        self.backend.hyperparams().stop_tokens()
    }
    /// A new, empty session. Refuses a context the model was not trained for: positions past it give nonsense.
    pub fn open_session(&self, options: &SessionOptions) -> Result<Session, Error> {
        let trained = self.backend.hyperparams().context_tokens;
        let found = options.ctx_tokens;
        if found == 0 || found > trained {
            return Err(Error::InvalidContext { found, trained });
        }
        let timeline = self.backend.open(&TimelineOptions { ctx_tokens: found })?;
        let vocab = self.backend.hyperparams().vocab;
        Ok(Session::new(timeline, options, vocab, self.backend.has_draft_head(), self.allowed.as_deref()))
    }
}

/// The mask that keeps padding rows of the output matrix from being chosen. No mask costs nothing; one costs a copy of the row.
fn allowed(tokenizer: &Tokenizer, vocab: usize) -> Option<Vec<u32>> {
    let mut mask = vec![u32::MAX; vocab.div_ceil(32)];
    let mut all = true;
    for id in (0..vocab).filter(|id| tokenizer.is_unused(*id as TokenId)) {
        mask[id / 32] &= !(1 << (id % 32));
        all = false;
    }
    (!all).then_some(mask)
}
