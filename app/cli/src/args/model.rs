//! Which model, and how the device runs it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use cudafast_cpu::{CpuOptions, HeadNorm, Isa, Precision};

use super::Synthetic;
use crate::failure::Failure;
use crate::runner::Runner;

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// A .gguf file, any shard of a set, or a directory that holds one model. Left out: the embedded model
    #[arg(short, long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// Instead of a model's files: random weights in memory, and a draft head to go with them. NAME=VALUE pairs of layers,
    /// vocab, ngram-rows, seed, types, shape, as in `cudafast synth`; e.g. layers=4,ngram-rows=1000000
    #[arg(long, value_name = "SPEC", conflicts_with = "model")]
    pub(crate) synth: Option<Synthetic>,
}

/// Which draft head.
#[derive(Debug, Args)]
pub(crate) struct HeadArgs {
    /// The draft head. Left out: the one mtp-*.gguf beside the model, if there is exactly one
    #[arg(long, value_name = "FILE", conflicts_with = "no_mtp")]
    pub(crate) mtp_model: Option<PathBuf>,
    /// Load no draft head
    #[arg(long)]
    pub(crate) no_mtp: bool,
}

/// How it drafts, for commands that do; to stand beside [`HeadArgs`].
#[derive(Debug, Args)]
pub(crate) struct DraftArgs {
    /// How the draft head's input norm takes its mean square. Changes acceptance, never the text
    #[arg(long, default_value = "single", value_name = "MODE", conflicts_with = "no_mtp")]
    hnorm: Hnorm,
}

impl DraftArgs {
    /// `runner` with the head's norm as asked for.
    pub(crate) fn apply(&self, runner: Runner) -> Runner {
        runner.with_head_norm(match self.hnorm {
            Hnorm::Single => HeadNorm::Single,
            Hnorm::PerStream => HeadNorm::PerStream,
        })
    }
}

/// How the device runs.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// Worker threads on the CPU, at most 1024; 0 = every core
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    threads: usize,
}

impl DeviceArgs {
    /// What the device is asked for; refuses one this build does not have. To be asked first. The head's norm is for
    /// [`DraftArgs`] to say.
    pub(crate) fn runner(&self) -> Result<Runner, Failure> {
        self.backend.runner(self.threads)
    }
}

/// The same without the number of threads, for a command that takes several.
#[derive(Debug, Args)]
pub(crate) struct BackendArgs {
    /// Where to run: cpu, cuda, or cuda:N for card N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: Device,
    /// Debug switch: f32 activations and caches instead of int8 activations and BF16 caches. Slower
    #[arg(long)]
    pub(crate) f32: bool,
    /// Use no wider instructions on the CPU than these: portable, dotprod, avx2 or avx512. Left out: the widest the machine
    /// has. Changes speed, never a bit
    #[arg(long, value_name = "SET")]
    pub(crate) isa: Option<Isa>,
}

impl BackendArgs {
    /// As [`DeviceArgs::runner`].
    pub(crate) fn runner(&self, threads: usize) -> Result<Runner, Failure> {
        if let Device::Cuda(card) = self.device {
            return self.cuda(card, threads);
        }
        if let Some(isa) = self.isa {
            Isa::limit(isa);
        }
        Ok(Runner::Cpu(CpuOptions {
            threads,
            precision: if self.f32 { Precision::F32 } else { Precision::Int8 },
            head_norm: HeadNorm::default(),
        }))
    }

    /// Flags of the CPU are refused: they would do nothing.
    #[cfg(feature = "cuda")]
    fn cuda(&self, device: u32, threads: usize) -> Result<Runner, Failure> {
        let set = [("--f32", self.f32), ("--isa", self.isa.is_some()), ("--threads", threads != 0)];
        match set.iter().find(|(_, set)| *set) {
            Some((flag, _)) => Err(Failure::Idle { flag, with: "with --device cuda", needs: "--device cpu" }),
            None => Ok(Runner::Cuda(cudafast_cuda::CudaOptions { device, ..cudafast_cuda::CudaOptions::default() })),
        }
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(&self, card: u32, _: usize) -> Result<Runner, Failure> {
        Err(Failure::NoCuda { device: format!("cuda:{card}") })
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Hnorm {
    /// One mean square over all channels
    Single,
    /// One for each residual stream
    PerStream,
}

/// More threads than any machine has cores would only hang it.
const MAX_THREADS: usize = 1024;

/// A number of threads.
pub(super) fn threads(text: &str) -> Result<usize, String> {
    let refused = || format!("expected 0 to {MAX_THREADS} (0 = every core)");
    text.parse().ok().filter(|threads| *threads <= MAX_THREADS).ok_or_else(refused)
}

/// Where to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    Cpu,
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let card = |text: &str| text.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        match text {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => card(text).map(Device::Cuda).ok_or_else(|| "expected cpu, cuda, or cuda:N".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_whole_or_refused() {
        assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cpu:0"] {
            assert!(bad.parse::<Device>().is_err(), "{bad}");
        }
    }
}
