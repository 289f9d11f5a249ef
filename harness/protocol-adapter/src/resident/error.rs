use std::io;
use std::path::PathBuf;

use crate::target::TargetError;

use super::wire::SOCKET_PATH_BYTES;

/// Why a resident does not start, or ends before it is told to.
#[derive(Debug, thiserror::Error)]
pub enum ResidentError {
    /// A flag that there is no doing without.
    #[error("--{flag} is missing; see `cuda-engine resident --help`")]
    Missing {
        /// Which.
        flag: &'static str,
    },
    /// A path that no socket can have.
    #[error("--socket {}: {found} bytes, the path of a socket has at most {SOCKET_PATH_BYTES}; give a shorter one", path.display())]
    SocketTooLong {
        /// The path.
        path: PathBuf,
        /// Its bytes.
        found: usize,
    },
    /// A number that is none, or out of bounds.
    #[error("--{flag} {found:?}: expected {wanted}")]
    Number {
        /// Whose value.
        flag: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        wanted: &'static str,
    },
    /// The model does not load.
    #[error(transparent)]
    Load(#[from] TargetError),
    /// A model, and no engine to run it.
    #[cfg(not(feature = "engine"))]
    #[error("--model {}: this build has no engine; build with `--features engine`", model.display())]
    NoEngine {
        /// The model.
        model: PathBuf,
    },
    /// The system hands out no signals.
    #[error("signals cannot be waited for")]
    Signals(#[source] io::Error),
    /// No socket at the path.
    #[error("--socket {}: cannot listen there; give a path in a folder that can be written", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The ready file cannot be written.
    #[error("--ready-file {}: cannot be written; check the folder and its permissions", path.display())]
    ReadyFile {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system does not let wait for clients.
    #[error("--socket {}: clients cannot be waited for", path.display())]
    Accept {
        /// The path of the socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The engine failed under a client.
    #[error("the engine failed and is past use; start a fresh resident")]
    EngineFailed,
}

impl ResidentError {
    /// Whether the command line is at fault: exit code 2, else 1 (engine-protocol-v1.md 10).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::SocketTooLong { .. } | Self::Number { .. })
    }

    /// The error and its causes on one line, control characters escaped.
    pub fn one_line(&self) -> String {
        crate::target::one_line(self)
    }
}
