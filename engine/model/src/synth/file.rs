//! One synthetic file: what is in it, its bytes as a stream, and its bytes in memory.

use std::{
    collections::HashMap,
    fmt,
    io::{self, Write},
    sync::Arc,
};

use cudafast_gguf::{Metadata, TensorData, Value, Writer};
use cudafast_quant::{
    Format,
    synth::{self, Law},
};
use rayon::prelude::*;

use crate::{error::Error, source::SourceTensor};

/// Told how many bytes were made since the last time, by any thread; an error ends the work and is passed on.
pub type SynthStep<'a> = dyn Fn(u64) -> io::Result<()> + Sync + 'a;

/// Bytes that one thread makes at a time.
const THREAD_BYTES: usize = 256 << 10;
/// Bytes made by all threads before they are written.
const PIECE_BYTES: usize = 16 << 20;

/// A tensor to be: cheap until it is filled.
#[derive(Debug, Clone)]
pub struct SynthTensor {
    name: String,
    ne: Vec<u64>,
    format: &'static Format,
    key: u64,
    law: Law,
    byte_len: usize,
}

impl SynthTensor {
    pub(super) fn new(seed: u64, name: String, ne: &[usize], format: &'static Format, law: Law) -> Self {
        let blocks = ne.iter().product::<usize>() / format.block_elems;
        Self {
            key: synth::tensor_key(seed, &name),
            name,
            ne: ne.iter().map(|&n| n as u64).collect(),
            format,
            law,
            byte_len: blocks * format.block_bytes,
        }
    }

    /// Name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sizes, fastest first.
    pub fn ne(&self) -> &[u64] {
        &self.ne
    }

    /// Number format.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// What its values are drawn by; with [`key`](Self::key) all that a device needs to make the bytes.
    pub fn law(&self) -> Law {
        self.law
    }

    /// Where its words come from.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Bytes it takes.
    pub fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Whether binding minds its values: gains and decays. All other numbers may be zero.
    fn is_vector(&self) -> bool {
        self.ne.len() == 1
    }

    /// Blocks of a run of at most `bytes`, at least one.
    fn run_bytes(&self, bytes: usize) -> usize {
        (bytes / self.format.block_bytes).max(1) * self.format.block_bytes
    }

    /// Writes the blocks from byte `start` on, on all threads. `start` and the length of `out` are whole blocks.
    fn fill(&self, start: usize, out: &mut [u8], step: &SynthStep<'_>) -> io::Result<()> {
        let run = self.run_bytes(THREAD_BYTES);
        out.par_chunks_mut(run).enumerate().try_for_each(|(i, chunk)| {
            let first = (start + i * run) / self.format.block_bytes;
            synth::fill(self.format, self.key, self.law, first as u64, chunk);
            step(chunk.len() as u64)
        })
    }

    /// Writes all of it to `out`, with memory for one piece.
    fn stream(&self, out: &mut dyn Write, step: &SynthStep<'_>) -> io::Result<()> {
        let piece = self.run_bytes(PIECE_BYTES);
        let mut buffer = vec![0; piece.min(self.byte_len)];
        for start in (0..self.byte_len).step_by(piece) {
            let buffer = &mut buffer[..piece.min(self.byte_len - start)];
            self.fill(start, buffer, step)?;
            out.write_all(buffer)?;
        }
        Ok(())
    }
}

/// Keys and tensors of one file, without the tensors' bytes.
#[derive(Debug, Clone)]
pub struct SynthFile {
    label: String,
    metadata: Metadata,
    tensors: Vec<SynthTensor>,
}

impl SynthFile {
    pub(super) fn new(label: String, kv: Vec<(String, Value)>, tensors: Vec<SynthTensor>) -> Result<Self, Error> {
        let metadata = Metadata::from_entries(&label, kv)?;
        Ok(Self { label, metadata, tensors })
    }

    /// Its keys.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its tensors, in the order of the file.
    pub fn tensors(&self) -> &[SynthTensor] {
        &self.tensors
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.byte_len as u64).sum()
    }

    /// Writes it, whole or in shards. Bytes are made while they are written, on all threads.
    pub fn writer<'a>(&'a self, step: &'a SynthStep<'a>) -> Writer<'a> {
        let writer = self.metadata.iter().fold(Writer::new(), |writer, (key, value)| writer.kv(key, value.clone()));
        self.tensors.iter().fold(writer, |writer, t| {
            writer.tensor_with(&t.name, &t.ne, t.format.ggml_id, move |out| t.stream(out, step))
        })
    }

    /// All of it in memory, made on all threads. Ask first whether [`tensor_bytes`](Self::tensor_bytes) fit.
    pub fn fill(self, step: &SynthStep<'_>) -> Result<SynthSource, Error> {
        self.source(|tensor, out| tensor.fill(0, out, step))
    }

    /// For plans and listings: as [`fill`](Self::fill), but only vectors, whose values binding minds, have theirs.
    /// All others are zeros that take no memory.
    pub fn outline(self) -> Result<SynthSource, Error> {
        self.source(|tensor, out| if tensor.is_vector() { tensor.fill(0, out, &|_| Ok(())) } else { Ok(()) })
    }

    fn source(self, fill: impl Fn(&SynthTensor, &mut [u8]) -> io::Result<()>) -> Result<SynthSource, Error> {
        let make = |tensor: &SynthTensor| {
            TensorData::filled(tensor.byte_len, |out| fill(tensor, out)).map_err(|source| Error::SynthFill {
                file: self.label.clone(),
                name: tensor.name.clone(),
                bytes: tensor.byte_len,
                source,
            })
        };
        let data = self.tensors.iter().map(make).collect::<Result<_, _>>()?;
        let by_name = self.tensors.iter().enumerate().map(|(at, t)| (t.name.clone(), at)).collect();
        Ok(SynthSource { inner: Arc::new(Inner { file: self, data, by_name }) })
    }
}

/// A synthetic file in memory. Cheap to clone.
#[derive(Clone)]
pub struct SynthSource {
    inner: Arc<Inner>,
}

struct Inner {
    file: SynthFile,
    data: Vec<TensorData>,
    by_name: HashMap<String, usize>,
}

impl SynthSource {
    /// What messages call it.
    pub fn label(&self) -> &str {
        &self.inner.file.label
    }

    /// What it was made of: whoever can make its bytes elsewhere needs them no second time.
    pub fn file(&self) -> &SynthFile {
        &self.inner.file
    }

    /// Its keys.
    pub fn metadata(&self) -> &Metadata {
        &self.inner.file.metadata
    }

    /// Number of tensors.
    pub(crate) fn len(&self) -> usize {
        self.inner.data.len()
    }

    /// Tensor number `at`, in the order of the file.
    pub(crate) fn at(&self, at: usize) -> SourceTensor<'_> {
        let tensor = &self.inner.file.tensors[at];
        SourceTensor {
            name: &tensor.name,
            ne: &tensor.ne,
            type_id: tensor.format.ggml_id,
            type_name: tensor.format.name,
            data: self.inner.data[at].clone(),
        }
    }

    /// The tensor of that name.
    pub(crate) fn tensor(&self, name: &str) -> Option<SourceTensor<'_>> {
        self.inner.by_name.get(name).map(|&at| self.at(at))
    }
}

impl fmt::Debug for SynthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SynthSource({}, {} tensors)", self.label(), self.len())
    }
}
