//! `cudafast synth`: a set of random weights in the published names, types and shards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cudafast_gguf::{Split, Writer};

use crate::args::SynthArgs;
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::output;
use crate::progress::Progress;

pub(crate) fn run(args: &SynthArgs) -> Result<(), Failure> {
    let summary = write(args)?;
    output::note(&summary);
    Ok(())
}

/// Writes it and says what came of it. The progress line is gone by then.
fn write(args: &SynthArgs) -> Result<String, Failure> {
    let spec = args.spec();
    let (model, head) = (spec.model()?, if args.no_head { None } else { Some(spec.draft_head()?) });
    let work = Work::begin(); // from here on a signal may leave no file behind
    let progress = Progress::bytes("writing", 0);
    let step = |bytes| {
        progress.advance(bytes);
        work.check().map_err(|_| io::Error::other("interrupted"))
    };
    let set = Set {
        model: model.writer(&step),
        base: spec.set_name(),
        split: Split { max_shard_bytes: args.shard_bytes, keys_alone: true },
        head: head.as_ref().map(|head| head.writer(&step)),
        head_name: spec.draft_head_name(),
    };
    let files = set.outline()?;
    let bytes = files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let place = Place::claim(&args.out, &files, args.force)?;
    progress.of(bytes);
    let begun = Instant::now();
    let written = set.write(place.unfinished.path());
    work.check()?;
    written.map_err(|error| place.blame(error))?;
    place.finish(&files)?;
    let seconds = begun.elapsed().as_secs_f64().max(1e-9);
    let (out, count, speed) = (args.out.display(), files.len(), size((bytes as f64 / seconds) as u64));
    Ok(format!("{out}: {count} files, {} in {seconds:.1} s, {speed}/s", size(bytes)))
}

fn size(bytes: u64) -> String {
    match bytes {
        1_000_000_000.. => format!("{:.2} GB", bytes as f64 / 1e9),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// What is to be written.
struct Set<'a> {
    model: Writer<'a>,
    base: String,
    split: Split,
    head: Option<Writer<'a>>,
    head_name: &'static str,
}

impl Set<'_> {
    /// Names and bytes of all files.
    fn outline(&self) -> Result<Vec<(String, u64)>, cudafast_gguf::Error> {
        let mut files = self.model.outline_set(&self.base, self.split)?;
        if let Some(head) = &self.head {
            files.push((self.head_name.into(), head.outline_file()?));
        }
        Ok(files)
    }

    fn write(&self, folder: &Path) -> Result<(), cudafast_gguf::Error> {
        self.model.write_set(folder, &self.base, self.split)?;
        self.head.as_ref().map_or(Ok(()), |head| head.write_file(&folder.join(self.head_name)))
    }
}

/// A folder that files will appear in.
struct Place {
    out: PathBuf,
    /// Inside it and hidden; goes away with what is still in it.
    unfinished: tempfile::TempDir,
    /// Dropped after what is in them.
    _made: MadeFolders,
}

/// Folders that were not there, innermost first: taken away again should nothing come to be in them.
struct MadeFolders(Vec<PathBuf>);

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = fs::remove_dir(folder); // fails where files have appeared, as it should
        }
    }
}

impl Place {
    /// Refuses, before anything is written, files that are there already and a disk without room for `files`.
    fn claim(out: &Path, files: &[(String, u64)], force: bool) -> Result<Self, Failure> {
        let failed = |source| Failure::Out { flag: "--out", path: out.to_owned(), source };
        let there = match fs::metadata(out) {
            Ok(found) if !found.is_dir() => return Err(Failure::OutIsNoDirectory { path: out.to_owned() }),
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        if there && !force {
            let mut names = fs::read_dir(out).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.file_name()));
            if let Some(name) = names.find(|name| Path::new(name).extension().is_some_and(|e| e == "gguf")) {
                return Err(Failure::OutHoldsModel { path: out.to_owned(), name: name.to_string_lossy().into_owned() });
            }
        }
        let needed = files.iter().map(|(_, bytes)| bytes).sum();
        let available = room(out).map_err(failed)?;
        if needed > available {
            return Err(Failure::NoRoom { path: out.to_owned(), needed, available });
        }
        let missing = out.ancestors().take_while(|folder| *folder != Path::new("") && !folder.exists());
        let made = MadeFolders(missing.map(Path::to_owned).collect());
        fs::create_dir_all(out).map_err(failed)?;
        let unfinished =
            tempfile::Builder::new().prefix(".cudafast-").suffix(".part").tempdir_in(out).map_err(failed)?;
        Ok(Self { out: out.to_owned(), unfinished, _made: made })
    }

    /// Puts all files in their places, the first shard last: without it nobody takes the set for whole.
    fn finish(self, files: &[(String, u64)]) -> Result<(), Failure> {
        // Nor may the first shard of a set that is replaced stand beside new ones.
        if let Some((first, _)) = files.first() {
            let path = self.out.join(first);
            if let Err(source) = fs::remove_file(&path)
                && source.kind() != io::ErrorKind::NotFound
            {
                return Err(Failure::Out { flag: "--out", path, source });
            }
        }
        for (name, _) in files.iter().rev() {
            let path = self.out.join(name);
            fs::rename(self.unfinished.path().join(name), &path).map_err(|source| Failure::Out {
                flag: "--out",
                path,
                source,
            })?;
        }
        Ok(())
    }

    /// The failure, with the name that the file would have had.
    fn blame(&self, error: cudafast_gguf::Error) -> Failure {
        match error {
            cudafast_gguf::Error::Write { path, source, .. } => {
                let path = self.out.join(path.file_name().unwrap_or_default());
                Failure::Out { flag: "--out", path, source }
            }
            error => error.into(),
        }
    }
}

/// Bytes that may be written to the disk that `folder` is on, or will be on.
fn room(folder: &Path) -> io::Result<u64> {
    let folder = if folder.is_absolute() { folder.to_owned() } else { std::env::current_dir()?.join(folder) };
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(there)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}
