//! The CUDA backend: kernels, checked launchers, captured graphs.
//!
//! Everything stands behind the feature `cuda`, which needs nvcc to build and only the driver to run; without it this
//! crate is empty. Three layers (design.md 5): `driver` knows handles, memory and streams and no model; `launch` has one
//! checked launcher an operation; what is above runs a model. `KERNELS.md` maps operations to kernels.
//!
//! Device memory is read and written by one stream alone, in the order of its launches, so a `DeviceSlice` may be
//! copied and written through like a `Cell`: the host never sees it but by a copy that the stream orders too.
#![cfg(feature = "cuda")]

mod backend;
mod control;
mod cycle;
mod driver;
mod error;
mod forward;
mod launch;
mod load;
mod model;
mod prefill;
mod selftest;
mod state;
mod timeline;
mod upload;
mod weights;

pub use crate::{
    backend::{CudaBackend, DeviceRoom, Synthetic},
    driver::{Context, DeviceBuffer, DeviceInfo, DeviceSlice, PinnedBuffer},
    error::CudaError,
    model::{CudaOptions, HeadNorm, TableHome},
    selftest::{Check, SelfTest, SelfTestOptions},
    timeline::CudaTimeline,
};

/// The architectures that this build holds machine code for, `sm_90a` for one, and `compute_80` where it holds PTX that a
/// driver can compile for a later one.
pub const ARCHITECTURES: &str = env!("CUDAFAST_CUDA_BUILT_FOR");
