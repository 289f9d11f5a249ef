//! A float32 matrix as an NPY 1.0 file that appears whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// `[rows, cols]` written row by row.
pub(crate) struct NpyWriter {
    out: BufWriter<Target>,
    path: PathBuf,
    place: PathBuf,
    cols: usize,
    rows_left: usize,
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

impl NpyWriter {
    /// Claims the place: fails now if `path` cannot be written later.
    pub(crate) fn claim(path: &Path) -> Result<Claim, Failure> {
        let failed = |source| Failure::Out { path: path.to_owned(), source };
        let mut place = path.to_owned();
        let target = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(Failure::OutIsDirectory { path: path.to_owned() }),
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
                builder.prefix(".cudafast-").suffix(".npy.part");
                #[cfg(unix)] // as far as the umask lets others read; temporary files are private otherwise
                builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
                Target::Temporary(builder.tempfile_in(folder).map_err(failed)?)
            }
        };
        Ok(Claim { target, path: path.to_owned(), place })
    }

    /// Adds one row.
    pub(crate) fn row(&mut self, row: &[f32]) -> io::Result<()> {
        if row.len() != self.cols || self.rows_left == 0 {
            return Err(io::Error::other("a row that does not belong to the matrix"));
        }
        self.rows_left -= 1;
        row.iter().try_for_each(|x| self.out.write_all(&x.to_le_bytes()))
    }

    /// Puts the whole file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let path = self.path;
        let failed = |source| Failure::Out { path: path.clone(), source };
        if self.rows_left > 0 {
            return Err(failed(io::Error::other("rows are missing")));
        }
        match self.out.into_inner().map_err(|e| failed(e.into_error()))? {
            Target::Temporary(file) => file.persist(&self.place).map(drop).map_err(|e| failed(e.error)),
            Target::Direct(mut file) => file.flush().map_err(failed),
        }
    }
}

/// A place to write to, before it is known how much.
pub(crate) struct Claim {
    target: Target,
    /// As it was named.
    path: PathBuf,
    /// Where it is.
    place: PathBuf,
}

impl Claim {
    /// Writes the header for `[rows, cols]`.
    pub(crate) fn begin(self, rows: usize, cols: usize) -> Result<NpyWriter, Failure> {
        let Claim { target, path, place } = self;
        let mut out = BufWriter::with_capacity(1 << 20, target);
        out.write_all(&header(rows, cols)).map_err(|source| Failure::Out { path: path.clone(), source })?;
        Ok(NpyWriter { out, path, place, cols, rows_left: rows })
    }
}

/// Magic, version 1.0, length, then a Python literal padded with blanks so that data starts at a multiple of 64.
fn header(rows: usize, cols: usize) -> Vec<u8> {
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    const BEFORE: usize = 10;
    while !(BEFORE + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes()); // two numbers of at most 20 digits
    bytes.extend(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_starts_at_a_multiple_of_64_whatever_the_shape() {
        for (rows, cols) in [(1, 1), (3, 248_320), (usize::MAX, usize::MAX)] {
            let header = header(rows, cols);
            assert_eq!(header.len() % 64, 0);
            assert_eq!(&header[..8], b"\x93NUMPY\x01\x00");
            assert_eq!(u16::from_le_bytes([header[8], header[9]]) as usize, header.len() - 10);
            assert!(header.ends_with(b"\n"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_keeps_leading_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut writer = NpyWriter::claim(&link).unwrap().begin(1, 1).unwrap();
        writer.row(&[1.0]).unwrap();
        writer.finish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(&std::fs::read(&file).unwrap()[..6], b"\x93NUMPY");
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.npy");
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let mut writer = NpyWriter::claim(&path).unwrap().begin(2, 2).unwrap();
        writer.row(&[1.0, 2.0]).unwrap();
        drop(writer);
        assert_eq!(files(), 0);
        let mut writer = NpyWriter::claim(&path).unwrap().begin(2, 2).unwrap();
        writer.row(&[1.0, 2.0]).unwrap();
        assert!(writer.row(&[1.0]).is_err());
        assert!(writer.finish().is_err());
        assert_eq!(files(), 0);
        let mut writer = NpyWriter::claim(&path).unwrap().begin(2, 2).unwrap();
        writer.row(&[1.0, 2.0]).unwrap();
        writer.row(&[3.0, 4.0]).unwrap();
        writer.finish().unwrap();
        assert_eq!(files(), 1);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() % 64, 16);
        assert_eq!(&bytes[bytes.len() - 4..], 4.0f32.to_le_bytes());
    }
}
