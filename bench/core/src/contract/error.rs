//! Why a fixture is refused, or what it asks for is.

use crate::fields::FieldError;
use crate::pin::ContentPin;
use crate::refusal::Refusal;

/// Every refusal of a contract. The file's name is added by who read it.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// Not JSON, or a key twice.
    #[error("contract is not valid JSON")]
    Json(#[source] serde_json::Error),
    /// JSON, but no object.
    #[error("contract must be a JSON object")]
    NotAnObject,
    /// A key with the wrong thing behind it, with nothing, or alone in its group.
    #[error("contract: {0}")]
    Field(#[from] FieldError),
    /// Two parts of the document that contradict each other.
    #[error("contract: {what}; make the two agree")]
    Contradiction {
        /// Both sides.
        what: String,
    },
    /// A track id of another form.
    #[error("track id {id:?} is not of the form NAME-mlx|cuda|cpu-vN")]
    TrackId {
        /// The id.
        id: String,
    },
    /// The run is of another track.
    #[error("contract: `track_id` is `{found}`, the run's track is `{wanted}`; pass that track's contract")]
    OtherTrack {
        /// Of the contract.
        found: String,
        /// Of the run.
        wanted: String,
    },
    /// The arm gate: the key is not there.
    #[error(
        "contract does not declare official_scoring_enabled: true (the key is absent); a track is armed by its fixture"
    )]
    ArmUndeclared,
    /// The arm gate: the key says no.
    #[error(
        "contract does not declare official_scoring_enabled: true (it says false); official scoring of this track is off"
    )]
    Disarmed,
    /// The arm gate the other way round: goldens are authored while nothing is scored by them.
    #[error("{refusal}: the contract declares official_scoring_enabled: true; author goldens while it is false")]
    Armed {
        /// Its name.
        refusal: Refusal,
    },
    /// A group the run needs is not declared.
    #[error("{refusal}: the contract of `{track_id}` declares none of {keys}")]
    Undeclared {
        /// Its name.
        refusal: Refusal,
        /// Of the contract.
        track_id: String,
        /// What would declare it.
        keys: String,
    },
    /// A way of decoding the track does not run.
    #[error("contract: mode `{found}` is not one of allowed_modes: {allowed}")]
    Mode {
        /// Of the candidate.
        found: &'static str,
        /// Of the track.
        allowed: String,
    },
    /// A depth the track does not permit, or has no oracle for.
    #[error("contract: draft depth {depth} is not one of mtp_head.permitted_draft_depths: {permitted}")]
    Depth {
        /// Of the candidate.
        depth: u32,
        /// Of the track.
        permitted: String,
    },
    /// A permitted depth without a golden.
    #[error("contract: live_golden_speculative has no `{key}`; a declared depth needs its oracle")]
    NoOracle {
        /// `mtp3`.
        key: String,
    },
    /// A golden that is none of the track's.
    #[error(
        "contract: the golden {pin} matches {found} entries of timed_prompt_pool and no depth's oracle; use one the contract pins"
    )]
    NotInPool {
        /// Of the golden's bytes.
        pin: ContentPin,
        /// How many entries match.
        found: usize,
    },
    /// Pairs that cannot be shared out among the goldens.
    #[error("contract: official_pairs {pairs} is not a multiple of the {goldens} goldens of the run")]
    Pairs {
        /// Of the track.
        pairs: u32,
        /// Of the run.
        goldens: usize,
    },
}

impl ContractError {
    /// The refusal's name, if it has one.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Armed { refusal } | Self::Undeclared { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }
}
