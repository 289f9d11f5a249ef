/// Why a line is no message, or a message no line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not one JSON object of the envelope. The text is serde's: it names the key and the column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The first line of a worker is not the hello of this protocol.
    #[error("the engine's first line is no hello of protocol version 1: {0}")]
    Hello(#[from] HelloDefect),
}

/// What is wrong with a hello (engine-protocol-v1.md 7, "Connect").
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloDefect {
    /// Another id than 0.
    #[error("its `id` is {found}, not 0; nothing may be written to stdout before hello")]
    Id {
        /// The id found.
        found: i64,
    },
    /// `ok` is false.
    #[error("the engine reports: {error}")]
    NotOk {
        /// The engine's text.
        error: String,
    },
    /// No nonce, or an empty one.
    #[error("its `nonce` is missing or empty; a worker makes one up when it starts")]
    Nonce,
    /// Another version, or none.
    #[error("its `protocol_version` is {}, not 1", found.map_or("missing".to_owned(), |found| found.to_string()))]
    Version {
        /// The version found.
        found: Option<u32>,
    },
}
