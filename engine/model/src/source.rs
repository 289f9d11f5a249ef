//! Where tensors come from.

use cudafast_gguf::{Metadata, ShardSet, Tensor, TensorData};

use crate::synth::SynthSource;

/// The tensors and keys a model is bound from. Binding asks for nothing but what is here: tensors by name, all names,
/// keys, and a label for messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WeightSource {
    /// A GGUF set: mapped files, or one complete file in memory.
    Shards(ShardSet),
    /// A model made from a seed, in memory.
    Synthetic(SynthSource),
}

/// One tensor of a source, before anybody checked that it fits the model.
#[derive(Clone, Debug)]
pub struct SourceTensor<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// Sizes as GGUF writes them: fastest first. [`Weights`](crate::Weights) turns them once.
    pub ne: &'a [u64],
    /// ggml type id.
    pub type_id: u32,
    /// Name of that type.
    pub type_name: &'static str,
    /// Its bytes.
    pub data: TensorData,
}

impl<'a> SourceTensor<'a> {
    fn of_shard(tensor: &'a Tensor) -> Self {
        Self {
            name: tensor.name(),
            ne: tensor.ne(),
            type_id: tensor.type_id(),
            type_name: tensor.type_name(),
            data: tensor.data(),
        }
    }
}

impl WeightSource {
    /// What messages call it: the path of the first file, or the label it was opened under.
    pub fn label(&self) -> &str {
        match self {
            WeightSource::Shards(set) => set.label(),
            WeightSource::Synthetic(made) => made.label(),
        }
    }

    /// The keys.
    pub fn metadata(&self) -> &Metadata {
        match self {
            WeightSource::Shards(set) => set.metadata(),
            WeightSource::Synthetic(made) => made.metadata(),
        }
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<SourceTensor<'_>> {
        match self {
            WeightSource::Shards(set) => set.tensor(name).map(SourceTensor::of_shard),
            WeightSource::Synthetic(made) => made.tensor(name),
        }
    }

    /// All tensors, in the order of the set.
    pub fn tensors(&self) -> impl Iterator<Item = SourceTensor<'_>> {
        let count = match self {
            WeightSource::Shards(set) => set.tensors().len(),
            WeightSource::Synthetic(made) => made.len(),
        };
        (0..count).map(move |at| match self {
            WeightSource::Shards(set) => SourceTensor::of_shard(&set.tensors()[at]),
            WeightSource::Synthetic(made) => made.at(at),
        })
    }
}

impl From<ShardSet> for WeightSource {
    fn from(set: ShardSet) -> Self {
        WeightSource::Shards(set)
    }
}

impl From<SynthSource> for WeightSource {
    fn from(made: SynthSource) -> Self {
        WeightSource::Synthetic(made)
    }
}
