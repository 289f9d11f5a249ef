//! Makes a folder hold pinned files, from wherever they are published (track-contract.md 5).
//!
//! [`fetch`] is idempotent and resumable: what is there with the right size is kept, what is missing is downloaded from where
//! the last try stopped, and nothing has its final name before its size and SHA-256 are the pinned ones. Files that were not
//! downloaded just now are hashed once; a marker then vouches for them while size, time and inode stay what they are.
//! [`verify_staged`] is for a folder that belongs to somebody else: it writes nothing, trusts no marker, and hashes every time.
//!
//! ```no_run
//! use std::path::Path;
//! use std::ops::ControlFlow;
//! use bench_pins::{Hub, Item, Manifest, Place, Plan, Source, fetch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manifest = Manifest::read(Path::new("manifest.json"))?;
//! let hub = Hub::from_variables(|name| std::env::var_os(name));
//! let (repository, revision) = ("owner/name", "0123456789abcdef0123456789abcdef01234567");
//! let source = Source::hub(&hub, repository, revision)?;
//! let place = Place::hub_cache(&hub.cache, repository, revision)?;
//! let items: Vec<Item> = manifest.pins().iter().cloned().map(Item::same_path).collect();
//! let fetched = fetch(&Plan::new(&items, &source, &place), &|_| ControlFlow::Continue(()))?;
//! println!("{} files downloaded into {}", fetched.downloaded, fetched.folder.display());
//! # Ok(()) }
//! ```

mod download;
mod error;
mod lock;
mod marker;
mod place;
mod source;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::error::FetchError;
pub use self::place::Place;
pub use self::source::{Bucket, Hub, Source};
use crate::digest::Digest;
use crate::hash::{Hashed, sha256_each};
use crate::manifest::{Manifest, Pin};

/// A pinned file and where it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What it must be, with its size, and its path in the folder.
    pub pin: Pin,
    /// Its path below the [`Source`], components separated by `/`.
    pub remote: String,
}

impl Item {
    /// Published under the path that it has in the folder.
    pub fn same_path(pin: Pin) -> Self {
        Self { remote: pin.path.clone(), pin }
    }
}

/// What is happening. From any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A file is about to be downloaded; `have` of its bytes are there from an earlier try.
    Downloading {
        /// Which.
        path: &'a str,
        /// From an earlier try.
        have: u64,
        /// All of it.
        bytes: u64,
    },
    /// So many more bytes have come.
    Received(u64),
    /// The connection failed and is tried again after the plan's delay.
    Retrying {
        /// Which file.
        path: &'a str,
        /// Tries left.
        left: u32,
        /// What failed.
        why: &'a str,
    },
    /// A file is there whole, and is the pinned one.
    Downloaded {
        /// Which.
        path: &'a str,
    },
    /// So many bytes of files are about to be hashed.
    Hashing(u64),
    /// So many more bytes were hashed.
    Hashed(u64),
}

/// Told what happens; `Break` ends the work, which a later call takes up again.
pub type OnEvent<'a> = dyn Fn(Event<'_>) -> ControlFlow<()> + Sync + 'a;

/// What is to be there, and how it is got.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The files, each path once.
    pub items: &'a [Item],
    /// Where they are published.
    pub source: &'a Source,
    /// Where they are to be.
    pub place: &'a Place,
    /// Files hashed at once.
    pub jobs: usize,
    /// How often a connection that brought nothing is tried again; one that brought something costs none.
    pub retries: u32,
    /// Before each.
    pub delay: Duration,
    /// Whether files that are there are hashed; if not, their sizes are all that is known of them and no marker is used.
    pub hashes: bool,
}

impl<'a> Plan<'a> {
    /// With the contract's figures: 8 files at once, 5 retries, 5 s apart.
    pub fn new(items: &'a [Item], source: &'a Source, place: &'a Place) -> Self {
        Self { items, source, place, jobs: 8, retries: 5, delay: Duration::from_secs(5), hashes: true }
    }
}

/// How a folder came to hold its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Where they are.
    pub folder: PathBuf,
    /// How many were downloaded.
    pub downloaded: usize,
    /// How many were there and were hashed.
    pub hashed: usize,
    /// How many a marker vouched for.
    pub trusted: usize,
}

/// Makes the place hold the items. Errors leave what is whole where it is; only bytes that cannot be right are removed.
pub fn fetch(plan: &Plan<'_>, on: &OnEvent<'_>) -> Result<Fetched, FetchError> {
    expect_sizes(plan.items)?;
    let folder = plan.place.folder();
    plan.place.create()?;
    let _lock = lock::Lock::take(&plan.place.lock())?;
    let mut downloaded = vec![false; plan.items.len()];
    for (item, downloaded) in plan.items.iter().zip(&mut downloaded) {
        let bytes = size_of(&item.pin)?;
        match plan.place.length(&item.pin)? {
            Some(found) if found == bytes => continue,
            Some(_) => plan.place.remove(&item.pin)?,
            None => {}
        }
        *downloaded = download::file(plan, item, bytes, on)?;
    }
    expect_lengths(plan.items, &folder)?;
    let marker = plan.place.marker(plan.items);
    let trusted = plan.hashes && marker::holds(&marker, plan.items, &folder);
    let to_hash: Vec<&Item> = match plan.hashes && !trusted {
        true => plan.items.iter().zip(&downloaded).filter(|(_, new)| !**new).map(|(item, _)| item).collect(),
        false => Vec::new(),
    };
    expect_hashes(&to_hash, &folder, plan.jobs, on)?;
    if plan.hashes && !trusted {
        marker::write(&marker, plan.items, &folder)?;
    }
    let downloaded = downloaded.into_iter().filter(|new| *new).count();
    let trusted = if trusted { plan.items.len() } else { 0 };
    Ok(Fetched { folder, downloaded, hashed: to_hash.len(), trusted })
}

/// Whether a folder holds the items, looked at anew: nothing is written, removed or trusted. With `hashes` off only sizes are
/// compared.
pub fn verify_staged(
    folder: &Path,
    items: &[Item],
    jobs: usize,
    hashes: bool,
    on: &OnEvent<'_>,
) -> Result<Fetched, FetchError> {
    expect_sizes(items)?;
    if !folder.is_dir() {
        return Err(FetchError::NoStagedFolder { folder: folder.to_owned() });
    }
    expect_lengths(items, folder)?;
    let to_hash: Vec<&Item> = if hashes { items.iter().collect() } else { Vec::new() };
    expect_hashes(&to_hash, folder, jobs, on)?;
    Ok(Fetched { folder: folder.to_owned(), downloaded: 0, hashed: to_hash.len(), trusted: 0 })
}

/// The items are a manifest, and each has a size.
fn expect_sizes(items: &[Item]) -> Result<(), FetchError> {
    Manifest::new("the list of files", items.iter().map(|item| item.pin.clone()).collect())?;
    items.iter().try_for_each(|item| size_of(&item.pin).map(drop))
}

fn size_of(pin: &Pin) -> Result<u64, FetchError> {
    pin.bytes.filter(|bytes| *bytes > 0).ok_or_else(|| FetchError::NoSize { path: pin.path.clone() })
}

fn expect_lengths(items: &[Item], folder: &Path) -> Result<(), FetchError> {
    for Item { pin, .. } in items {
        let path = || pin.path.clone();
        let (pinned, full) = (size_of(pin)?, folder.join(&pin.path));
        let found = match fs::metadata(&full) {
            Ok(found) if found.is_file() => found.len(),
            Ok(_) => return Err(FetchError::NotAFile { path: full }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FetchError::Missing { path: path() }),
            Err(source) => return Err(FetchError::Disk { path: full, source }),
        };
        if found != pinned {
            return Err(FetchError::StagedSize { path: path(), staged: found, pinned });
        }
    }
    Ok(())
}

fn expect_hashes(items: &[&Item], folder: &Path, jobs: usize, on: &OnEvent<'_>) -> Result<(), FetchError> {
    if items.is_empty() {
        return Ok(());
    }
    let paths: Vec<PathBuf> = items.iter().map(|item| folder.join(&item.pin.path)).collect();
    let sizes = items.iter().map(|item| item.pin.bytes.unwrap_or_default());
    let files: Vec<(&Path, u64)> = paths.iter().map(PathBuf::as_path).zip(sizes).collect();
    let all = files.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    told(on, Event::Hashing(all))?;
    let results = sha256_each(&files, jobs, &|bytes| on(Event::Hashed(bytes))).ok_or(FetchError::Stopped)?;
    // One verdict for each file that was counted (track-contract.md 5, step 7).
    if results.len() != items.len() {
        return Err(FetchError::Stopped);
    }
    for ((item, full), result) in items.iter().zip(paths).zip(results) {
        let Hashed { sha256, .. } = result.map_err(|source| FetchError::Disk { path: full, source })?;
        expect_hash(&item.pin, sha256)?;
    }
    Ok(())
}

fn expect_hash(pin: &Pin, staged: Digest) -> Result<(), FetchError> {
    match staged == pin.sha256 {
        true => Ok(()),
        false => Err(FetchError::StagedHash { path: pin.path.clone(), staged, pinned: pin.sha256 }),
    }
}

fn told(on: &OnEvent<'_>, event: Event<'_>) -> Result<(), FetchError> {
    match on(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(FetchError::Stopped),
    }
}
