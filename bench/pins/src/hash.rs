//! SHA-256 of files as they are read: the one pass over the bytes that tells them apart.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

/// Told how many bytes were read since the last call, from any thread; `Break` ends the reading.
pub type OnRead<'a> = dyn Fn(u64) -> ControlFlow<()> + Sync + 'a;

/// A file that was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed {
    /// Of its contents.
    pub sha256: Digest,
    /// How many there were.
    pub bytes: u64,
}

/// Large enough that calls cost nothing, small enough for the cache.
const CHUNK: usize = 256 << 10;

/// Reads a file to its end. `None`: `on_read` ended it.
pub fn sha256(path: &Path, on_read: &OnRead<'_>) -> io::Result<Option<Hashed>> {
    let mut file = File::open(path)?;
    let mut state = Sha256::new();
    let mut bytes = 0;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => return Ok(Some(Hashed { sha256: Digest(state.finalize().into()), bytes })),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        state.update(&chunk[..read]);
        bytes += read as u64;
        if on_read(read as u64).is_break() {
            return Ok(None);
        }
    }
}

/// Hashes files, up to `jobs` at a time: one file is one chain of blocks, so only several go faster together. Largest first,
/// so that none is left to run alone at the end. `None`: `on_read` ended it.
pub(crate) fn sha256_each(
    files: &[(&Path, u64)],
    jobs: usize,
    on_read: &OnRead<'_>,
) -> Option<Vec<io::Result<Hashed>>> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|&index| Reverse(files[index].1));
    let results: Vec<OnceLock<io::Result<Hashed>>> = files.iter().map(|_| OnceLock::new()).collect();
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed))
            && !ended.load(Ordering::Relaxed)
        {
            match sha256(files[index].0, on_read).transpose() {
                Some(result) => drop(results[index].set(result)),
                None => ended.store(true, Ordering::Relaxed),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(files.len()) {
            // A thread that cannot be had leaves its share to the others.
            let _ = std::thread::Builder::new().name("hash".into()).spawn_scoped(scope, work);
        }
        work();
    });
    results.into_iter().map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard_and_every_byte_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        // FIPS 180-4's example and the empty message.
        for (contents, want) in [
            (&b"abc"[..], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ] {
            std::fs::write(&path, contents).unwrap();
            let told = AtomicUsize::new(0);
            let tell = |bytes: u64| {
                told.fetch_add(bytes as usize, Ordering::Relaxed);
                ControlFlow::Continue(())
            };
            let hashed = sha256(&path, &tell).unwrap().unwrap();
            assert_eq!((hashed.sha256.to_string().as_str(), hashed.bytes), (want, contents.len() as u64));
            assert_eq!(told.into_inner(), contents.len());
        }
    }

    #[test]
    fn reading_ends_where_it_is_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, vec![7; 3 * CHUNK]).unwrap();
        let calls = AtomicUsize::new(0);
        let once = |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Break(())
        };
        assert_eq!(sha256(&path, &once).unwrap(), None);
        assert!(sha256_each(&[(&path, 1), (&path, 2)], 1, &once).is_none());
        assert_eq!(calls.into_inner(), 2);
    }

    #[test]
    fn results_stand_in_the_order_of_the_files_whatever_the_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..9).map(|n| folder.path().join(n.to_string())).collect();
        for (n, path) in paths.iter().enumerate() {
            std::fs::write(path, vec![n as u8; n * 1000]).unwrap();
        }
        let mut files: Vec<(&Path, u64)> = paths.iter().map(|path| (path.as_path(), 5)).collect();
        let missing = folder.path().join("missing");
        files.push((&missing, 0));
        for jobs in [0, 1, 3, 64] {
            let results = sha256_each(&files, jobs, &|_| ControlFlow::Continue(())).unwrap();
            let sizes: Vec<_> = results.iter().map(|r| r.as_ref().ok().map(|h| h.bytes)).collect();
            let want: Vec<_> = (0..9).map(|n| Some(n * 1000)).chain([None]).collect();
            assert_eq!(sizes, want);
        }
    }
}
