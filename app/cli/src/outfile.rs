//! A file that appears whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bench_pins::{MAX_MANIFEST_BYTES, Manifest};
use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::{npy, trace};

/// What is written. A file that is there is replaced by its like alone: a slip of the name must not cost a model's shard.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Logits.
    Npy,
    /// Every value of a run.
    Trace,
    /// Names and hashes.
    Manifest,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Npy => "an NPY file",
            Kind::Trace => "a trace",
            Kind::Manifest => "a manifest that --write makes",
        }
    }

    /// Whether the file is one of these.
    fn has(self, path: &Path) -> io::Result<bool> {
        Ok(match self {
            Kind::Npy => {
                let mut head = Vec::new();
                File::open(path)?.take(npy::MAGIC.len() as u64).read_to_end(&mut head)?;
                head == npy::MAGIC
            }
            Kind::Trace => trace::is_trace(path),
            Kind::Manifest => {
                let mut bytes = Vec::new();
                File::open(path)?.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes)?;
                is_manifest(&bytes)
            }
        })
    }
}

/// Whether nothing is lost with these bytes but a manifest. JSON with more than the list, such as a track's fixture, can be
/// verified against and is no manifest of ours.
fn is_manifest(bytes: &[u8]) -> bool {
    let Ok(manifest) = Manifest::parse("", bytes) else { return false };
    let Ok(found) = serde_json::from_slice::<serde_json::Value>(bytes) else { return true };
    let made = manifest.to_json("").ok().and_then(|text| serde_json::from_str(&text).ok());
    made == Some(found)
}

/// Written to a hidden `.part` beside its place and renamed when it is whole; dropped before that, nothing is left. Only an
/// end that cannot be delayed (`kill -9`, a second Ctrl-C) leaves the `.part`.
pub(crate) struct OutFile {
    out: BufWriter<Target>,
    /// The flag that named it, for failures.
    flag: &'static str,
    kind: Kind,
    /// As it was named.
    path: PathBuf,
    /// Where it is.
    place: PathBuf,
}

/// Where bytes go before the file is whole.
enum Target {
    /// Beside the file, to be renamed. Goes away with the writer.
    Temporary(NamedTempFile),
    /// A pipe or device, which has no whole.
    Direct(File),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Temporary(file) => file.write(bytes),
            Target::Direct(file) => file.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Temporary(file) => file.flush(),
            Target::Direct(file) => file.flush(),
        }
    }
}

impl OutFile {
    /// Claims the place: fails now if `path` cannot be written later, or holds what is not of this kind. A file that is
    /// there stays until the new one is whole, which takes over its permissions.
    pub(crate) fn claim(flag: &'static str, path: &Path, kind: Kind) -> Result<Self, Failure> {
        let failed = |source| Failure::Out { flag, path: path.to_owned(), source };
        let mut place = path.to_owned();
        let target = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(Failure::OutIsDirectory { flag, path: path.to_owned() }),
            Ok(found) if !found.is_file() => Target::Direct(File::options().write(true).open(path).map_err(failed)?),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) if path.is_symlink() => return Err(Failure::OutLeadsNowhere { flag, path: path.to_owned() }),
            found => {
                if found.is_ok() {
                    // A rename would replace it even where it may not be written.
                    File::options().write(true).open(path).map_err(failed)?;
                    // A link stays a link: what it leads to is replaced.
                    place = path.canonicalize().map_err(failed)?;
                    replaceable(flag, path, kind)?;
                }
                let folder = place.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
                let mut builder = tempfile::Builder::new();
                builder.prefix(".cudafast-").suffix(".part");
                #[cfg(unix)] // as far as the umask lets others read; temporary files are private otherwise
                builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
                let file = builder.tempfile_in(folder).map_err(failed)?;
                if let Ok(found) = found {
                    file.as_file().set_permissions(found.permissions()).map_err(failed)?;
                }
                Target::Temporary(file)
            }
        };
        Ok(Self { out: BufWriter::with_capacity(1 << 20, target), flag, kind, path: path.to_owned(), place })
    }

    /// A failure of this file.
    pub(crate) fn failed(&self, source: io::Error) -> Failure {
        Failure::Out { flag: self.flag, path: self.path.clone(), source }
    }

    /// Puts the whole file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { flag, kind, path, .. } = self;
        let failed = |source| Failure::Out { flag, path: path.clone(), source };
        match self.out.into_inner().map_err(|e| failed(e.into_error()))? {
            Target::Temporary(file) => {
                replaceable(flag, &self.place, kind)?; // it may have come while this was computed
                file.persist(&self.place).map(drop).map_err(|e| failed(e.error))
            }
            Target::Direct(mut file) => file.flush().map_err(failed),
        }
    }
}

/// Refuses a file that is there, has something in it and is not of the kind that would replace it.
fn replaceable(flag: &'static str, path: &Path, kind: Kind) -> Result<(), Failure> {
    let failed = |source| Failure::Out { flag, path: path.to_owned(), source };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if found.is_file() && (found.len() == 0 || kind.has(path).map_err(failed)?) => Ok(()),
        Ok(_) => Err(Failure::OutIsForeign { flag, path: path.to_owned(), kind: kind.name() }),
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_link_keeps_leading_to_the_file_and_the_file_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, npy::MAGIC).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut out = OutFile::claim("--out", &link, Kind::Npy).unwrap();
        out.write_all(b"after").unwrap();
        out.finish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_file_is_replaced_by_its_like_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let digest = "0".repeat(64);
        let pin = format!(r#"{{"path":"a","size_bytes":1,"sha256":"{digest}"}}"#);
        for (contents, kinds) in [
            (String::new(), "Npy Trace Manifest"),
            ("a letter".into(), ""),
            (format!("{digest}  a\n"), "Manifest"),
            (format!(r#"{{ "files": [{pin}] }}"#), "Manifest"),
            (format!(r#"{{"files":[{pin}],"name":"track"}}"#), ""),
            (format!(r#"{{"target":{{"files":[{pin}]}}}}"#), ""),
        ] {
            std::fs::write(&path, &contents).unwrap();
            for kind in [Kind::Npy, Kind::Trace, Kind::Manifest] {
                let claimed = OutFile::claim("--out", &path, kind).is_ok();
                assert_eq!(claimed, kinds.contains(&format!("{kind:?}")), "{kind:?} over {contents:?}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), contents);
        }
        // Also where it came after the place was claimed.
        std::fs::remove_file(&path).unwrap();
        let out = OutFile::claim("--out", &path, Kind::Trace).unwrap();
        std::fs::write(&path, "a letter").unwrap();
        assert!(matches!(out.finish(), Err(Failure::OutIsForeign { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.npy");
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let mut out = OutFile::claim("--out", &path, Kind::Npy).unwrap();
        out.write_all(&[1; 3 << 20]).unwrap();
        assert_eq!((files(), path.exists()), (1, false));
        drop(out);
        assert_eq!(files(), 0);
        let mut out = OutFile::claim("--out", &path, Kind::Npy).unwrap();
        out.write_all(b"whole").unwrap();
        out.finish().unwrap();
        assert_eq!((files(), std::fs::read(&path).unwrap()), (1, b"whole".to_vec()));
    }
}
