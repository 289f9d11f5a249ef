//! The formats, a file a family. Offsets and examples: quant-formats.md 2.
mod base3;
mod extrema;
pub(crate) mod iq;
pub(crate) mod iq4;
pub(crate) mod iq_grids;
mod iq_words;
pub(crate) mod mxfp4;
pub(crate) mod plain;
pub(crate) mod prism;
pub(crate) mod q2_k;
pub(crate) mod q3_k;
pub(crate) mod q4;
pub(crate) mod q4_q5_k;
pub(crate) mod q5;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
pub(crate) mod tq;
