//! A float32 matrix as an NPY 1.0 file that appears whole or not at all.

use std::io::{self, Write};
use std::path::Path;

use crate::failure::Failure;
use crate::outfile::{Kind, OutFile};

/// What every NPY file begins with.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// `[rows, cols]` written row by row.
pub(crate) struct NpyWriter {
    out: OutFile,
    cols: usize,
    rows_left: usize,
}

impl NpyWriter {
    /// Claims the place: fails now if `path` cannot be written later.
    pub(crate) fn claim(path: &Path) -> Result<Claim, Failure> {
        OutFile::claim("--out", path, Kind::Npy).map(Claim)
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
        if self.rows_left > 0 {
            return Err(self.out.failed(io::Error::other("rows are missing")));
        }
        self.out.finish()
    }
}

/// A place to write to, before it is known how much.
pub(crate) struct Claim(OutFile);

impl Claim {
    /// Writes the header for `[rows, cols]`.
    pub(crate) fn begin(self, rows: usize, cols: usize) -> Result<NpyWriter, Failure> {
        let Claim(mut out) = self;
        match out.write_all(&header(rows, cols)) {
            Ok(()) => Ok(NpyWriter { out, cols, rows_left: rows }),
            Err(source) => Err(out.failed(source)),
        }
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
    let mut bytes = [MAGIC, b"\x01\x00"].concat();
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

    #[test]
    fn a_matrix_with_missing_rows_is_no_file() {
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
