//! One run on a device at a time (track-contract.md 9).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, ftruncate};

use super::Clock;
use crate::interrupt::Interrupted;

const POLL: Duration = Duration::from_millis(200);

/// A lock that is held until it is dropped. The file stays: a lock on a file that was taken away locks nobody out.
#[derive(Debug)]
pub struct DeviceLock {
    file: File,
}

/// The device is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It is somebody else's.
    #[error("DEVICE-LOCK-HELD: {path} was held for {waited_s} s, by {holder}; wait for that run to end")]
    Held {
        /// The lock.
        path: PathBuf,
        /// So long.
        waited_s: u64,
        /// As the file says.
        holder: String,
    },
    /// The file cannot be locked.
    #[error("{path}: cannot be locked; check the folder and its permissions")]
    Io {
        /// The lock.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody wants the run to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl LockError {
    /// The name it is refused by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Held { .. } => "DEVICE-LOCK-HELD",
            Self::Io { .. } => "Io",
            Self::Interrupted(_) => "Interrupted",
        }
    }
}

impl DeviceLock {
    /// Waits for the lock, up to `patience`. It is never stolen: the kernel releases it when its holder ends.
    pub fn acquire(path: &Path, patience: Duration, clock: &mut dyn Clock) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: path.to_owned(), source };
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(failed)?;
        let mut waited = Duration::ZERO;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
            if waited >= patience {
                return Err(LockError::Held {
                    path: path.to_owned(),
                    waited_s: waited.as_secs(),
                    holder: holder(&mut file),
                });
            }
            clock.sleep(POLL)?;
            waited += POLL;
        }
        ftruncate(&file, 0).map_err(|errno| failed(errno.into()))?;
        writeln!(file, "pid {}", std::process::id()).map_err(failed)?;
        Ok(Self { file })
    }
}

impl Drop for DeviceLock {
    fn drop(&mut self) {
        // A text that stays is read by nobody: it counts only while the lock is held.
        let _ = ftruncate(&self.file, 0);
    }
}

/// What the file says, in one short line.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // A text that cannot be read is none.
    let _ = file.take(80).read_to_string(&mut text);
    text.lines().next().map_or_else(|| "an unknown process".into(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;

    #[test]
    fn a_lock_is_waited_for_and_never_stolen_and_says_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device.lock");
        let mut clock = Interrupt::new().unwrap();
        let held = DeviceLock::acquire(&path, Duration::ZERO, &mut clock).unwrap();
        let error = DeviceLock::acquire(&path, Duration::from_millis(300), &mut clock).unwrap_err();
        assert_eq!(error.name(), "DEVICE-LOCK-HELD");
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
        drop(held);
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        DeviceLock::acquire(&path, Duration::ZERO, &mut clock).unwrap();
    }
}
