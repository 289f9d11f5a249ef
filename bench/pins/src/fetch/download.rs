//! One file: from where the last try stopped to its end, then both of its pins.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use super::source::{Refusal, told as shown};
use super::{Event, FetchError, Item, OnEvent, Plan, told};
use crate::hash::sha256;

/// Large enough that calls cost nothing.
const CHUNK: usize = 256 << 10;
/// How often somebody who waits is asked whether to go on.
const ASKED: Duration = Duration::from_millis(100);

/// Why a try brought no whole file.
enum Broken {
    /// Worth another.
    Transport(String),
    /// Not worth one.
    For(FetchError),
}

impl From<FetchError> for Broken {
    fn from(error: FetchError) -> Self {
        Self::For(error)
    }
}

/// Downloads a file; `true`, so that it counts. Bytes that cannot be the file's are removed, all others stay.
pub(super) fn file(plan: &Plan<'_>, item: &Item, bytes: u64, on: &OnEvent<'_>) -> Result<bool, FetchError> {
    let (part, whole) = plan.place.parts(&item.pin);
    if let Some(folder) = whole.parent() {
        fs::create_dir_all(folder).map_err(disk(folder))?;
    }
    let path = &item.pin.path;
    told(on, Event::Downloading { path, have: length(&part)?.min(bytes), bytes })?;
    let (mut left, mut furthest) = (plan.retries, length(&part)?);
    loop {
        match try_once(plan, item, &part, bytes, on) {
            Ok(()) => break,
            Err(Broken::For(error)) => {
                if matches!(error, FetchError::DownloadedSize { .. }) {
                    discard(&part)?;
                }
                return Err(error);
            }
            Err(Broken::Transport(why)) => {
                let have = length(&part)?;
                // Beyond every earlier try: a source that always breaks off at one place is given up.
                if have > furthest {
                    (left, furthest) = (plan.retries, have);
                } else if left == 0 {
                    return Err(FetchError::Transport { path: path.clone(), have, bytes, why });
                } else {
                    left -= 1;
                }
                told(on, Event::Retrying { path, left, why: &why })?;
                wait(plan.delay, on)?;
            }
        }
    }
    let found = sha256(&part, &|_| on(Event::Received(0))).map_err(disk(&part))?.ok_or(FetchError::Stopped)?;
    if found.bytes != bytes {
        discard(&part)?;
        return Err(FetchError::DownloadedSize { path: path.clone(), found: found.bytes, pinned: bytes });
    }
    if found.sha256 != item.pin.sha256 {
        discard(&part)?;
        let (found, pinned) = (found.sha256, item.pin.sha256);
        return Err(FetchError::DownloadedHash { path: path.clone(), found, pinned });
    }
    plan.place.settle(&item.pin)?;
    told(on, Event::Downloaded { path })?;
    Ok(true)
}

/// Brings the part to its end, if the connection lasts.
fn try_once(plan: &Plan<'_>, item: &Item, part: &Path, bytes: u64, on: &OnEvent<'_>) -> Result<(), Broken> {
    let path = || item.pin.path.clone();
    let mut have = length(part)?;
    if have > bytes {
        discard(part)?;
        have = 0;
    }
    if have == bytes {
        return Ok(());
    }
    let opened = plan.source.open(&item.remote, have).map_err(|refusal| match refusal {
        Refusal::Transport(why) => Broken::Transport(why),
        Refusal::BadPart(why) => match discard(part) {
            Ok(()) => Broken::Transport(why),
            Err(error) => Broken::For(error),
        },
        Refusal::Access(status) => FetchError::Access { path: path(), status }.into(),
        Refusal::Final(why) => FetchError::Source { path: path(), why }.into(),
    })?;
    let too_long = |found| Broken::For(FetchError::DownloadedSize { path: path(), found, pinned: bytes });
    if let Some(total) = opened.total.filter(|total| *total != bytes) {
        return Err(too_long(total));
    }
    // The whole file, though a part was asked for.
    if opened.from < have {
        discard(part)?;
        have = 0;
    }
    let mut reader = opened.reader;
    let mut file = OpenOptions::new().create(true).append(true).open(part).map_err(disk(part))?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Broken::Transport(shown(&error))),
        };
        have += read as u64;
        if have > bytes {
            return Err(too_long(have));
        }
        file.write_all(chunk.get(..read).unwrap_or_default()).map_err(disk(part))?;
        told(on, Event::Received(read as u64))?;
    }
    if have < bytes {
        return Err(Broken::Transport("the source ended early".into()));
    }
    synced(&file, part)
}

/// What has its final name is on the disk.
fn synced(file: &File, part: &Path) -> Result<(), Broken> {
    file.sync_all().map_err(disk(part)).map_err(Broken::For)
}

fn wait(delay: Duration, on: &OnEvent<'_>) -> Result<(), FetchError> {
    let until = Instant::now() + delay;
    while Instant::now() < until {
        if on(Event::Received(0)) == ControlFlow::Break(()) {
            return Err(FetchError::Stopped);
        }
        std::thread::sleep(ASKED.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> FetchError {
    let path = path.to_owned();
    move |source| FetchError::Disk { path, source }
}

fn length(part: &Path) -> Result<u64, FetchError> {
    match fs::metadata(part) {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(source) => Err(FetchError::Disk { path: part.to_owned(), source }),
    }
}

fn discard(part: &Path) -> Result<(), FetchError> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk(part)(error)),
        _ => Ok(()),
    }
}
