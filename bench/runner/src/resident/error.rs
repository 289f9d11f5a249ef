use std::io;
use std::path::PathBuf;

/// Why there is no resident.
#[derive(Debug, thiserror::Error)]
pub enum ResidentError {
    /// The program cannot be started.
    #[error("{program}: cannot be started as a resident; build and stage the engine first")]
    Spawn {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its log cannot be written.
    #[error("{path}: cannot be written; check the folder and its permissions")]
    Log {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ended while it loaded.
    #[error("RESIDENT-DIED: the resident ended before it was ready; its log ends: {log}")]
    Died {
        /// Its last words.
        log: String,
    },
    /// It loads too long.
    #[error("RESIDENT-NOT-READY: the resident was not ready in {seconds} s; its log ends: {log}")]
    NotReady {
        /// So long.
        seconds: f64,
        /// Its last words.
        log: String,
    },
    /// It does not answer.
    #[error("{socket}: no resident says hello")]
    NoHello {
        /// Where.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its answer is none.
    #[error("{socket}: the resident's hello cannot be read: {text}")]
    BadHello {
        /// Where.
        socket: PathBuf,
        /// What is wrong.
        text: String,
    },
    /// Another process than it says.
    #[error("RESIDENT-IMPOSTOR: {socket}: process {pid} listens there and says it is {epoch}")]
    Impostor {
        /// Where.
        socket: PathBuf,
        /// Its own words.
        epoch: u64,
        /// The kernel's.
        pid: u32,
    },
    /// Not even when killed.
    #[error("the resident, process {pid}, does not end")]
    WillNotEnd {
        /// Which.
        pid: u32,
    },
    /// Somebody wants the run to end.
    #[error("interrupted")]
    Interrupted,
}

impl ResidentError {
    /// The name it is refused by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Spawn { .. } => "RESIDENT-NOT-STARTED",
            Self::Log { .. } => "Io",
            Self::Died { .. } => "RESIDENT-DIED",
            Self::NotReady { .. } => "RESIDENT-NOT-READY",
            Self::NoHello { .. } | Self::BadHello { .. } => "RESIDENT-NO-HELLO",
            Self::Impostor { .. } => "RESIDENT-IMPOSTOR",
            Self::WillNotEnd { .. } => "RESIDENT-DOES-NOT-END",
            Self::Interrupted => "Interrupted",
        }
    }
}
