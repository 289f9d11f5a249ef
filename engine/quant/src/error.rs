/// What this crate refuses. Callers that know a tensor's name add it to the chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row that is not a whole number of groups of 32 cannot be quantised as activations.
    #[error("activation rows of {cols} values are not a whole number of groups of 32; pad the row or keep it in f32")]
    ActCols {
        /// Row length asked for.
        cols: usize,
    },
    /// The values handed in do not fill whole rows.
    #[error("{values} values do not fill whole rows of {cols}; pass a slice of rows * {cols} values")]
    PartialRows {
        /// Values handed in.
        values: usize,
        /// Row length asked for.
        cols: usize,
    },
    /// The format has no encoder.
    #[error("{format} has no encoder; encode to one of {encodable} or take the bytes from a file")]
    NoEncoder {
        /// Name of the format.
        format: &'static str,
        /// Formats that have an encoder.
        encodable: String,
    },
    /// The values do not fill whole blocks.
    #[error(
        "{values} values are not a whole number of {format} blocks of {block_elems}; choose a format that divides the row"
    )]
    PartialBlock {
        /// Name of the format.
        format: &'static str,
        /// Values handed in.
        values: usize,
        /// Elements a block.
        block_elems: usize,
    },
    /// NaN and infinity have no code in a block format.
    #[error("value {index} is {value}, which {format} cannot hold; clean the source or store it as F32")]
    NotFinite {
        /// Name of the format.
        format: &'static str,
        /// Index of the value in the slice handed in.
        index: usize,
        /// The value.
        value: f32,
    },
    /// The block scale overflows its stored type.
    #[error(
        "the values from {index} on are too large for the block scale of {format}; rescale them or store them as F32"
    )]
    ScaleOverflow {
        /// Name of the format.
        format: &'static str,
        /// Index of the first value of the block.
        index: usize,
    },
}
