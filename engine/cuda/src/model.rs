//! A model on the device: its tensors, its kernels, and the numbers that do not change.

use cudafast_model::{DraftHead, Hyperparams, Weights};

use crate::control::CONTROL_ROWS;
use crate::driver::{Context, DeviceBuffer, DeviceSlice, Kernels, Stream};
use crate::error::CudaError;
use crate::forward::{KernelScratch, Phase};
use crate::launch::{attention, gdn, gdn_chunk, hyper, ngram, select};
use crate::weights::DeviceTensors;

/// Statistics of the draft head's norm over the wide residual (qwen4exp.md 14: the sources disagree).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadNorm {
    /// One mean square over all channels.
    #[default]
    Single,
    /// One per residual stream.
    PerStream,
}

/// Where the n-gram table lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableHome {
    /// On the device where it fits beside the other weights, else on the host.
    #[default]
    Auto,
    /// On the device.
    Device,
    /// Where the file is: the host reads a token's rows and hands them over with the round.
    Host,
}

/// How the CUDA backend runs.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// Number of the device.
    pub device: u32,
    /// Draft-head norm.
    pub head_norm: HeadNorm,
    /// Home of the n-gram table.
    pub table: TableHome,
}

/// Weights and what every operation needs beside them.
pub(crate) struct Model {
    pub(crate) hp: Hyperparams,
    /// Names, shapes and formats; the bytes of all but an n-gram table on the host are on the device.
    pub(crate) weights: Weights,
    pub(crate) head: Option<DraftHead>,
    pub(crate) target: DeviceTensors,
    pub(crate) head_tensors: DeviceTensors,
    /// Constants of the n-gram hash.
    pub(crate) hash: DeviceBuffer<u64>,
    pub(crate) options: CudaOptions,
    pub(crate) kernels: Kernels,
    pub(crate) context: Context,
}

impl Model {
    pub(crate) fn new(
        context: Context,
        kernels: Kernels,
        hp: Hyperparams,
        weights: Weights,
        head: Option<DraftHead>,
        tensors: [DeviceTensors; 2],
        options: CudaOptions,
    ) -> Result<Self, CudaError> {
        let [target, head_tensors] = tensors;
        let constants = ngram::params(&hp.ngram);
        let hash = DeviceBuffer::new(&context, "n-gram hash", constants.len())?;
        Stream::new(&context)?.upload(&constants, hash.all())?;
        Ok(Self { hp, weights, head, target, head_tensors, hash, options, kernels, context })
    }

    /// Whether the n-gram table is on the device.
    pub(crate) fn table_on_device(&self) -> bool {
        self.target.holds(&self.weights.ngram_table.name)
    }

    /// Tensors that hold the embedding and the output matrix that the draft head uses.
    pub(crate) fn shared_with_head(&self) -> &DeviceTensors {
        match &self.head {
            Some(head) if !head.shares_target => &self.head_tensors,
            _ => &self.target,
        }
    }

    pub(crate) fn single_head_norm(&self) -> bool {
        self.options.head_norm == HeadNorm::Single
    }

    /// Angles of every position that `table: [positions][2][half]` has room for.
    pub(crate) fn fill_rope(&self, stream: &Stream, table: DeviceSlice<'_, f32>) -> Result<(), CudaError> {
        let (dims, theta) = (self.hp.attention.rotary_dims, f64::from(self.hp.attention.rope_theta));
        let inv_freq: Vec<f64> = (0..dims / 2).map(|i| theta.powf(-2.0 * i as f64 / dims as f64)).collect();
        let buffer = DeviceBuffer::new(&self.context, "rotary frequencies", inv_freq.len())?;
        stream.upload(&inv_freq, buffer.all())?;
        attention::rope_table(stream, &self.kernels, buffer.all(), table)?;
        stream.synchronize()
    }

    /// Weights on the device, bytes.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.target.bytes() + self.head_tensors.bytes()
    }

    /// Rows of a table on the host for the last `rows` of `tokens`: `out: [rows][P]`.
    pub(crate) fn gather_ngrams(&self, tokens: &[u32], rows: usize, out: &mut [f32]) {
        let ngram = &self.hp.ngram;
        let table = &self.weights.ngram_table;
        let mut ids = vec![0_u64; ngram.heads()];
        for (t, out) in out.chunks_exact_mut(ngram.width()).enumerate().take(rows) {
            let end = tokens.len() - rows + t + 1;
            ngram.row_ids(&tokens[end.saturating_sub(ngram.ngram)..end], &mut ids);
            for (id, out) in ids.iter().zip(out.chunks_exact_mut(ngram.row_width)) {
                table.format.decode(table.view().row(*id as usize), out);
            }
        }
    }

    /// What the kernels of a forward of `rows` rows ask for beside their operands; `visible` bounds the positions.
    pub(crate) fn kernel_scratch(&self, phase: Phase, rows: usize, visible: usize) -> KernelScratch {
        let hp = &self.hp;
        let attend = match phase {
            Phase::Decode => attention::scratch(rows, visible, &hp.attention, &hp.indexer),
            Phase::Prefill => 0,
        };
        let partials =
            hyper::parts(rows, hp.hidden, hp.streams).max(select::scratch(rows, visible, &hp.indexer)).max(attend);
        let gdn = match phase {
            Phase::Decode => gdn::scratch(rows.min(CONTROL_ROWS), &hp.gdn),
            Phase::Prefill => gdn_chunk::scratch(rows, &hp.gdn),
        };
        KernelScratch { partials, tickets: rows.max(hp.gdn.value_heads), gdn }
    }
}
