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
    /// A segment list that no rotation has (lowbitflash-rotation.md 3, rules 5 and 12).
    #[error(
        "{tensor}: rotation segments {found:?}; wanted 1 to 8 powers of two from 128 to 1024; fetch the file again"
    )]
    RotationSegments {
        /// Tensor the rotation belongs to.
        tensor: String,
        /// Segments found, the first nine.
        found: Vec<i32>,
    },
    /// The signs do not cover the segments (lowbitflash-rotation.md 3, rule 6).
    #[error("{tensor}: {found} rotation signs for segments of {wanted} elements together; fetch the file again")]
    RotationSignCount {
        /// Tensor the rotation belongs to.
        tensor: String,
        /// Signs found.
        found: usize,
        /// Sum of the segments.
        wanted: usize,
    },
    /// A sign that is neither +1 nor -1 (lowbitflash-rotation.md 3, rule 6).
    #[error("{tensor}: rotation sign {index} is {found}; wanted 1 or -1; fetch the file again")]
    RotationSign {
        /// Tensor the rotation belongs to.
        tensor: String,
        /// Index of the sign.
        index: usize,
        /// The sign found.
        found: i32,
    },
    /// Rows of another width than the rotation's (lowbitflash-rotation.md 3, rule 12). They are never left unrotated.
    #[error("{tensor}: {values} values are not whole rows of the rotation's {width}; rotate the tensor's own input")]
    RotationWidth {
        /// Tensor the rotation belongs to.
        tensor: String,
        /// Values handed in.
        values: usize,
        /// Sum of the segments.
        width: usize,
    },
}
