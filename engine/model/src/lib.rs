//! qwen4exp as data: its numbers, its tensors, its memory. No maths.
//!
//! Start at [`WeightSource`] (made from a [`ShardSet`](cudafast_gguf::ShardSet)), then [`Hyperparams::from_source`], then
//! [`Weights::bind`], then [`DraftHead::bind`] for a file with an MTP head:
//!
//! ```no_run
//! use cudafast_gguf::ShardSet;
//! use cudafast_model::{DraftHead, Hyperparams, WeightSource, Weights};
//!
//! let target = WeightSource::from(ShardSet::open("model-00001-of-00004.gguf".as_ref())?);
//! let hyperparams = Hyperparams::from_source(&target)?;
//! let weights = Weights::bind(&target, &hyperparams)?;
//! let head = WeightSource::from(ShardSet::open("mtp-model.gguf".as_ref())?);
//! let head = DraftHead::bind(&head, &target, &hyperparams, &weights)?;
//! # Ok::<(), cudafast_model::Error>(())
//! ```
//!
//! What is bound is whole: every key was read and agrees with the others, every tensor has the exact shape and an allowed
//! type, no tensor or key of the file was passed over, and no later step has to ask again. What does not fit is refused,
//! never repaired ([`Error`]; gguf-qwen4exp.md 7, the rows above the container).
//!
//! Without a file, [`SynthSpec`] makes a model of any size from a seed.
//!
//! [`MemoryPlan`] is every byte before it is allocated, [`Inspection`] what a file holds, and [`NgramParams::row_ids`]
//! which rows of the n-gram table a token reads.

mod bind;
mod draft;
mod error;
mod family;
mod hyperparams;
mod inspect;
mod keys;
mod matrix;
mod ngram;
mod plan;
mod read;
mod source;
mod synth;
mod weights;

pub use crate::{
    error::{Difference, Error},
    family::Family,
    hyperparams::{AttentionParams, GdnParams, Hyperparams, IndexerParams, LayerKind, MoeParams},
    inspect::{FamilySummary, Inspection, TensorSummary, TypeSummary},
    matrix::{Experts, Matrix, MatrixRef, Vector},
    ngram::NgramParams,
    plan::{Home, MemoryPlan, PlanItem, PlanLine},
    source::{SourceTensor, WeightSource},
    synth::{SynthFile, SynthShape, SynthSource, SynthSpec, SynthStep, SynthTensor, SynthTypes},
    weights::{
        AttentionWeights, DraftHead, GdnWeights, HyperConnection, HyperRead, Layer, Mixer, MoeWeights, NgramWeights,
        Weights,
    },
};
