//! The device as a [`Backend`].

use std::sync::Arc;

use cudafast_model::{DraftHead, Home, Hyperparams, MemoryPlan, SynthFile, Weights};
use cudafast_runtime::{Backend, BackendError, Timeline, TimelineOptions};

use crate::driver::{Context, Kernels, Stream};
use crate::error::CudaError;
use crate::load;
use crate::model::{CudaOptions, Model, TableHome};
use crate::timeline::{CudaTimeline, device};
use crate::{cycle, prefill, state};

/// Left to the driver, to other kernels' stacks, and to what others take meanwhile.
const RESERVE_BYTES: u64 = 512 << 20;

/// Which bytes of bound weights are made on the device instead of copied: those of synthetic files. Outlines of them do to
/// bind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Synthetic<'a> {
    /// The model's file, if it is one.
    pub model: Option<&'a SynthFile>,
    /// The draft head's, if it is one.
    pub head: Option<&'a SynthFile>,
}

/// A model on a CUDA device.
pub struct CudaBackend {
    model: Arc<Model>,
}

impl CudaBackend {
    /// Copies bound weights to the device. Refuses what cannot fit before it copies anything.
    pub fn new(
        hyperparams: Hyperparams,
        weights: Weights,
        head: Option<DraftHead>,
        made: Synthetic<'_>,
        options: &CudaOptions,
    ) -> Result<Self, CudaError> {
        let context = Context::open(options.device)?;
        let table_home = home(&context, &weights, head.as_ref(), made, options)?;
        let kernels = Kernels::load(&context)?;
        let stream = Stream::new(&context)?;
        let keep = |name: &str| table_home == Home::Device || name != weights.ngram_table.name;
        let tensors = {
            let head_tensors = head.as_ref().map(DraftHead::tensors).unwrap_or_default();
            let head_tensors: Vec<(&str, &[u8])> =
                head_tensors.into_iter().map(|(name, data)| (name, &**data)).collect();
            let target = weights.tensors().into_iter().filter(|(name, _)| keep(name));
            let target: Vec<(&str, &[u8])> = target.map(|(name, data)| (name, &**data)).collect();
            let load = |file: Option<&SynthFile>, tensors: &[(&str, &[u8])]| match file {
                Some(file) => load::make(&stream, &kernels, file, tensors),
                None => load::copy(&stream, tensors),
            };
            [load(made.model, &target)?, load(made.head, &head_tensors)?]
        };
        stream.synchronize()?;
        let options = options.clone();
        Ok(Self { model: Arc::new(Model::new(context, kernels, hyperparams, weights, head, tensors, options)?) })
    }

    /// As [`Backend::open`], with the device's own type.
    pub fn open_timeline(&self, options: &TimelineOptions) -> Result<CudaTimeline, BackendError> {
        let limit = self.model.hp.context_tokens;
        if options.ctx_tokens == 0 || options.ctx_tokens > limit {
            return Err(BackendError::ContextFull { needed: options.ctx_tokens, limit });
        }
        let plan = self.memory_plan(options.ctx_tokens);
        let room = self.room().bytes().map_err(device("opening a timeline"))?;
        if let Err(refused) = plan.check(room) {
            return Err(BackendError::Device { operation: "opening a timeline".into(), why: refused.to_string() });
        }
        CudaTimeline::new(Arc::clone(&self.model), options.ctx_tokens).map_err(device("opening a timeline"))
    }

    /// The card's compute capability.
    pub fn capability(&self) -> (i32, i32) {
        self.model.context.info().capability
    }

    /// Who to ask how much memory a plan may take.
    pub fn room(&self) -> DeviceRoom {
        DeviceRoom(Arc::clone(&self.model))
    }
}

/// The device's memory, as a plan of the model on it sees it.
#[derive(Clone)]
pub struct DeviceRoom(Arc<Model>);

impl DeviceRoom {
    /// Bytes that a plan may take on the device: what is free, and what the model holds already.
    pub fn bytes(&self) -> Result<u64, CudaError> {
        let (free, _) = self.0.context.memory()?;
        Ok((free + self.0.device_bytes()).saturating_sub(RESERVE_BYTES))
    }
}

/// Where the n-gram table goes. Refuses weights that do not fit.
fn home(
    context: &Context,
    weights: &Weights,
    head: Option<&DraftHead>,
    made: Synthetic<'_>,
    options: &CudaOptions,
) -> Result<Home, CudaError> {
    let mut all = 0_u64;
    for (_, data) in weights.tensors().into_iter().chain(head.map(DraftHead::tensors).unwrap_or_default()) {
        all += data.len() as u64;
    }
    let table = weights.ngram_table.data.len() as u64;
    let (free, _) = context.memory()?;
    let room = free.saturating_sub(RESERVE_BYTES);
    let refuse = |bytes| Err(CudaError::OutOfMemory { what: "the weights".into(), bytes, place: "device", free: room });
    // A table made on the device has no copy on the host.
    let must = options.table == TableHome::Device || made.model.is_some();
    match options.table {
        TableHome::Host if !must => {
            if all - table <= room {
                Ok(Home::Disk)
            } else {
                refuse(all - table)
            }
        }
        _ if all <= room => Ok(Home::Device),
        _ if must => refuse(all),
        _ if all - table <= room => Ok(Home::Disk),
        _ => refuse(all - table),
    }
}

impl Backend for CudaBackend {
    fn describe(&self) -> String {
        let info = self.model.context.info();
        let (major, minor) = info.capability;
        format!("cuda:{}, {} (sm_{major}{minor}), driver {}", self.model.options.device, info.name, info.driver)
    }

    fn hyperparams(&self) -> &Hyperparams {
        &self.model.hp
    }

    fn has_draft_head(&self) -> bool {
        self.model.head.is_some()
    }

    fn memory_plan(&self, ctx_tokens: usize) -> MemoryPlan {
        let model = &*self.model;
        let home = if model.table_on_device() { Home::Device } else { Home::Disk };
        let scratch = prefill::bytes(model, ctx_tokens)
            + cycle::bytes(model, ctx_tokens)
            + state::extra_bytes(&model.hp, model.head.is_some());
        MemoryPlan::new(&model.hp, &model.weights, model.head.as_ref(), ctx_tokens, size_of::<u16>())
            .with_ngram_table(home)
            .with_scratch(scratch)
    }

    fn open(&self, options: &TimelineOptions) -> Result<Box<dyn Timeline>, BackendError> {
        Ok(Box::new(self.open_timeline(options)?))
    }
}
