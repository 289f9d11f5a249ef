//! Whether a folder holds what a manifest lists.

use std::io;
use std::path::Path;

use crate::digest::Digest;
use crate::error::Error;
use crate::hash::{OnRead, sha256_each};
use crate::manifest::Manifest;
use crate::place::{Place, Root};

/// How one listed file was found.
#[derive(Debug)]
pub enum State {
    /// As listed.
    Same,
    /// Not there.
    Missing,
    /// Of another size; then it is not read.
    OtherSize {
        /// Its size.
        found: u64,
        /// The listed one.
        listed: u64,
    },
    /// Of the listed size, with other contents.
    OtherHash {
        /// Its hash.
        found: Digest,
        /// The listed one.
        listed: Digest,
    },
    /// There, and not to be read.
    Unreadable(io::Error),
}

impl State {
    /// As listed.
    pub fn is_same(&self) -> bool {
        matches!(self, State::Same)
    }
}

/// Every listed file looked up, none read: cheap, and enough to refuse what no manifest may list.
#[derive(Debug)]
pub struct Survey<'a> {
    manifest: &'a Manifest,
    found: Vec<Found>,
}

#[derive(Debug)]
enum Found {
    ToRead { real: std::path::PathBuf, bytes: u64 },
    Settled(State),
}

impl<'a> Survey<'a> {
    /// Looks the files up. Refuses a manifest with a directory, pipe, socket or device in it, or a link that leads out.
    pub fn of(manifest: &'a Manifest, folder: &Path) -> Result<Self, Error> {
        let root = Root::new(folder)?;
        let look = |pin: &crate::Pin| {
            Ok(match (root.find(&pin.path)?, pin.bytes) {
                (Place::Missing, _) => Found::Settled(State::Missing),
                (Place::Unreadable(error), _) => Found::Settled(State::Unreadable(error)),
                (Place::File { bytes: found, .. }, Some(listed)) if found != listed => {
                    Found::Settled(State::OtherSize { found, listed })
                }
                (Place::File { real, bytes }, _) => Found::ToRead { real, bytes },
            })
        };
        let found = manifest.pins().iter().map(look).collect::<Result<_, Error>>()?;
        Ok(Self { manifest, found })
    }

    /// Bytes that [`check`](Self::check) will read.
    pub fn bytes(&self) -> u64 {
        let bytes = self.found.iter().map(|found| match found {
            Found::ToRead { bytes, .. } => *bytes,
            Found::Settled(_) => 0,
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Reads and compares, up to `jobs` files at a time. One state for each pin, in their order; `None`: `on_read` ended it.
    pub fn check(self, jobs: usize, on_read: &OnRead<'_>) -> Option<Vec<State>> {
        let to_read = self.found.iter().filter_map(|found| match found {
            Found::ToRead { real, bytes } => Some((real.as_path(), *bytes)),
            Found::Settled(_) => None,
        });
        let mut read = sha256_each(&to_read.collect::<Vec<_>>(), jobs, on_read)?.into_iter();
        let states = self.manifest.pins().iter().zip(self.found).filter_map(|(pin, found)| match found {
            Found::Settled(state) => Some(state),
            // It may have changed since it was looked up: what was read counts.
            Found::ToRead { .. } => read.next().map(|result| match result {
                Err(error) => State::Unreadable(error),
                Ok(hashed) => match pin.bytes {
                    Some(listed) if listed != hashed.bytes => State::OtherSize { found: hashed.bytes, listed },
                    _ if pin.sha256 != hashed.sha256 => State::OtherHash { found: hashed.sha256, listed: pin.sha256 },
                    _ => State::Same,
                },
            }),
        });
        Some(states.collect())
    }
}
