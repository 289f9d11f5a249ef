//! Where a model runs, and how: what the flags of a device come to.

use cudafast_cpu::{CpuOptions, HeadNorm};

/// A device and its options.
#[derive(Debug, Clone)]
pub(crate) enum Runner {
    Cpu(CpuOptions),
    #[cfg(feature = "cuda")]
    Cuda(cudafast_cuda::CudaOptions),
}

impl Runner {
    /// The same with the draft head's norm as asked for.
    pub(crate) fn with_head_norm(self, norm: HeadNorm) -> Self {
        match self {
            Runner::Cpu(options) => Runner::Cpu(CpuOptions { head_norm: norm, ..options }),
            #[cfg(feature = "cuda")]
            Runner::Cuda(options) => {
                let head_norm = match norm {
                    HeadNorm::Single => cudafast_cuda::HeadNorm::Single,
                    HeadNorm::PerStream => cudafast_cuda::HeadNorm::PerStream,
                };
                Runner::Cuda(cudafast_cuda::CudaOptions { head_norm, ..options })
            }
        }
    }

    /// The same with so many threads, where the device has them.
    pub(crate) fn with_threads(self, threads: usize) -> Self {
        match self {
            Runner::Cpu(options) => Runner::Cpu(CpuOptions { threads, ..options }),
            #[cfg(feature = "cuda")]
            other => other,
        }
    }

    /// The CPU's options, if this is the CPU.
    pub(crate) fn cpu(&self) -> Option<&CpuOptions> {
        match self {
            Runner::Cpu(options) => Some(options),
            #[cfg(feature = "cuda")]
            Runner::Cuda(_) => None,
        }
    }

    /// Whether this is the CPU.
    pub(crate) fn is_cpu(&self) -> bool {
        self.cpu().is_some()
    }
}
