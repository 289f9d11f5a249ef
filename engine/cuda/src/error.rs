//! What can go wrong on a device (design.md 7).

use std::sync::Arc;

/// Why a call on the device did not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not on this machine.
    #[error("no CUDA driver: libcuda.so.1 cannot be loaded; install NVIDIA's driver, or use the CPU backend")]
    NoDriver,
    /// The driver does not know this build's kernels.
    #[error("the CUDA driver speaks version {found}, these kernels need {needed}; update NVIDIA's driver")]
    OldDriver {
        /// What it said, as `major.minor`.
        found: String,
        /// The least that will do.
        needed: String,
    },
    /// No device of that number.
    #[error("CUDA device {ordinal} does not exist, there are {count}; name another")]
    NoDevice {
        /// Number asked for.
        ordinal: u32,
        /// Devices there are.
        count: u32,
    },
    /// A device older than any kernel of this build.
    #[error("{name} has compute capability {major}.{minor}; 8.0 or later is needed")]
    OldDevice {
        /// The device's name.
        name: String,
        /// Compute capability.
        major: i32,
        /// Compute capability.
        minor: i32,
    },
    /// Memory that is not there.
    #[error("{what}: {bytes} bytes of {place} memory cannot be had, {free} are free; shorten the context or free some")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// Bytes asked for.
        bytes: u64,
        /// `device` or `pinned host`.
        place: &'static str,
        /// Bytes free on the device.
        free: u64,
    },
    /// The driver refused a call; the context is whole.
    #[error("{call}: the CUDA driver says {code}")]
    Driver {
        /// What was called, and for what.
        call: String,
        /// Its name and text for the reason.
        code: String,
    },
    /// A kernel died. The context died with it.
    #[error("the GPU faulted during {during}: {code}; this process cannot use the device again, restart it")]
    Fault {
        /// The kernel, or the kernels since the last synchronisation.
        during: String,
        /// Name and text of the driver.
        code: String,
    },
    /// A call after a [`Fault`](Self::Fault).
    #[error("the device is lost; restart the process")]
    Lost {
        /// The fault.
        source: Arc<CudaError>,
    },
    /// This build has no such kernel: a launcher and its file disagree.
    #[error("kernels/{file}.cu has no `{symbol}` for this device")]
    NoKernel {
        /// Stem of the file.
        file: String,
        /// Symbol.
        symbol: String,
    },
    /// An argument of a launcher that does not fit the others.
    #[error("{op}: {what} is {found}, expected {expected}")]
    Argument {
        /// The launcher.
        op: &'static str,
        /// The argument.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A weight file that could not be read.
    #[error("{what}: cannot be read: {reason}")]
    Read {
        /// The tensor.
        what: String,
        /// The reason.
        reason: String,
    },
}

impl CudaError {
    /// Whether the device is lost to this process.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Fault { .. } | Self::Lost { .. })
    }
}
