//! What can be wrong with a vocabulary, a template or a conversation.

/// Text of a file or a client on one line of bounded length.
fn shown(text: &str) -> String {
    const MOST_CHARS: usize = 80;
    let mut clipped: String = text.chars().take(MOST_CHARS).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    format!("`{}`", clipped.escape_debug())
}

/// Every refusal of this crate. Vocabulary errors name the token or merge by its index in the file's array; template
/// errors name the template's line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tokenizer other than byte-level BPE.
    #[error(
        "tokenizer.ggml.model is {}, only `gpt2` (byte-level BPE) is supported; use a file of a supported model",
        shown(model)
    )]
    UnsupportedModel {
        /// What the file says.
        model: String,
    },
    /// A pre-split pattern that is not known by name.
    #[error(
        "tokenizer.ggml.pre is {}, known are {known}; convert the file again with one of these if it is the same",
        shown(pre)
    )]
    UnknownPreTokenizer {
        /// What the file says.
        pre: String,
        /// The names that would do.
        known: String,
    },
    /// The two arrays describe different vocabularies.
    #[error("tokenizer.ggml.token_type has {types} entries, tokenizer.ggml.tokens has {tokens}; the file is damaged")]
    TypeCount {
        /// Length of the type array.
        types: usize,
        /// Length of the token array.
        tokens: usize,
    },
    /// More tokens than an id can count.
    #[error("tokenizer.ggml.tokens has {tokens} entries, ids are 32-bit; the file is damaged")]
    TooManyTokens {
        /// Length of the token array.
        tokens: usize,
    },
    /// A token type that byte-level BPE does not have.
    #[error(
        "token {id} {} has type {found}, wanted 1 (normal), 3 (control), 4 (user-defined) or 5 (unused)",
        shown(token)
    )]
    TokenType {
        /// Index of the token.
        id: u32,
        /// Its text.
        token: String,
        /// Its type in the file.
        found: i32,
    },
    /// A token that would match everywhere.
    #[error("token {id} is empty; only unused tokens (type 5) may be")]
    EmptyToken {
        /// Index of the token.
        id: u32,
    },
    /// A text with two ids.
    #[error("token {id} {} is also token {first}; each text may have one id", shown(token))]
    DuplicateToken {
        /// Index of the second one.
        id: u32,
        /// Index of the first one.
        first: u32,
        /// Their text.
        token: String,
    },
    /// A normal token that is not written in the byte alphabet.
    #[error(
        "token {id} {} holds {found:?}, which stands for no byte; special tokens need type 3 (control) or 4 (user-defined)",
        shown(token)
    )]
    NotBytes {
        /// Index of the token.
        id: u32,
        /// Its text.
        token: String,
        /// The first character outside the alphabet.
        found: char,
    },
    /// A vocabulary that cannot write every text.
    #[error("no token for byte {byte:#04x} (written `{wanted}`); byte-level BPE needs one for each of the 256 bytes")]
    MissingByte {
        /// The byte.
        byte: u8,
        /// The token that would stand for it.
        wanted: char,
    },
    /// A merge that is not two tokens.
    #[error("merge {index} {} is not two tokens with one blank between them; the file is damaged", shown(merge))]
    MergeForm {
        /// Index of the merge.
        index: usize,
        /// Its text.
        merge: String,
    },
    /// A merge of, or into, something that is no token.
    #[error(
        "merge {index} {} needs the token {}, which is not a normal token of the vocabulary",
        shown(merge),
        shown(part)
    )]
    MergeToken {
        /// Index of the merge.
        index: usize,
        /// Its text.
        merge: String,
        /// The left part, the right part or the result.
        part: String,
    },
    /// A merge with two ranks.
    #[error("merge {index} {} is also merge {first}; each pair may have one rank", shown(merge))]
    DuplicateMerge {
        /// Index of the second one.
        index: usize,
        /// Index of the first one.
        first: usize,
        /// Their text.
        merge: String,
    },
    /// A begin or end token that is no token in use.
    #[error("{key} is {id}, which is not a used token of the {tokens} in the vocabulary; the file is damaged")]
    BadEndToken {
        /// The metadata key.
        key: &'static str,
        /// Its value.
        id: u32,
        /// Length of the token array.
        tokens: usize,
    },
    /// A begin token is wanted but not named.
    #[error("tokenizer.ggml.add_bos_token is true but there is no tokenizer.ggml.bos_token_id; the file is damaged")]
    NoBos,
    /// An id that stands for no text.
    #[error("token id {id} at index {index} stands for no text; the vocabulary has {tokens} ids, some of them unused")]
    UnknownId {
        /// The id.
        id: u32,
        /// Where in the list it stands.
        index: usize,
        /// Length of the vocabulary.
        tokens: usize,
    },
    /// A library underneath failed on input that had passed every check.
    #[error("{doing} failed; this is a fault of the program, please report it with the input")]
    Backend {
        /// What was being done.
        doing: &'static str,
        /// What the library says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The template cannot be parsed.
    #[error("chat template, line {line}: {problem}; correct the template or give another one")]
    TemplateSyntax {
        /// Line of the template, from 1.
        line: usize,
        /// What the parser says.
        problem: String,
    },
    /// A template far longer than any that is published.
    #[error("the chat template has {bytes} bytes, at most {limit} are compiled; give a shorter one")]
    TemplateTooLong {
        /// Length of the source.
        bytes: usize,
        /// The allowance.
        limit: usize,
    },
    /// The template was stopped or failed while rendering these messages.
    #[error("chat template, line {line}: {problem}; change the messages or the template")]
    TemplateRender {
        /// Line of the template, from 1.
        line: usize,
        /// What the engine says.
        problem: String,
    },
    /// The template itself refuses the conversation (`raise_exception`): the caller's messages are at fault.
    #[error("the chat template refuses these messages (line {line}): {message}")]
    TemplateRefused {
        /// Line of the template, from 1.
        line: usize,
        /// The template's own words.
        message: String,
    },
    /// The template did more work than any honest one needs.
    #[error("chat template, line {line}: stopped after {fuel} steps; it loops without end or multiplies text")]
    TemplateFuel {
        /// Line of the template, from 1.
        line: usize,
        /// The allowance.
        fuel: u64,
    },
    /// A message that is not an object.
    #[error("messages[{index}] is {found}, wanted an object with `role` and `content`")]
    BadMessage {
        /// Index of the message.
        index: usize,
        /// The kind of JSON value found.
        found: &'static str,
    },
    /// JSON nested deeper than the engine walks.
    #[error("{place} is nested deeper than {limit} levels; flatten it")]
    TooDeep {
        /// Which argument.
        place: String,
        /// The depth that is allowed.
        limit: usize,
    },
    /// An extra variable that would replace one of the engine's own.
    #[error("template variable {} is set by the engine; leave it out of the extra template arguments", shown(name))]
    ReservedVariable {
        /// Its name.
        name: String,
    },
    /// A stop string that would end every text before it begins.
    #[error("stop string {} of {count} is empty; give at least one character", index + 1)]
    EmptyStopString {
        /// Index of the string.
        index: usize,
        /// How many there are.
        count: usize,
    },
}
