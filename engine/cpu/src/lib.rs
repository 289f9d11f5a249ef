//! The CPU backend: qwen4exp on any machine, and the code every other backend is compared with.
//!
//! [`CpuBackend`] implements the runtime's `Backend`. Each formula is one function that names its section of qwen4exp.md:
//! [`hyper`], [`gdn`], [`attention`], [`select`], [`moe`], [`ngram`], [`head`]; [`model`] strings them together. Inner
//! loops are [`simd::Kernel`]s: portable bodies compiled for several instruction sets with the same bits.
//!
//! Guaranteed (design 3): a row's bits do not depend on how many rows run together or on the number of threads; greedy
//! output does not depend on drafts.

mod attention;
mod backend;
mod dot;
mod gdn;
mod head;
mod hyper;
mod isa;
pub mod machine;
mod math;
mod matmul;
mod model;
mod moe;
mod ngram;
mod pool;
mod probe;
pub mod reference;
mod rope;
mod select;
mod simd;
mod state;
mod timeline;

pub use backend::{CpuBackend, CpuOptions, HeadNorm, Precision};
pub use isa::Isa;
pub use probe::Probe;
pub use select::Selected;
pub use timeline::CpuTimeline;
