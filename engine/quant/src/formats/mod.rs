//! The formats, a file a family. Offsets and examples: quant-formats.md 2.
pub(crate) mod iq4;
pub(crate) mod k_minned;
pub(crate) mod k_scaled;
pub(crate) mod plain;
pub(crate) mod q5;
pub(crate) mod q8_0;
