//! Weights to the device: copied as shipped, or made there from a seed.

use std::collections::HashMap;

use cudafast_model::{SynthFile, SynthTensor};

use crate::driver::{DeviceBuffer, Kernels, Stream};
use crate::error::CudaError;
use crate::launch::{Synth, synth};
use crate::upload::{Upload, upload};
use crate::weights::DeviceTensors;

/// Copies tensors by name: room for all of them first, then their bytes in one stream.
pub(crate) fn copy(stream: &Stream, tensors: &[(&str, &[u8])]) -> Result<DeviceTensors, CudaError> {
    let room = |(name, data): &(&str, &[u8])| DeviceBuffer::new(stream.context(), name, data.len());
    let buffers = tensors.iter().map(room).collect::<Result<Vec<_>, _>>()?;
    let uploads: Vec<_> =
        tensors.iter().zip(&buffers).map(|((_, from), buffer)| Upload { from, to: buffer.all() }).collect();
    upload(stream, &uploads, &mut |_| Ok(()))?;
    let mut made = DeviceTensors::default();
    tensors.iter().zip(buffers).for_each(|((name, _), buffer)| made.insert(name, buffer));
    Ok(made)
}

/// Makes the tensors of `file` that are named: the bytes that filling it on the host gives.
pub(crate) fn make(
    stream: &Stream,
    kernels: &Kernels,
    file: &SynthFile,
    tensors: &[(&str, &[u8])],
) -> Result<DeviceTensors, CudaError> {
    let by_name: HashMap<&str, &SynthTensor> = file.tensors().iter().map(|t| (t.name(), t)).collect();
    let mut made = DeviceTensors::default();
    for (name, _) in tensors {
        let missing =
            || CudaError::Read { what: (*name).into(), reason: "the synthetic file has no such tensor".into() };
        let tensor = by_name.get(name).ok_or_else(missing)?;
        let buffer = DeviceBuffer::new(stream.context(), name, tensor.byte_len())?;
        let of =
            Synth { format: tensor.format(), key: tensor.key(), law: tensor.law(), first_block: 0, out: buffer.all() };
        synth(stream, kernels, of)?;
        made.insert(name, buffer);
    }
    Ok(made)
}
