//! Where a file's bytes live, and handles on parts of them.

use std::{fmt, fs::File, io, ops::Deref, sync::Arc};

/// The bytes of one complete file (or of one synthetic tensor). Their address never changes while this lives.
pub(crate) enum Buffer {
    /// A file, or memory that is read like one.
    Mapped(memmap2::Mmap),
    Static(&'static [u8]),
    /// `bytes[start..]`; `start` moves the first byte to an aligned address.
    Owned {
        bytes: Vec<u8>,
        start: usize,
    },
}

/// Wide enough to read any plain number or block field in place.
const MIN_ALIGN: usize = 8;
/// From this size on, memory is asked for in huge pages: fewer misses where each byte is read once a token.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;
/// What a copy made here is aligned to: one cache line.
const COPY_ALIGN: usize = 64;

impl Buffer {
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only, and every range taken from it lies inside the length it was made with. What we
        // cannot prove is that no other process writes to or shortens the file meanwhile: there is no lock that all
        // would obey. Written bytes then show up as other weights; names, strings and lengths were copied out at open
        // and checked in the copy, so nothing unchecked is ever read as a `str` or an offset. A shortened file ends the
        // process with SIGBUS when a lost page is touched. `ShardSet::open` says so to its callers.
        unsafe { memmap2::Mmap::map(file) }.map(Self::Mapped)
    }

    /// Copies only if the bytes do not start at a multiple of 8, which static data is free to do.
    pub(crate) fn from_static(bytes: &'static [u8]) -> Self {
        if bytes.as_ptr().addr().is_multiple_of(MIN_ALIGN) { Self::Static(bytes) } else { Self::copy(bytes) }
    }

    /// Copies only if the allocator put the bytes at an address that is no multiple of 8.
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Self {
        let aligned = bytes.as_ptr().addr().is_multiple_of(MIN_ALIGN);
        if aligned { Self::Owned { bytes, start: 0 } } else { Self::copy(&bytes) }
    }

    fn copy(from: &[u8]) -> Self {
        let mut bytes = Vec::<u8>::with_capacity(from.len() + COPY_ALIGN);
        let start = bytes.as_ptr().addr().wrapping_neg() % COPY_ALIGN;
        bytes.resize(start, 0);
        bytes.extend_from_slice(from);
        Self::Owned { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline] // kernels come through here for every matrix
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned { bytes, start } => &bytes[*start..],
        }
    }
}

/// A tensor's bytes without a borrow: cheap to clone, keeps the mapping behind it alive.
///
/// The first byte's address is a multiple of 8 at least (of the file's alignment, usually 32, in a mapping).
#[derive(Clone)]
pub struct TensorData {
    buffer: Arc<Buffer>,
    start: usize,
    len: usize,
}

impl TensorData {
    /// `len` bytes that no file holds: memory that reads as zeros, to be written by `fill`. Pages that `fill` leaves alone
    /// take no memory. Fails where the system gives no memory, or as `fill` does.
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Self> {
        // One that is larger than memory may still be asked for, by those who write a part of it alone.
        let mut map = memmap2::MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
        #[cfg(target_os = "linux")]
        if len >= HUGE_PAGE {
            let _ = map.advise(memmap2::Advice::HugePage); // speed alone: some kernels do not have it
        }
        fill(&mut map)?;
        let buffer = Buffer::Mapped(map.make_read_only()?);
        Ok(Self { buffer: Arc::new(buffer), start: 0, len })
    }

    /// `start..start + len` must lie inside `buffer`: checked by the caller when the file was opened.
    pub(crate) fn part_of(buffer: Arc<Buffer>, start: usize, len: usize) -> Self {
        Self { buffer, start, len }
    }

    /// Bytes of a synthetic tensor. Copied only if `v` does not start at a multiple of 8.
    pub fn from_vec(v: Vec<u8>) -> Self {
        let buffer = Buffer::from_vec(v);
        let len = buffer.len();
        Self { buffer: Arc::new(buffer), start: 0, len }
    }
}

impl Deref for TensorData {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for TensorData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for TensorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorData({} bytes)", self.len)
    }
}
