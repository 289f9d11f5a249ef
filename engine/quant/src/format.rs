//! The registry: one line a format.

use crate::{
    Block, Encode, Error, UnpackedRow, block,
    formats::{
        iq::{Iq2Xs, Iq2Xxs, Iq3Xxs},
        iq4::{Iq4Nl, Iq4Xs},
        mxfp4::Mxfp4,
        plain,
        prism::{Pq2_0, Ptq1_0},
        q2_k::Q2K,
        q3_k::Q3K,
        q4::{Q4_0, Q4_1},
        q4_q5_k::{Q4K, Q5K},
        q5::{Q5_0, Q5_1},
        q6_k::Q6K,
        q8_0::Q8_0,
        tq::{Tq1_0, Tq2_0},
    },
};

type DecodeFn = fn(&[u8], &mut [f32]);
type UnpackFn = fn(&[u8], &mut UnpackedRow);
type EncodeFn = fn(&[f32], &mut Vec<u8>) -> Result<(), Error>;

/// One number format of a weight tensor.
#[derive(Debug)]
pub struct Format {
    /// Name of the type: `Q8_0`.
    pub name: &'static str,
    /// Type number in a tensor directory.
    pub ggml_id: u32,
    /// Elements a block.
    pub block_elems: usize,
    /// Bytes a block.
    pub block_bytes: usize,
    /// Floats, or blocks of codes and scales.
    pub kind: Kind,
    decode: DecodeFn,
    unpack: Option<UnpackFn>,
    encode: Option<EncodeFn>,
}

/// How a format stores its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One float an element: F32, F16, BF16. Such matrices take f32 activations.
    Plain,
    /// Integer codes with scales: they take int8 activations.
    Block {
        /// Elements that share one scale: 16, 32, 128 or 256.
        sub: usize,
        /// Whether a scale comes with an offset.
        offset: bool,
    },
}

static FORMATS: [Format; 23] = [
    Format::plain("F32", 0, 4, plain::decode_f32, plain::encode_f32),
    Format::plain("F16", 1, 2, plain::decode_f16, plain::encode_f16),
    Format::encodable::<Q4_0>(),
    Format::encodable::<Q4_1>(),
    Format::encodable::<Q5_0>(),
    Format::encodable::<Q5_1>(),
    Format::encodable::<Q8_0>(),
    Format::of::<Q2K>(),
    Format::of::<Q3K>(),
    Format::of::<Q4K>(),
    Format::of::<Q5K>(),
    Format::of::<Q6K>(),
    Format::of::<Iq2Xxs>(),
    Format::of::<Iq2Xs>(),
    Format::of::<Iq3Xxs>(),
    Format::of::<Iq4Nl>(),
    Format::of::<Iq4Xs>(),
    Format::plain("BF16", 30, 2, plain::decode_bf16, plain::encode_bf16),
    Format::encodable::<Tq1_0>(),
    Format::encodable::<Tq2_0>(),
    Format::encodable::<Mxfp4>(),
    Format::encodable::<Pq2_0>(),
    Format::encodable::<Ptq1_0>(),
];

/// Every format, by ascending type number.
pub fn formats() -> &'static [Format] {
    &FORMATS
}

/// The format with this type number. `None` is for the caller to refuse by name.
pub fn format_by_id(id: u32) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.ggml_id == id)
}

/// The format of this name, in either case: `Q4_K`, `q4_k`.
pub fn format_by_name(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.name.eq_ignore_ascii_case(name))
}

/// Code that is written once for every block format and compiled for each: what [`Format::with_block`] calls.
pub trait BlockVisitor {
    /// What it comes to.
    type Out;
    /// Called with the format's block type.
    fn visit<B: Block>(self) -> Self::Out;
}

/// Calls the visitor with the block type whose number is `id`; one line for all of [`FORMATS`]' blocks.
macro_rules! visit {
    ($id:expr, $visitor:expr, $($block:ty),+ $(,)?) => {
        match $id {
            $(<$block as Block>::GGML_ID => Some($visitor.visit::<$block>()),)+
            _ => None,
        }
    };
}

impl Format {
    /// Calls `visitor` with this format's block type, so that the caller's code is compiled for it. `None` for
    /// [`Kind::Plain`].
    pub fn with_block<V: BlockVisitor>(&self, visitor: V) -> Option<V::Out> {
        visit!(
            self.ggml_id,
            visitor,
            Q4_0,
            Q4_1,
            Q5_0,
            Q5_1,
            Q8_0,
            Q2K,
            Q3K,
            Q4K,
            Q5K,
            Q6K,
            Iq2Xxs,
            Iq2Xs,
            Iq3Xxs,
            Iq4Nl,
            Iq4Xs,
            Tq1_0,
            Tq2_0,
            Mxfp4,
            Pq2_0,
            Ptq1_0
        )
    }

    const fn of<B: Block>() -> Self {
        Self {
            name: B::NAME,
            ggml_id: B::GGML_ID,
            block_elems: B::ELEMS,
            block_bytes: B::BYTES,
            kind: Kind::Block { sub: B::SUB, offset: B::OFFSET },
            decode: |bytes, out| block::decode::<B>(bytemuck::cast_slice(bytes), out),
            unpack: Some(|bytes, row| block::unpack_row::<B>(bytemuck::cast_slice(bytes), row)),
            encode: None,
        }
    }

    const fn encodable<B: Encode>() -> Self {
        let mut format = Self::of::<B>();
        format.encode = Some(block::encode::<B>);
        format
    }

    const fn plain(name: &'static str, ggml_id: u32, bytes: usize, decode: DecodeFn, encode: EncodeFn) -> Self {
        Self {
            name,
            ggml_id,
            block_elems: 1,
            block_bytes: bytes,
            kind: Kind::Plain,
            decode,
            unpack: None,
            encode: Some(encode),
        }
    }

    /// Bytes of a row of `cols` elements; `None` unless that is a whole number of blocks whose size fits.
    pub fn row_bytes(&self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_elems) {
            return None;
        }
        (cols / self.block_elems).checked_mul(self.block_bytes)
    }

    /// The values of whole blocks, bit-exact (quant-formats.md 2).
    ///
    /// # Panics
    /// When `bytes` is not a whole number of blocks or `out` does not hold exactly their elements: a row was checked
    /// with [`row_bytes`](Self::row_bytes) before.
    pub fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        (self.decode)(bytes, out);
    }

    /// Appends the blocks that hold `x` (quant-formats.md 3). On an error `out` is as it was.
    pub fn encode(&self, x: &[f32], out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(encode) = self.encode else {
            let with: Vec<_> = FORMATS.iter().filter(|f| f.encode.is_some()).map(|f| f.name).collect();
            return Err(Error::NoEncoder { format: self.name, encodable: with.join(", ") });
        };
        if !x.len().is_multiple_of(self.block_elems) {
            return Err(Error::PartialBlock { format: self.name, values: x.len(), block_elems: self.block_elems });
        }
        encode(x, out)
    }

    /// One row of whole blocks in group form.
    ///
    /// # Panics
    /// When the format is [`Kind::Plain`], or `bytes` is not a whole number of blocks.
    pub fn unpack_row(&self, bytes: &[u8], row: &mut UnpackedRow) {
        let Some(unpack) = self.unpack else { panic!("{} has no group form", self.name) };
        unpack(bytes, row);
    }
}
