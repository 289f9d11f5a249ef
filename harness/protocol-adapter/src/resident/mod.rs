//! The process that owns the weights for one window, and the worker's way to it (engine-protocol-v1.md 10).
//!
//! [`ResidentArgs::run`] is `cuda-engine resident`: it loads once, then [`Server`] serves one connection at a time over a Unix socket.
//! [`Resident`] is a [`Target`](crate::target::Target) on the other end. [`dialogue`] is what both say, without a socket.

mod client;
mod command;
pub mod dialogue;
mod error;
mod server;
mod stop;
mod wire;

pub use client::{PATIENCE, Resident};
pub use command::ResidentArgs;
pub use error::ResidentError;
pub use server::{Server, ServerOptions};
pub use stop::Stop;
pub use wire::{Answer, Hello, MAX_TOP_LOGITS, Op, Reply, SOCKET_PATH_BYTES, read_answer, write_answer, write_op};
