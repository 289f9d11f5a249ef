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

/// Gives the entries of one file their places and appends them to `tensors`: gguf-qwen4exp.md 7, rows "offset" and
/// "shorter than".
pub(crate) fn place(
    path: &Path,
    buffer: &Arc<Buffer>,
    shard: u32,
    data_start: u64,
    alignment: u64,
    entries: Vec<TensorEntry>,
    tensors: &mut Vec<Tensor>,
) -> Result<(), Error> {
    let len = buffer.len() as u64;
    let data_len = len.saturating_sub(data_start);
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
    let mut past_end = None;
    let mut before: Option<(&TensorEntry, u64)> = None;
    for &i in &order {
        let e = &entries[i as usize];
        if !e.offset.is_multiple_of(alignment) {
            return Err(Error::MisalignedTensor {
                path: path.into(),
                tensor: e.name.to_string(),
                offset: e.offset,
                alignment,
            });
        }
        let end = e.offset.checked_add(e.byte_len).filter(|end| end.checked_add(data_start).is_some());
        let end = end.ok_or_else(|| outside(e))?;
        if let Some((other, other_end)) = before
            && e.offset < other_end
        {
            return Err(Error::OverlappingTensors {
                path: path.into(),
                tensor: e.name.to_string(),
                other: other.name.to_string(),
                offset: e.offset,
            });
        }
        packed &= Some(e.offset) == before.map_or(Some(0), |(_, end)| end.checked_next_multiple_of(alignment));
        if end > data_len && past_end.is_none() {
            past_end = Some(e);
        }
        before = Some((e, end));
    }
    if let (Some(e), Some((_, end))) = (past_end, before) {
        // Tensors without a gap from the first to the last: only the end of the file is lost.
        return Err(if packed {
            Error::Truncated { path: path.into(), tensor: e.name.to_string(), len, expected: data_start + end }
        } else {
            outside(e)
        });
    }
    tensors.extend(entries.into_iter().map(|e| Tensor {
        name: e.name,
        ne: e.ne,
        rank: e.rank,
        shard,
        layout: e.layout,
        byte_len: e.byte_len,
        file_offset: data_start + e.offset,
        buffer: buffer.clone(),
    }));
    Ok(())
}
