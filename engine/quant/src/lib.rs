//! Block-quantised number formats, int8 activations, exact integer dots and the expert rotation.
//!
//! Start at [`format_by_id`] for a [`Format`] chosen at run time, or at [`blocks`] and [`Block`] for code generic over one
//! format. The scalar code here *is* the definition of the right answer; every faster kernel elsewhere is tested against
//! it bit for bit. Nothing here knows files, tensors or models.
//!
//! * A format turns a row of bytes into values ([`Format::decode`]) or into integer codes and scales
//!   ([`Format::unpack_row`]), both bit-exact against published vectors (quant-formats.md 2).
//! * [`ActRows`] holds activations as int8 in groups of 32 (quant-formats.md 4a).
//! * [`dot_ref`] folds the two (quant-formats.md 5), in an order that is part of its contract.
//! * [`Rotation`] turns the input of the rotated experts into their basis (lowbitflash-rotation.md 5).
//!
//! ```
//! # fn main() -> Result<(), cudafast_quant::Error> {
//! use cudafast_quant::{ActRows, UnpackedRow, dot_ref, format_by_name};
//!
//! let q8_0 = format_by_name("Q8_0").expect("a known format");
//! let (mut bytes, mut row) = (Vec::new(), UnpackedRow::new());
//! q8_0.encode(&[0.5; 64], &mut bytes)?;
//! q8_0.unpack_row(&bytes, &mut row);
//! let activations = ActRows::quantise(&[2.0; 64], 64)?;
//! assert!((dot_ref::<8>(&row, activations.row(0)) - 64.0).abs() < 0.02);
//! # Ok(())
//! # }
//! ```
mod act;
mod block;
mod dot;
mod error;
mod float16;
mod format;
mod formats;
mod rotation;

pub mod synth;

pub mod llama;

pub use crate::{
    act::{ActRow, ActRowMut, ActRows, GROUP},
    block::{Block, Encode, UnpackedRow, decode, unpack_row, unpack_row_with},
    dot::dot_ref,
    error::Error,
    float16::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16},
    format::{BlockVisitor, Format, Kind, format_by_id, format_by_name, formats},
    rotation::{Rotation, converter_segments, converter_signs},
};

/// The block structs, one a format: for kernels that are written for one format rather than for all.
pub mod blocks {
    pub use crate::formats::{
        iq::{Iq2Xs, Iq2Xxs, Iq3Xxs},
        iq4::{Iq4Nl, Iq4Xs},
        mxfp4::Mxfp4,
        prism::{Pq2_0, Ptq1_0},
        q2_k::Q2K,
        q3_k::Q3K,
        q4::{Q4_0, Q4_1},
        q4_q5_k::{Q4K, Q5K},
        q5::{Q5_0, Q5_1},
        q6_k::Q6K,
        q8_0::Q8_0,
        tq::{Tq1_0, Tq2_0},
    };
}
