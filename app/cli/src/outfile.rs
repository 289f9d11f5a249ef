//! A file that appears whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Written to a hidden `.part` beside its place and renamed when it is whole; dropped before that, nothing is left. Only an
/// end that cannot be delayed (`kill -9`, a second Ctrl-C) leaves the `.part`.
pub(crate) struct OutFile {
    out: BufWriter<Target>,
    /// The flag that named it, for failures.
    flag: &'static str,
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
    /// Claims the place: fails now if `path` cannot be written later. A file that is there stays until the new one is
    /// whole, which takes over its permissions.
    pub(crate) fn claim(flag: &'static str, path: &Path) -> Result<Self, Failure> {
        let failed = |source| Failure::Out { flag, path: path.to_owned(), source };
        let mut place = path.to_owned();
        let target = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(Failure::OutIsDirectory { flag, path: path.to_owned() }),
            Ok(found) if !found.is_file() => Target::Direct(File::options().write(true).open(path).map_err(failed)?),
            found => {
                if found.is_ok() {
                    // A rename would replace it even where it may not be written.
                    File::options().write(true).open(path).map_err(failed)?;
                }
                // A link stays a link: what it leads to is replaced.
                place = path.canonicalize().unwrap_or(place);
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
        Ok(Self { out: BufWriter::with_capacity(1 << 20, target), flag, path: path.to_owned(), place })
    }

    /// A failure of this file.
    pub(crate) fn failed(&self, source: io::Error) -> Failure {
        Failure::Out { flag: self.flag, path: self.path.clone(), source }
    }

    /// Puts the whole file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { flag, path, .. } = self;
        let failed = |source| Failure::Out { flag, path: path.clone(), source };
        match self.out.into_inner().map_err(|e| failed(e.into_error()))? {
            Target::Temporary(file) => file.persist(&self.place).map(drop).map_err(|e| failed(e.error)),
            Target::Direct(mut file) => file.flush().map_err(failed),
        }
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
        std::fs::write(&file, "before").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut out = OutFile::claim("--out", &link).unwrap();
        out.write_all(b"after").unwrap();
        out.finish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.npy");
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let mut out = OutFile::claim("--out", &path).unwrap();
        out.write_all(&[1; 3 << 20]).unwrap();
        assert_eq!((files(), path.exists()), (1, false));
        drop(out);
        assert_eq!(files(), 0);
        let mut out = OutFile::claim("--out", &path).unwrap();
        out.write_all(b"whole").unwrap();
        out.finish().unwrap();
        assert_eq!((files(), std::fs::read(&path).unwrap()), (1, b"whole".to_vec()));
    }
}
