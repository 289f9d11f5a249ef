//! A loaded model on one device, with what turns text into its tokens and back.

use cudafast_text::{ChatTemplate, RenderOptions, SpecialTokens, Tokenizer};
use serde_json::Value;

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
    /// The tokens of a raw prompt. Special tokens in it are taken for what they are: who writes one may mean them.
    pub fn prompt(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        self.tokenizer.encode(text, SpecialTokens::Parse).map_err(|source| Error::Prompt { source })
    }
    /// The tokens of a conversation, rendered by the chat template. The text of a control token inside a message is taken
    /// literally, so that nothing anybody said can end a turn or open one.
    pub fn chat_prompt(&self, messages: &[Value], options: &RenderOptions) -> Result<Vec<TokenId>, Error> {
        let label = || self.label.clone();
        let template = self.template.as_ref().ok_or_else(|| Error::NoTemplate { label: label() })?;
        let render = |messages: &[Value]| {
            template.render(messages, options).map_err(|source| Error::Template { label: label(), source })
        };
        let rendered = render(messages)?;
        if !messages.iter().any(|message| self.spells_control(message)) {
            return self.prompt(&rendered);
        }
        // The template sees the messages with a mark inside each such text, a character that is in none of them and that
        // it does not write itself. So it may trim, split, move or repeat them, and what they say stays marked.
        let mut used = rendered;
        messages.iter().for_each(|message| used.push_str(&message.to_string()));
        let mark = ('\u{e000}'..='\u{10fffd}').find(|mark| !used.contains(*mark));
        let mark = mark.unwrap_or('\0'); // a text of every character there is, which loses its NULs
        let mut marked = messages.to_vec();
        marked.iter_mut().for_each(|message| self.mark_control(message, mark));
        let rendered = render(&marked)?;
        self.tokenizer.encode_marked(&rendered, mark).map_err(|source| Error::Prompt { source })
    }
    fn spells_control(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.tokenizer.spells_control(text),
            Value::Array(items) => items.iter().any(|item| self.spells_control(item)),
            Value::Object(fields) => fields.values().any(|field| self.spells_control(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    fn mark_control(&self, value: &mut Value, mark: char) {
        match value {
            Value::String(text) => *text = self.tokenizer.mark_control(text, mark),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mark_control(item, mark)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.mark_control(field, mark)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    /// A new, empty session. Refuses a context the model was not trained for: positions past it give nonsense.
    pub fn open_session(&self, options: &SessionOptions) -> Result<Session, Error> {
        let trained = self.backend.hyperparams().context_tokens;
        let found = options.ctx_tokens;
        if found == 0 || found > trained {
            return Err(Error::InvalidContext { found, trained });
        }
        let timeline = self.backend.open(&TimelineOptions { ctx_tokens: found })?;
        let (tokenizer, head) = (self.tokenizer.clone(), self.backend.has_draft_head());
        Ok(Session::new(timeline, tokenizer, options, self.backend.hyperparams(), head, self.allowed.as_deref()))
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
