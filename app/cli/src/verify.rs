//! `cudafast verify`: whether files are what a manifest says, or a manifest of files as they are.

use std::fmt;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench_pins::{Folder, Manifest, Pin, State, Survey};

use crate::args::VerifyArgs;
use crate::failure::{Failure, escape_control};
use crate::interrupt::Work;
use crate::outfile::{Kind, OutFile};
use crate::output;
use crate::progress::Progress;

/// More files at once than this gain nothing on any disk.
const MOST_JOBS: usize = 8;

pub(crate) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let jobs = match args.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_JOBS),
        jobs => jobs,
    };
    match (&args.write, &args.manifest) {
        (Some(path), _) => write(path, &folder(args, path), jobs),
        (None, path) => check(path.as_deref().unwrap_or(Path::new("-")), args, jobs),
    }
}

/// The folder that was named, else that of the manifest.
fn folder(args: &VerifyArgs, manifest: &Path) -> PathBuf {
    let beside = || manifest.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    args.dir.clone().unwrap_or_else(|| beside().to_owned())
}

fn check(path: &Path, args: &VerifyArgs, jobs: usize) -> Result<(), Failure> {
    let manifest = Manifest::read(path)?;
    let folder = folder(args, path);
    let work = Work::begin();
    let survey = Survey::of(&manifest, &folder)?;
    let (bytes, begun) = (survey.bytes(), Instant::now());
    let read = Reading::new("verifying", bytes, &work);
    let states = survey.check(jobs, &|bytes| read.more(bytes));
    drop(read);
    let states = states.ok_or(Failure::Interrupted)?;
    let (mut lines, mut faults) = (String::new(), Vec::new());
    for (Pin { path, .. }, state) in manifest.pins().iter().zip(&states) {
        lines += &format!("{}: {}\n", escape_control(path), Told(state));
        if !state.is_same() {
            faults.push(format!("{path} ({})", brief(state)));
        }
    }
    output::text(&lines)?;
    let name = path.display();
    if !faults.is_empty() {
        return Err(Failure::NotAsListed { manifest: name.to_string(), files: states.len(), faults: listed(&faults) });
    }
    let count = counted(states.len());
    output::note(&format!("{name}: {count} as listed, {}", speed(bytes, begun)));
    Ok(())
}

/// Writes the manifest of a folder: JSON for a name that ends in `.json`, else the lines of `sha256sum`.
fn write(path: &Path, folder: &Path, jobs: usize) -> Result<(), Failure> {
    let work = Work::begin(); // from here on a signal may leave no file behind
    let mut out = OutFile::claim("--write", path, Kind::Manifest)?;
    let walked = Folder::walk(folder, Some(path))?;
    let (bytes, begun) = (walked.bytes(), Instant::now());
    let read = Reading::new("hashing", bytes, &work);
    let manifest = walked.pin(jobs, &|bytes| read.more(bytes));
    drop(read);
    let manifest = manifest?.ok_or(Failure::Interrupted)?;
    let json = path.extension().is_some_and(|extension| extension == "json");
    let text = if json { manifest.to_json(&path.display().to_string())? } else { manifest.to_text() };
    out.write_all(text.as_bytes()).map_err(|source| out.failed(source))?;
    work.check()?;
    out.finish()?;
    let count = counted(manifest.pins().len());
    output::note(&format!("{}: {count} of {}, {}", path.display(), folder.display(), speed(bytes, begun)));
    Ok(())
}

/// Bytes read so far, and whether to go on.
struct Reading<'a> {
    progress: Progress,
    done: AtomicU64,
    work: &'a Work,
}

impl<'a> Reading<'a> {
    fn new(what: &str, bytes: u64, work: &'a Work) -> Self {
        Self { progress: Progress::bytes(what, bytes), done: AtomicU64::new(0), work }
    }

    fn more(&self, bytes: u64) -> ControlFlow<()> {
        self.progress.set(self.done.fetch_add(bytes, Ordering::Relaxed) + bytes);
        if self.work.cancel.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A file's line.
struct Told<'a>(&'a State);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            State::Same => write!(f, "ok"),
            State::Missing => write!(f, "missing"),
            State::OtherSize { found, listed } => write!(f, "has {found} bytes, {listed} are listed"),
            State::OtherHash { found, listed } => write!(f, "has SHA-256 {found}, {listed} is listed"),
            State::Unreadable(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

/// For the one line of the error.
fn brief(state: &State) -> &'static str {
    match state {
        State::Same => "ok",
        State::Missing => "missing",
        State::OtherSize { .. } => "another size",
        State::OtherHash { .. } => "another hash",
        State::Unreadable(_) => "cannot be read",
    }
}

/// As many as fit a line that is still read.
fn listed(faults: &[String]) -> String {
    const MOST: usize = 20;
    let mut line = faults[..faults.len().min(MOST)].join(", ");
    if faults.len() > MOST {
        line += &format!(" and {} more, all on standard output", faults.len() - MOST);
    }
    line
}

fn counted(files: usize) -> String {
    if files == 1 { "1 file".into() } else { format!("{files} files") }
}

fn speed(bytes: u64, begun: Instant) -> String {
    let (mb, seconds) = (bytes as f64 / 1e6, begun.elapsed().as_secs_f64());
    format!("{mb:.1} MB read at {:.0} MB/s", mb / seconds.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_faults_has_an_end() {
        let faults: Vec<String> = (0..25).map(|n| format!("f{n} (missing)")).collect();
        assert_eq!(listed(&faults[..2]), "f0 (missing), f1 (missing)");
        assert!(listed(&faults).ends_with("f19 (missing) and 5 more, all on standard output"));
    }
}
