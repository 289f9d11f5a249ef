//! One tensor: a name, a shape, a type, and a range of a file that was checked when the file was opened.

use std::{fmt, path::Path, sync::Arc};

use crate::{
    buffer::{Buffer, TensorData},
    error::Error,
    header::TensorEntry,
    layout::TypeLayout,
};

/// A tensor of an open set. Its bytes are known to lie inside its file and to overlap no other tensor.
#[derive(Clone)]
pub struct Tensor {
    name: Box<str>,
    ne: [u64; 4],
    rank: u8,
    shard: u32,
    layout: TypeLayout,
    byte_len: u64,
    file_offset: u64,
    buffer: Arc<Buffer>,
}

impl Tensor {
    /// Name, unique in the set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Dimensions, fastest first, 1 to 4 of them: `[in, out, ..]`.
    pub fn ne(&self) -> &[u64] {
        &self.ne[..usize::from(self.rank)]
    }

    /// Number of the element type.
    pub fn type_id(&self) -> u32 {
        self.layout.id
    }

    /// Name of the element type.
    pub fn type_name(&self) -> &'static str {
        self.layout.name
    }

    /// Bytes the tensor takes.
    pub fn byte_len(&self) -> u64 {
        self.byte_len
    }

    /// Index of its shard in [`crate::ShardSet::shards`].
    pub fn shard(&self) -> usize {
        self.shard as usize
    }

    /// First byte, counted from the start of the shard's file.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// The bytes. Nothing is read until they are touched.
    pub fn data(&self) -> TensorData {
        // Both fit usize: they lie inside a buffer that is in this address space.
        TensorData::part_of(self.buffer.clone(), self.file_offset as usize, self.byte_len as usize)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {} shard {} @{}", self.name, self.ne(), self.layout.name, self.shard, self.file_offset)
    }
}

/// Where the tensors of one file are to lie.
pub(crate) struct Place<'a> {
    pub(crate) path: &'a Path,
    pub(crate) buffer: &'a Arc<Buffer>,
    /// Index in the set.
    pub(crate) shard: usize,
    pub(crate) data_start: u64,
    pub(crate) alignment: u64,
}

impl Place<'_> {
    /// The entries of the file's table as tensors, if there is room for each: gguf-qwen4exp.md 7, rows "offset" and
    /// "file shorter".
    pub(crate) fn tensors(&self, entries: Vec<TensorEntry>) -> Result<Vec<Tensor>, Error> {
        self.check(&entries)?;
        let tensor = |e: TensorEntry| Tensor {
            name: e.name,
            ne: e.ne,
            rank: e.rank,
            shard: self.shard as u32, // at most MAX_SHARDS
            layout: e.layout,
            byte_len: e.byte_len,
            file_offset: self.data_start + e.offset,
            buffer: self.buffer.clone(),
        };
        Ok(entries.into_iter().map(tensor).collect())
    }

    fn check(&self, entries: &[TensorEntry]) -> Result<(), Error> {
        let path = self.path;
        let data_len = (self.buffer.len() as u64).saturating_sub(self.data_start);
        let outside = |e: &TensorEntry| Error::TensorOutsideFile {
            path: path.into(),
            tensor: e.name.to_string(),
            offset: e.offset,
            bytes: e.byte_len,
            len: data_len,
        };
        let mut order: Vec<u32> = (0..).take(entries.len()).collect();
        order.sort_unstable_by_key(|&i| entries[i as usize].offset);

        // In ascending offsets each tensor need only be held against the one before it.
        let mut packed = true;
        let mut cut = None;
        let mut before: Option<(&TensorEntry, u64)> = None;
        for e in order.iter().map(|&i| &entries[i as usize]) {
            let (offset, alignment) = (e.offset, self.alignment);
            if !offset.is_multiple_of(alignment) {
                return Err(Error::MisalignedTensor {
                    path: path.into(),
                    tensor: e.name.to_string(),
                    offset,
                    alignment,
                });
            }
            let end = offset.checked_add(e.byte_len).filter(|end| end.checked_add(self.data_start).is_some());
            let end = end.ok_or_else(|| outside(e))?;
            if let Some((other, other_end)) = before
                && offset < other_end
            {
                let (tensor, other) = (e.name.to_string(), other.name.to_string());
                return Err(Error::OverlappingTensors { path: path.into(), tensor, other, offset });
            }
            packed &= Some(offset) == before.map_or(Some(0), |(_, end)| end.checked_next_multiple_of(alignment));
            if end > data_len && cut.is_none() {
                cut = Some(e);
            }
            before = Some((e, end));
        }
        let (Some(e), Some((_, end))) = (cut, before) else { return Ok(()) };
        if !packed {
            return Err(outside(e));
        }
        // The tensors lie without a gap from the first to the last, so the table is sound: the file ends too early.
        let (len, expected) = (self.buffer.len() as u64, self.data_start + end);
        Err(Error::Truncated { path: path.into(), tensor: e.name.to_string(), len, expected })
    }
}
