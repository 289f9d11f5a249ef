//! Handles of the CUDA driver: context, memory, modules, one stream, graphs. No maths, no model.
//!
//! Over cudarc's raw bindings, loaded at run time. Its safe layer keeps events for every slice, which one stream does not
//! need, so the few safe types here are our own.

mod buffer;
mod context;
mod graph;
mod module;
mod stream;

pub use buffer::{DeviceBuffer, DeviceSlice, PinnedBuffer};
pub use context::{Context, DeviceInfo};
pub(crate) use graph::Graph;
pub(crate) use module::{Args, Kernels};
pub(crate) use stream::{Event, Grid, Stream};
