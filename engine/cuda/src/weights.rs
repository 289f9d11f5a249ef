//! Weights on the device: the bytes of every tensor as shipped, found by name.
//!
//! [`Weights`](cudafast_model::Weights) and [`DraftHead`](cudafast_model::DraftHead) stay on the host as what names,
//! shapes and formats there are; this holds what they name. Whoever captures a graph looks tensors up once.

use std::collections::HashMap;

use cudafast_model::{Experts, Matrix, Vector};

use crate::driver::{DeviceBuffer, DeviceSlice};
use crate::error::CudaError;
use crate::launch::{DeviceExperts, DeviceMatrix};

/// The tensors of one file on the device.
#[derive(Debug, Default)]
pub(crate) struct DeviceTensors {
    by_name: HashMap<String, DeviceBuffer<u8>>,
    bytes: u64,
}

impl DeviceTensors {
    pub(crate) fn insert(&mut self, name: &str, buffer: DeviceBuffer<u8>) {
        self.bytes += buffer.len() as u64;
        self.by_name.insert(name.to_owned(), buffer);
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a tensor is here: an n-gram table may stay on the host.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    fn find(&self, name: &str) -> Result<DeviceSlice<'_, u8>, CudaError> {
        let missing = || CudaError::Read { what: name.into(), reason: "it was not loaded to the device".into() };
        self.by_name.get(name).map(DeviceBuffer::all).ok_or_else(missing)
    }

    pub(crate) fn matrix(&self, of: &Matrix) -> Result<DeviceMatrix<'_>, CudaError> {
        Ok(DeviceMatrix { format: of.format, rows: of.rows, cols: of.cols, bytes: self.find(&of.name)? })
    }

    pub(crate) fn experts(&self, of: &Experts) -> Result<DeviceExperts<'_>, CudaError> {
        let Experts { name, format, experts, rows, cols, .. } = of;
        Ok(DeviceExperts { format, experts: *experts, rows: *rows, cols: *cols, bytes: self.find(name)? })
    }

    pub(crate) fn vector(&self, of: &Vector) -> Result<DeviceSlice<'_, f32>, CudaError> {
        Ok(self.find(&of.name)?.cast())
    }
}
