//! Everything this crate refuses (gguf-qwen4exp.md 7, the rows above the container).

use cudafast_gguf::shown;

/// Why a model, a draft head or a memory plan was refused. Each text says who, found, wanted, and what to do. In every
/// variant `file` is the file at fault (or the label it was opened under).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the texts print
pub enum Error {
    /// A key is missing or of another kind: the container says so itself.
    #[error(transparent)]
    Metadata(#[from] cudafast_gguf::Error),

    /// A model of another family.
    #[error("{file}: this engine runs qwen4exp; file says {}; give it a qwen4exp model", shown(found))]
    Architecture { file: String, found: String },

    /// A `qwen4exp.*` key that this engine gives no meaning to.
    #[error(
        "{file}: key `{}` is {value}, expected no such key: this engine would ignore it, and results could be wrong; use a file without it",
        shown(key)
    )]
    UnknownKey { file: String, key: String, value: String },

    /// The weights are stored in a rotated basis.
    #[error(
        "{file}: key `{key}` says weights are stored rotated, expected none: it needs the rotation of lowbitflash-rotation.md or another one, not supported yet; use a file without rotation"
    )]
    Rotation { file: String, key: String },

    /// A key out of its range.
    #[error("{file}: `{key}` = {found}, expected {expected}; use a file that says so, or convert the model again")]
    Key { file: String, key: String, found: String, expected: String },

    /// Two keys that contradict each other.
    #[error("{file}: inconsistent geometry: {relation}; convert the model again")]
    Geometry { file: String, relation: String },

    /// `compress_ratios` and `full_attention_interval` tell different stories.
    #[error(
        "{file}: layer schedule mismatch at block {block}: `{key}` has {found}, expected {expected}; convert the model again"
    )]
    LayerSchedule { file: String, key: &'static str, block: usize, found: String, expected: String },

    /// The n-gram embedding's keys or table do not fit together.
    #[error("{file}: PLE: {what} is {found}, expected {expected}; convert the model again")]
    Ngram { file: String, what: String, found: String, expected: String },

    /// The n-gram hash constants are not those the model was trained with.
    #[error(
        "{file}: PLE hash constants mismatch: {what} is {found}, expected {expected}; other constants read other rows, convert the model again"
    )]
    NgramHash { file: String, what: String, found: u64, expected: String },

    /// Token list and tensors of different sizes, or a malformed merge.
    #[error("{file}: vocabulary mismatch: {what} is {found}, expected {expected}; convert the model again")]
    Vocabulary { file: String, what: String, found: String, expected: String },

    /// A draft head (or a model packed with its head) where a model belongs.
    #[error(
        "{file}: is a draft head or holds one (`{key}` = {found}), expected a model alone; give the model's own file here and the head separately"
    )]
    HeadAsModel { file: String, key: &'static str, found: String },

    /// A tensor is not there.
    #[error("{file}: missing tensor `{name}`, expected ne {expected:?}; download the set again, or convert it again")]
    MissingTensor { file: String, name: String, expected: Vec<u64> },

    /// A tensor that the model has no use for.
    #[error(
        "{file}: unexpected tensor `{}` (ne {ne:?}), expected none of that name; this packaging is not supported, use a file without it",
        shown(name)
    )]
    UnexpectedTensor { file: String, name: String, ne: Vec<u64> },

    /// A tensor of another shape.
    #[error(
        "{file}: tensor `{name}` has ne {found:?}, expected {expected}; the file is of another model or was converted wrongly"
    )]
    TensorShape { file: String, name: String, found: Vec<u64>, expected: String },

    /// A tensor of a type its role does not allow.
    #[error("{file}: tensor `{name}` has type {found}, allowed {allowed}; pick another quantisation of the model")]
    TensorType { file: String, name: String, found: String, allowed: String },

    /// Ternary experts without the rotation that makes them readable.
    #[error(
        "{file}: tensor `{name}` has type {found}, which as experts needs the rotation of lowbitflash-rotation.md, not supported yet; pick another quantisation of the model"
    )]
    RotatedExperts { file: String, name: String, found: String },

    /// Bytes that are not what shape and format take.
    #[error("tensor `{name}`: {found} bytes given, {shape} takes {expected}; pass exactly those")]
    TensorBytes { name: String, shape: String, found: usize, expected: String },

    /// Bytes that cannot be read in place as f32.
    #[error(
        "tensor `{name}`: {found} bytes at address {address:#x} are no f32 values, expected a multiple of 4 at a multiple of 4; convert the model again with the default alignment"
    )]
    NotFloats { name: String, found: usize, address: usize },

    /// A decay that would grow.
    #[error(
        "{file}: `{name}[{index}]` = {value}: not a -exp(A_log), expected a finite number below 0; convert the model again"
    )]
    NotDecay { file: String, name: String, index: usize, value: f32 },

    /// Infinity or NaN in a vector.
    #[error("{file}: `{name}[{index}]` = {value}, expected a finite number; fetch the file again or convert it again")]
    NotFinite { file: String, name: String, index: usize, value: f32 },

    /// Gains without the `+1` that this format bakes in.
    #[error(
        "{file}: `{name}`: norm gains look zero-centred: {negative} of {len} are negative, expected fewer than 15 %: raw w was stored instead of 1 + w; convert the model again"
    )]
    ZeroCentredNorm { file: String, name: String, negative: usize, len: usize },

    /// Gains that could be either.
    #[error(
        "{file}: `{name}`: norm gains look zero-centred, perhaps: {negative} of {len} are negative, expected fewer than 15 % for 1 + w (25 % or more would be raw w); convert the model again"
    )]
    AmbiguousNorm { file: String, name: String, negative: usize, len: usize },

    /// A head for another model.
    #[error(
        "{file}: draft head does not fit {target}: {}; use the head that was made for this model",
        listed(differences)
    )]
    HeadMismatch { file: String, target: String, differences: Vec<Difference> },

    /// A head file that says of itself what its tensors deny.
    #[error("{file}: draft head does not fit: `{key}` is {shared}, but tensor `{name}` is {}; convert the head again", if *present { "present" } else { "missing" })]
    HeadSharing { file: String, key: &'static str, shared: bool, name: &'static str, present: bool },

    /// A synthetic model that no file could be.
    #[error("synthetic model: {what}: {found}, expected {expected}")]
    Synth { what: &'static str, found: u64, expected: String },

    /// Memory for synthetic weights was not to be had, or their making was ended from outside.
    #[error("{file}: tensor `{name}` ({bytes} bytes) cannot be made in memory; ask for fewer layers")]
    SynthFill { file: String, name: String, bytes: usize, source: std::io::Error },

    /// The plan is larger than the device.
    #[error("needs {}, have {}; {advice}", crate::plan::size(*needed), crate::plan::size(*available))]
    DoesNotFit { needed: u64, available: u64, advice: String },
}

/// One way in which a draft head belongs to another model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key that differs.
    pub key: String,
    /// Its value in the head file, or `missing`.
    pub found: String,
    /// What it must be for this target.
    pub expected: String,
}

/// All differences in one line: together they say which model the head was made for.
fn listed(differences: &[Difference]) -> String {
    let each: Vec<String> =
        differences.iter().map(|d| format!("`{}` is {}, expected {}", d.key, d.found, d.expected)).collect();
    each.join(", ")
}
