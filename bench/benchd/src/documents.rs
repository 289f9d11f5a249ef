//! Files as the rules read them: the failure of each names its path.

use std::fs;
use std::path::{Path, PathBuf};

use bench_core::ContentPin;
use bench_core::contract::{Contract, TrackId};

use crate::args::{PinArgs, TrackArgs};
use crate::failure::Failure;

/// Where fixtures are kept, below the root of the repository.
const FIXTURES: &str = "fixtures";

/// A file's bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::Read { path: path.to_owned(), source })
}

/// A fixture.
pub(crate) fn contract(path: &Path) -> Result<Contract, Failure> {
    Contract::parse(&read(path)?).map_err(|source| Failure::Contract { path: path.to_owned(), source })
}

impl TrackArgs {
    /// The fixture of the track that was named, by its id, its file, or both.
    pub(crate) fn contract(&self) -> Result<Contract, Failure> {
        let track = self.track.as_deref().map(TrackId::parse).transpose().map_err(Failure::Track)?;
        let (path, contract) = match (&self.contract, &track) {
            (Some(path), _) => (path.clone(), contract(path)?),
            (None, Some(track)) => fixture_of(track)?,
            (None, None) => return Err(Failure::NoTrack),
        };
        if let Some(track) = &track {
            contract.expect_track(track).map_err(|source| Failure::Contract { path, source })?;
        }
        Ok(contract)
    }
}

/// The fixture below [`FIXTURES`] of a track. One that cannot be read is of no track.
fn fixture_of(track: &TrackId) -> Result<(PathBuf, Contract), Failure> {
    let undeclared = || Failure::UndeclaredTrack { track: track.to_string() };
    let entries = fs::read_dir(FIXTURES).map_err(|_| undeclared())?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let fixture = |path: PathBuf| {
        let contract = contract(&path).ok().filter(|contract| contract.track_id == *track)?;
        Some((path, contract))
    };
    paths.into_iter().find_map(fixture).ok_or_else(undeclared)
}

impl PinArgs {
    /// The pin, if one was given; clap sees to it that it is whole.
    pub(crate) fn pin(&self) -> Option<ContentPin> {
        Some(ContentPin { bytes: self.golden_bytes?, sha256: self.golden_sha256? })
    }
}
