//! A trace as a safetensors file: one tensor for each run of rows of an operation, in execution order.
//!
//! A tensor is named `SEQUENCE/LAYER/OP/POSITION`, as in `00000012/3/gdn.qkv/0`, and is `[rows, width]`, its first row at
//! that position: F32, or U64 where the values are ids. The header's entry `trace` is an [`About`] as JSON.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Of the meaning of names and of [`About`].
const VERSION: u32 = 1;

/// What was traced. Two traces can be compared if [`Geometry`] and tokens are the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) version: u32,
    /// Program and version.
    pub(crate) program: String,
    pub(crate) model: String,
    /// Device, threads, precision, and how the rows were run.
    pub(crate) how: String,
    pub(crate) geometry: Geometry,
    pub(crate) tokens: Vec<u32>,
}

/// Sizes that decide what the values of a layer are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Geometry {
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) streams: usize,
    pub(crate) experts: usize,
    pub(crate) experts_used: usize,
    pub(crate) vocabulary: usize,
}

impl About {
    pub(crate) fn new(model: &str, how: String, geometry: Geometry, tokens: Vec<u32>) -> Self {
        let program = concat!("cudafast ", env!("CARGO_PKG_VERSION")).into();
        Self { version: VERSION, program, model: model.into(), how, geometry, tokens }
    }
}

/// What the values of an event are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Id,
}

impl Kind {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Kind::Float => 4,
            Kind::Id => 8,
        }
    }
}

/// Rows of one operation that ran together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) layer: usize,
    pub(crate) op: String,
    pub(crate) position: usize,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) kind: Kind,
}

impl Event {
    pub(crate) fn bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }
    pub(crate) fn row_bytes(&self) -> usize {
        self.width * self.kind.bytes()
    }
}

/// Writes header and data: `data` has the events' values one after the other.
pub(crate) fn write(out: &mut impl Write, about: &About, events: &[Event], data: &mut File) -> io::Result<()> {
    let mut offset = 0;
    let mut tensors = Vec::with_capacity(events.len());
    for (sequence, event) in events.iter().enumerate() {
        let end = offset + event.bytes();
        let info = TensorInfo {
            dtype: match event.kind {
                Kind::Float => Dtype::F32,
                Kind::Id => Dtype::U64,
            },
            shape: vec![event.rows, event.width],
            data_offsets: (offset, end),
        };
        tensors.push((format!("{sequence:08}/{}/{}/{}", event.layer, event.op, event.position), info));
        offset = end;
    }
    let about = serde_json::to_string(about)?;
    let header =
        Metadata::new(Some(HashMap::from([("trace".to_owned(), about)])), tensors).map_err(io::Error::other)?;
    let mut header = serde_json::to_vec(&header)?;
    while !header.len().is_multiple_of(8) {
        header.push(b' ');
    }
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    data.seek(SeekFrom::Start(0))?;
    let copied = io::copy(data, out)?;
    if copied == offset as u64 { Ok(()) } else { Err(io::Error::other("values are missing")) }
}

/// An open trace. Its sizes are checked, its values are read when asked for.
#[derive(Debug)]
pub(crate) struct Trace {
    file: File,
    path: PathBuf,
    pub(crate) about: About,
    /// In execution order, each with the place of its values in the file.
    pub(crate) events: Vec<(Event, u64)>,
}

/// Headers above this are no trace: some 100 bytes for each event.
const MAX_HEADER_BYTES: u64 = 1 << 30;

impl Trace {
    /// Refuses what [`write()`] did not write, and what is not whole.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = || path.display().to_string();
        let unreadable = |source| Failure::Read { path: shown(), source };
        let no_trace = |why: &str| Failure::NoTrace { path: path.to_owned(), why: why.into() };
        // Opening a pipe would wait for its other end.
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if !found.is_file() {
            return Err(no_trace("it is not a regular file"));
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let len = file.metadata().map_err(unreadable)?.len();
        let mut header_len = [0; 8];
        let short = |_| no_trace("it ends inside its header");
        file.read_exact(&mut header_len).map_err(short)?;
        let header_len = u64::from_le_bytes(header_len);
        if header_len > MAX_HEADER_BYTES || header_len > len.saturating_sub(8) {
            return Err(no_trace("it ends inside its header"));
        }
        let mut header = vec![0; header_len as usize];
        file.read_exact(&mut header).map_err(short)?;
        let header: Metadata =
            serde_json::from_slice(&header).map_err(|_| no_trace("its header is not one of safetensors"))?;
        let (wanted, found) = (header.data_len() as u64, len - 8 - header_len);
        if wanted != found {
            return Err(no_trace(&format!("it has {found} bytes of values, its header says {wanted}")));
        }
        let about = header.metadata().as_ref().and_then(|entries| entries.get("trace"));
        let about = about.ok_or_else(|| no_trace("its header has no entry `trace`"))?;
        let about: About = serde_json::from_str(about).map_err(|_| no_trace("its entry `trace` cannot be read"))?;
        if about.version != VERSION {
            return Err(no_trace(&format!("it is of version {}, this program reads {VERSION}", about.version)));
        }
        let start = 8 + header_len;
        let event = |name: &String| {
            let info = header.info(name)?;
            Some((event(name, info)?, start + info.data_offsets.0 as u64))
        };
        let events: Option<Vec<_>> = header.offset_keys().iter().map(event).collect();
        let events = events.ok_or_else(|| no_trace("a tensor of it is no operation"))?;
        Ok(Self { file, path: path.to_owned(), about, events })
    }

    /// Bytes of one row of an event.
    pub(crate) fn row(&self, event: usize, row: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let (event, start) = &self.events[event];
        bytes.resize(event.row_bytes(), 0);
        let at = start + (row * event.row_bytes()) as u64;
        let path = || self.path.display().to_string();
        self.file.read_exact_at(bytes, at).map_err(|source| Failure::Read { path: path(), source })
    }
}

fn event(name: &str, info: &TensorInfo) -> Option<Event> {
    let mut parts = name.splitn(4, '/').skip(1);
    let layer = parts.next()?.parse().ok()?;
    let op = parts.next()?.to_owned();
    let position = parts.next()?.parse().ok()?;
    let kind = match info.dtype {
        Dtype::F32 => Kind::Float,
        Dtype::U64 => Kind::Id,
        _ => return None,
    };
    let [rows, width] = info.shape[..] else { return None };
    Some(Event { layer, op, position, rows, width, kind })
}
