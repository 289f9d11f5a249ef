//! The contract: what a track's fixture declares (benchd.md 5, track-contract.md 3 and 12).
//!
//! [`Contract::parse`] reads every key that has a rule and ignores the others. A group of keys stands together or not at
//! all; a run that needs an undeclared group is refused by that group's name when it asks. Defaults are those of
//! benchd.md 3 and stand at the fields; keys that the house added are described in docs/benchmark.md.

mod error;
mod limits;
mod read;
mod track;

use std::collections::BTreeMap;

use bench_pins::Digest;
use bench_protocol::SpecMode;

pub use self::error::ContractError;
pub use self::limits::{Bands, Calibration, Limits, MemoryPlan, Range};
pub use self::track::{Platform, TrackId};
use crate::fidelity::ReplayRule;
use crate::golden::{Demands, ModelShape};
use crate::mode::Mode;
use crate::pin::{ContentPin, Provenance};
use crate::refusal::Refusal;

/// A fixture that passed every check.
#[derive(Debug, Clone, PartialEq)]
pub struct Contract {
    /// Of its bytes; sealed.
    pub pin: ContentPin,
    /// Which track.
    pub track_id: TrackId,
    /// `official_pairs`, at least 1.
    pub official_pairs: u32,
    /// Gains below these refuse a run.
    pub floors: Axes,
    /// Exponents of the composite.
    pub weights: Axes,
    /// `decode_gain_ceiling`.
    pub decode_gain_ceiling: Option<f64>,
    /// `official_pair_combine`.
    pub combine: PairCombine,
    /// `decode_figure`.
    pub decode_figure: DecodeFigure,
    /// How a timed stream is judged.
    pub timed_tokens: ReplayRule,
    /// Least and most of everything measured around a run.
    pub limits: Limits,
    /// The goldens a timed run may use.
    pub pool: Vec<PoolEntry>,
    /// `baseline_reference_commit`.
    pub baseline: Option<BaselineCommit>,
    /// `serve_configuration`.
    pub serve: Serve,
    /// `target`: the pinned files and where they are published.
    pub target: Option<Target>,
    armed: Option<bool>,
    allowed_modes: Vec<SpecMode>,
    live_golden: Option<usize>,
    hidden_golden: Option<ContentPin>,
    oracles: BTreeMap<u32, PoolEntry>,
    permitted_depths: Vec<u32>,
    scored: Scored,
    bands: Option<Bands>,
    window: Option<Window>,
    shape: Option<ModelShape>,
}

/// One figure of the decode phase and one of the prefill phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axes {
    /// Decode.
    pub decode: f64,
    /// Prefill.
    pub prefill: f64,
}

/// How pairs become one score (benchd.md 9.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PairCombine {
    /// Times are summed over the pairs, then divided: the track's documented rule.
    #[default]
    RatioOfSums,
    /// The lower median of the pairs' composites.
    LowerMedian,
    /// The mean of the pairs' composites.
    Mean,
}

/// Which window `decode_seconds_per_token` is of (engine-protocol-v1.md 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecodeFigure {
    /// The decode run alone.
    #[default]
    DecodeWindow,
    /// The seed prefill too.
    WholeWindow,
}

/// What a score is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// A serial control leg of the same run.
    LiveControlLeg,
    /// A pair of figures in the fixture; other tracks.
    StoredPair,
}

/// What a fixture says of [`Regime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scored {
    Undeclared,
    /// No control leg, and no stored pair yet.
    PendingCapture,
    Against(Regime),
}

/// Steps of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Teacher-forced steps of a case.
    pub correctness_steps: u32,
    /// Timed steps of `official` and `local-iterate`.
    pub decode_steps: u32,
    /// Timed steps of `local-submit`.
    pub local_submit_decode_steps: u32,
    /// Untimed prefills before the timed one.
    pub prefill_warmup_runs: u32,
    /// Timed prefills.
    pub prefill_timed_runs: u32,
}

/// A pinned golden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// Where it is kept; the last segment is its local name.
    pub path: String,
    /// Of its bytes.
    pub sha256: Digest,
    /// How many they are, if pinned.
    pub bytes: Option<u64>,
}

impl PoolEntry {
    /// Its local name.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether a golden's bytes are these.
    pub fn matches(&self, pin: ContentPin) -> bool {
        self.sha256 == pin.sha256 && self.bytes.is_none_or(|bytes| bytes == pin.bytes)
    }
}

/// The commit that the control leg's tree is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaselineCommit {
    /// 40 digits.
    Commit(String),
    /// `head`: the clean commit that is checked out; the embedded track only.
    Head,
    /// `PENDING-ORGANIZER`: nobody has chosen one yet; preflight refuses.
    PendingOrganizer,
}

/// How the engine is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Serve {
    /// `engine`.
    pub engine: Option<String>,
    /// `weight_owner`.
    pub weight_owner: Option<String>,
    /// `toolchain`.
    pub toolchain: Option<Toolchain>,
    /// `engine_env`: exported before the engine is started.
    pub engine_env: BTreeMap<String, String>,
    /// `ctx_tokens`.
    pub ctx_tokens: Option<u32>,
}

/// What a ranked build is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Exactly.
    pub nvcc_version: String,
    /// Or newer, segment by segment.
    pub driver_min: String,
    /// `sm_121`.
    pub cuda_arch: String,
}

/// The model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Repository and revision.
    pub provenance: Provenance,
    /// Folder in the repository.
    pub variant: Option<String>,
    /// Shards and head.
    pub files: Vec<TargetFile>,
    /// `quantization.ple_table`: type of the n-gram table.
    pub ple_table: Option<String>,
    /// `eos_token_ids`.
    pub stop_ids: Vec<u32>,
    /// `max_position_embeddings`.
    pub context_tokens: Option<u32>,
}

/// A pinned file of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetFile {
    /// Inside the snapshot.
    pub path: String,
    /// Length and digest.
    pub pin: ContentPin,
}

/// A way of decoding that the track runs, and the golden it is timed against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth<'a> {
    /// Drafts a round; 0 is serial.
    pub num_speculative_tokens: u32,
    /// What the resident is started with: one more.
    pub draft_tokens: u32,
    /// Its oracle.
    pub oracle: &'a PoolEntry,
}

impl Contract {
    /// Refuses another track's contract.
    pub fn expect_track(&self, track: &TrackId) -> Result<(), ContractError> {
        match self.track_id == *track {
            true => Ok(()),
            false => Err(ContractError::OtherTrack { found: self.track_id.to_string(), wanted: track.to_string() }),
        }
    }

    /// Refuses to author goldens of a track that is scored by them (benchd.md 4.3).
    pub fn expect_unarmed(&self) -> Result<(), ContractError> {
        match self.armed {
            Some(true) => Err(ContractError::Armed { refusal: Refusal::OfficialScoringArmed }),
            Some(false) | None => Ok(()),
        }
    }

    /// The arm gate of official runs: before any spawn.
    pub fn expect_armed(&self) -> Result<(), ContractError> {
        match self.armed {
            Some(true) => Ok(()),
            Some(false) => Err(ContractError::Disarmed),
            None => Err(ContractError::ArmUndeclared),
        }
    }

    fn undeclared(&self, refusal: Refusal, keys: &[&str]) -> ContractError {
        ContractError::Undeclared { refusal, track_id: self.track_id.to_string(), keys: keys.join(", ") }
    }

    /// What the score is measured against.
    pub fn regime(&self) -> Result<Regime, ContractError> {
        match self.scored {
            Scored::Against(regime) => Ok(regime),
            Scored::Undeclared => Err(self.undeclared(Refusal::ScoredRegimePendingDeclaration, &read::REGIME)),
            Scored::PendingCapture => Err(self.undeclared(Refusal::OfficialBaselinePendingCapture, &read::STORED_PAIR)),
        }
    }

    /// Acceptance bands around the control leg.
    pub fn bands(&self) -> Result<Bands, ContractError> {
        self.bands.ok_or_else(|| self.undeclared(Refusal::AcceptanceBandsUndeclaredForTrack, &read::BANDS))
    }

    /// Steps of a run.
    pub fn window(&self) -> Result<Window, ContractError> {
        self.window.ok_or_else(|| self.undeclared(Refusal::WindowShapeUndeclaredForTrack, &read::WINDOW))
    }

    /// The model as far as goldens know it.
    pub fn shape(&self) -> Result<&ModelShape, ContractError> {
        self.shape.as_ref().ok_or_else(|| self.undeclared(Refusal::ModelIdentityUndeclaredForTrack, &read::SHAPE))
    }

    /// What a run demands of its golden: the track's shape and steps, the model that `target` names. The pin is the caller's.
    pub fn demands(&self, mode: Mode) -> Result<Demands<'_>, ContractError> {
        let window = self.window()?;
        Ok(Demands {
            expected_tokens: mode.expected_tokens(&window),
            provenance: self.target.as_ref().map(|target| &target.provenance),
            ..Demands::official(self.shape()?)
        })
    }

    /// Refuses a way of decoding that the track does not run.
    pub fn expect_mode(&self, mode: SpecMode) -> Result<(), ContractError> {
        if self.allowed_modes.contains(&mode) {
            return Ok(());
        }
        let allowed = self.allowed_modes.iter().map(|mode| mode.name()).collect::<Vec<_>>().join(", ");
        Err(ContractError::Mode { found: mode.name(), allowed })
    }

    /// Refuses a run whose goldens do not share out the pairs.
    pub fn expect_goldens(&self, goldens: usize) -> Result<(), ContractError> {
        match usize::try_from(self.official_pairs).is_ok_and(|pairs| goldens > 0 && pairs.is_multiple_of(goldens)) {
            true => Ok(()),
            false => Err(ContractError::Pairs { pairs: self.official_pairs, goldens }),
        }
    }

    /// `mtp_head.permitted_draft_depths`; empty when the fixture has none.
    pub fn permitted_depths(&self) -> &[u32] {
        &self.permitted_depths
    }

    /// The golden that is scored, if the fixture names one.
    pub fn live_golden(&self) -> Option<&PoolEntry> {
        self.live_golden.and_then(|index| self.pool.get(index))
    }

    /// Pin of the golden that is not published.
    pub fn hidden_golden(&self) -> Option<ContentPin> {
        self.hidden_golden
    }

    /// The entry that a golden's bytes are: exactly one of the pool, or a depth's oracle.
    pub fn timed_golden(&self, pin: ContentPin) -> Result<&PoolEntry, ContractError> {
        let of_pool: Vec<&PoolEntry> = self.pool.iter().filter(|entry| entry.matches(pin)).collect();
        let oracle = || self.oracles.values().find(|entry| entry.matches(pin));
        match of_pool[..] {
            [entry] => Ok(entry),
            [] => oracle().ok_or(ContractError::NotInPool { pin, found: 0 }),
            _ => Err(ContractError::NotInPool { pin, found: of_pool.len() }),
        }
    }

    /// A depth of the track and its oracle; 0 is serial, with the live golden.
    pub fn depth(&self, depth: u32) -> Result<Depth<'_>, ContractError> {
        let key = || if depth == 0 { "live_golden".into() } else { format!("mtp{depth}") };
        self.expect_mode(if depth == 0 { SpecMode::Serial } else { SpecMode::Mtp })?;
        if depth > 0 && !self.permitted_depths.contains(&depth) {
            return Err(ContractError::Depth { depth, permitted: crate::declaration::listed(&self.permitted_depths) });
        }
        let oracle = if depth == 0 { self.live_golden() } else { self.oracles.get(&depth) };
        let oracle = oracle.ok_or_else(|| ContractError::NoOracle { key: key() })?;
        let draft_tokens = depth.checked_add(1).ok_or_else(|| ContractError::NoOracle { key: key() })?;
        Ok(Depth { num_speculative_tokens: depth, draft_tokens, oracle })
    }
}

#[cfg(test)]
mod tests;
