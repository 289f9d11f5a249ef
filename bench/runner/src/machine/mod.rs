//! The machine around a run: whose it is, how quiet, how cool, and whether its files stay.

mod cool;
mod device;
mod lock;
mod quiet;
mod stamps;

use std::io;
use std::path::PathBuf;

use crate::interrupt::Interrupted;

pub use self::cool::{Clock, CoolError, CoolState, Demand, Thermometer, cool_gate};
pub use self::device::{CommandThermometer, Device, DeviceProcess, NvidiaSmi, expect_alone};
pub use self::lock::{DeviceLock, LockError};
pub use self::quiet::{Quiet, QuietReport, one_minute_load, wait_until_quiet};
pub use self::stamps::Stamps;

/// Why nothing is measured on this machine now.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Somebody else computes there.
    #[error("DEVICE-HAS-OTHER-PROCESS: {others} computes on the device too; end it")]
    NotAlone {
        /// Who.
        others: String,
    },
    /// It cannot be told.
    #[error("DEVICE-UNREADABLE: {program} {what}: gives no reading; check the driver")]
    Unreadable {
        /// Asked.
        program: PathBuf,
        /// For this.
        what: String,
    },
    /// A limit without anything to hold it against.
    #[error("DEVICE-UNREADABLE: the track limits the device's use and there is no device reader")]
    NoDevice,
    /// `/proc/loadavg` is not there.
    #[error("MACHINE-NOT-QUIET: /proc/loadavg cannot be read")]
    LoadUnreadable,
    /// It does other things.
    #[error("MACHINE-NOT-QUIET: after {waited_s} s the 1-minute load is {load}, below {max_load} is wanted{gpu}")]
    NotQuiet {
        /// So long.
        waited_s: u64,
        /// Now.
        load: f64,
        /// Wanted.
        max_load: f64,
        /// The device's part.
        gpu: String,
    },
    /// A pinned file was touched.
    #[error("PINNED-FILE-CHANGED: {path} was written or replaced during the run")]
    FileChanged {
        /// Which.
        path: PathBuf,
    },
    /// A pinned file is not there.
    #[error("{path}: cannot be read")]
    NoStamp {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody wants the run to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl MachineError {
    /// The name it is refused by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotAlone { .. } => "DEVICE-HAS-OTHER-PROCESS",
            Self::Unreadable { .. } | Self::NoDevice => "DEVICE-UNREADABLE",
            Self::LoadUnreadable | Self::NotQuiet { .. } => "MACHINE-NOT-QUIET",
            Self::FileChanged { .. } => "PINNED-FILE-CHANGED",
            Self::NoStamp { .. } => "Io",
            Self::Interrupted(_) => "Interrupted",
        }
    }
}
