//! GGUF sets as bytes, names and offsets. No maths, no model knowledge.
//!
//! Start at [`ShardSet::open`], then [`ShardSet::tensor`] and [`ShardSet::metadata`]. Every size is checked at open with
//! checked arithmetic, so a [`Tensor`] cannot leave its file and nothing later has to ask again. Refusals:
//! gguf-qwen4exp.md 7, the container rows. Opening is bounded whatever the bytes claim: see [`limits`].
//!
//! [`Writer`] builds files and sets; [`RawFile`] is the same encoder without the checks, for files that must be wrong.

mod buffer;
mod error;
mod header;
mod layout;
pub mod limits;
mod metadata;
mod place;
mod raw;
mod set;
mod tensor;
mod value;
mod writer;

pub use crate::{
    buffer::TensorData,
    error::{Error, shown},
    layout::{TypeLayout, type_layout, type_layouts},
    metadata::Metadata,
    place::draft_heads_in,
    raw::{RawFile, RawKv, RawTensor},
    set::{Shard, ShardSet},
    tensor::Tensor,
    value::{Array, StrArray, Value},
    writer::{Split, Writer},
};
