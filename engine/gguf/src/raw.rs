//! The bytes of a file, from parts that are not checked. [`crate::Writer`] fills this in correctly; tests and fuzzing
//! fill it in wrongly.

use crate::{
    header::{DEFAULT_ALIGNMENT, MAGIC, VERSION},
    value::{Value, string_bytes},
};

/// Every field of a file as it will stand in it. [`RawFile::default`] is an empty, correct file.
#[derive(Clone, Debug)]
pub struct RawFile {
    /// First four bytes.
    pub magic: [u8; 4],
    /// Version of the container.
    pub version: u32,
    /// Number of tensors claimed; `None` claims as many as there are.
    pub tensor_count: Option<u64>,
    /// Number of keys claimed; `None` claims as many as there are.
    pub kv_count: Option<u64>,
    /// Keys and values.
    pub kv: Vec<RawKv>,
    /// The tensor table.
    pub tensors: Vec<RawTensor>,
    /// What the data part is aligned to; 1 leaves no padding. Not written: that is a key's part.
    pub alignment: u64,
    /// Everything behind the padding.
    pub data: Vec<u8>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct RawKv {
    /// Name, in whatever bytes.
    pub key: Vec<u8>,
    /// Number of the value type.
    pub type_id: u32,
    /// The value as it stands in the file.
    pub value: Vec<u8>,
}

/// An entry of the tensor table.
#[derive(Clone, Debug)]
pub struct RawTensor {
    /// Name, in whatever bytes.
    pub name: Vec<u8>,
    /// Number of dimensions claimed; `None` claims as many as there are.
    pub n_dims: Option<u32>,
    /// Dimensions, fastest first.
    pub ne: Vec<u64>,
    /// Number of the element type.
    pub type_id: u32,
    /// From the start of the data part.
    pub offset: u64,
}

impl RawKv {
    /// `key` with `value`, encoded correctly.
    pub fn new(key: &str, value: &Value) -> Self {
        let (type_id, value) = value.encode();
        Self { key: key.into(), type_id, value }
    }
}

impl Default for RawFile {
    fn default() -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            tensor_count: None,
            kv_count: None,
            kv: Vec::new(),
            tensors: Vec::new(),
            alignment: DEFAULT_ALIGNMENT,
            data: Vec::new(),
        }
    }
}

impl RawFile {
    /// The header without the padding behind it.
    pub fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.kv_count.unwrap_or(self.kv.len() as u64).to_le_bytes());
        for kv in &self.kv {
            out.extend(string_bytes(&kv.key));
            out.extend(kv.type_id.to_le_bytes());
            out.extend(&kv.value);
        }
        for tensor in &self.tensors {
            out.extend(string_bytes(&tensor.name));
            out.extend(tensor.n_dims.unwrap_or(tensor.ne.len() as u32).to_le_bytes());
            out.extend(tensor.ne.iter().flat_map(|n| n.to_le_bytes()));
            out.extend(tensor.type_id.to_le_bytes());
            out.extend(tensor.offset.to_le_bytes());
        }
        out
    }

    /// The whole file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len() + padding(out.len() as u64, self.alignment) as usize, 0);
        out.extend(&self.data);
        out
    }
}

/// Bytes from `at` to the next multiple of `alignment`.
pub(crate) fn padding(at: u64, alignment: u64) -> u64 {
    match at.checked_rem(alignment) {
        None | Some(0) => 0,
        Some(past) => alignment - past,
    }
}
