//! The one stream: launches, copies, capture.

use std::{cell::Cell, fmt};

use bytemuck::Pod;
use cudarc::driver::sys;

use super::{
    buffer::{DeviceSlice, PinnedBuffer},
    context::Context,
    graph::Graph,
    module::{Args, Function},
};
use crate::error::CudaError;

/// How a kernel is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks.
    pub(crate) blocks: [u32; 3],
    /// Threads a block.
    pub(crate) threads: u32,
    /// Dynamic shared memory, bytes.
    pub(crate) shared: u32,
}

impl Grid {
    /// `blocks` blocks of `threads` threads.
    pub(crate) fn of(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared: 0 }
    }

    /// With that many bytes of dynamic shared memory.
    pub(crate) fn shared(self, bytes: u32) -> Self {
        Self { shared: bytes, ..self }
    }
}

/// A queue of work on a device.
pub(crate) struct Stream {
    context: Context,
    raw: sys::CUstream,
    /// Whether launches carry the programmatic edge (every kernel of this crate waits on it, so it is always right).
    programmatic: bool,
    /// Whether launches are only looked up, not queued.
    rehearsing: Cell<bool>,
}

// SAFETY: a handle of the driver, which one thread at a time may use from anywhere.
unsafe impl Send for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream {{ programmatic: {} }}", self.programmatic)
    }
}

impl Stream {
    /// An empty queue.
    pub(crate) fn new(context: &Context) -> Result<Self, CudaError> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current.
        let code = unsafe { sys::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
        context.check("cuStreamCreate", code)?;
        // The attribute is known from Hopper on; before it, launches are ordered the plain way.
        let programmatic = context.info().capability.0 >= 9;
        Ok(Self { context: context.clone(), raw, programmatic, rehearsing: Cell::new(false) })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Launches with plain edges from now on (or programmatic ones again, where the device has them).
    pub(crate) fn set_programmatic(&mut self, on: bool) {
        self.programmatic = on && self.context.info().capability.0 >= 9;
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `args` must be the kernel's parameters in number, order and size, and every pointer among them must reach as far as
    /// the kernel goes with these sizes, until it is done.
    pub(crate) unsafe fn launch(&self, function: &Function, grid: Grid, mut args: Args) -> Result<(), CudaError> {
        if self.rehearsing.get() {
            return Ok(());
        }
        self.context.enter()?;
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let [x, y, z] = grid.blocks;
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared,
            hStream: self.raw,
            attrs: &mut attribute,
            numAttrs: u32::from(self.programmatic),
        };
        let mut pointers = args.pointers();
        self.context.launched(&function.name);
        // SAFETY: the caller's promise; `config`, `attribute` and `args` outlive the call, which copies them.
        let code = unsafe { sys::cuLaunchKernelEx(&config, function.raw, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        self.context.check(&function.name, code)
    }

    /// Copies host values to the device. Returns when `from` may be changed again.
    pub(crate) fn upload<T: Pod>(&self, from: &[T], to: DeviceSlice<'_, T>) -> Result<(), CudaError> {
        self.same_length("upload", from.len(), to.len())?;
        self.context.enter()?;
        // SAFETY: both are `to.bytes()` long; the wait below keeps `from` borrowed until it was read.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to.address(), from.as_ptr().cast(), to.bytes(), self.raw) };
        self.context.check("cuMemcpyHtoDAsync", code)?;
        self.synchronize()
    }

    /// Copies the first values of pinned memory to the device, in the background.
    ///
    /// # Safety
    /// `from` must neither change nor go before an [`Event`] recorded after this has happened.
    pub(crate) unsafe fn upload_pinned<T: Pod>(
        &self,
        from: &PinnedBuffer<T>,
        to: DeviceSlice<'_, T>,
    ) -> Result<(), CudaError> {
        if from.len() < to.len() {
            self.same_length("upload_pinned", from.len(), to.len())?;
        }
        self.context.enter()?;
        // SAFETY: `from` is long enough, and stays, as the caller promised.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to.address(), from.as_ptr().cast(), to.bytes(), self.raw) };
        self.context.check("cuMemcpyHtoDAsync", code)
    }

    /// Copies device values to the host and waits for them.
    pub(crate) fn download<T: Pod>(&self, from: DeviceSlice<'_, T>) -> Result<Vec<T>, CudaError> {
        let mut to = vec![T::zeroed(); from.len()];
        self.download_into(from, &mut to)?;
        Ok(to)
    }

    /// Copies device values to the host and waits for them.
    pub(crate) fn download_into<T: Pod>(&self, from: DeviceSlice<'_, T>, to: &mut [T]) -> Result<(), CudaError> {
        self.same_length("download", to.len(), from.len())?;
        self.context.enter()?;
        // SAFETY: both are `from.bytes()` long; the wait below keeps `to` borrowed until it was written.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.address(), from.bytes(), self.raw) };
        self.context.check("cuMemcpyDtoHAsync", code)?;
        self.synchronize()
    }

    /// Copies on the device. The two must not overlap.
    pub(crate) fn copy<T: Pod>(&self, from: DeviceSlice<'_, T>, to: DeviceSlice<'_, T>) -> Result<(), CudaError> {
        self.same_length("copy", from.len(), to.len())?;
        self.context.enter()?;
        // SAFETY: both are `to.bytes()` long.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to.address(), from.address(), to.bytes(), self.raw) };
        self.context.check("cuMemcpyDtoDAsync", code)
    }

    /// Fills with a byte: zeros, or 0xFF as poison (NaN as a float).
    pub(crate) fn fill<T: Pod>(&self, to: DeviceSlice<'_, T>, byte: u8) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: `to` is that long.
        let code = unsafe { sys::cuMemsetD8Async(to.address(), byte, to.bytes(), self.raw) };
        self.context.check("cuMemsetD8Async", code)
    }

    /// Waits for everything queued.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: our stream.
        let code = unsafe { sys::cuStreamSynchronize(self.raw) };
        self.context.check("cuStreamSynchronize", code)?;
        self.context.landed();
        Ok(())
    }

    /// Captures what `work` launches instead of running it. `keep` is held by the graph: whatever owns the memory that the
    /// launches use. `work` is called twice: a kernel's first use loads it, which a capture does not allow, so the launches
    /// are rehearsed before.
    pub(crate) fn capture(
        &self,
        name: &str,
        keep: Vec<std::sync::Arc<dyn std::any::Any + Send + Sync>>,
        work: impl Fn(&Self) -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        self.rehearsing.set(true);
        let rehearsed = work(self);
        self.rehearsing.set(false);
        rehearsed?;
        self.context.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: our stream, not capturing.
        self.context.check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) })?;
        let queued = work(self);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture begun above; it must end whatever `work` said.
        let code = unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) };
        let graph = Graph::new(&self.context, name, graph, keep);
        queued?;
        self.context.check("cuStreamEndCapture", code)?;
        graph?.instantiate()
    }

    /// Queues a captured graph.
    pub(crate) fn replay(&self, graph: &Graph) -> Result<(), CudaError> {
        self.context.enter()?;
        self.context.launched(graph.name());
        // SAFETY: instantiated, and what it uses is kept by it.
        let code = unsafe { sys::cuGraphLaunch(graph.raw(), self.raw) };
        self.context.check(graph.name(), code)
    }

    fn same_length(&self, op: &'static str, found: usize, expected: usize) -> Result<(), CudaError> {
        if found == expected {
            return Ok(());
        }
        Err(CudaError::Argument { op, what: "length", found: found.to_string(), expected: expected.to_string() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: created in `new`; the driver finishes what is queued first.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A point of a stream, with its time.
#[derive(Debug)]
pub(crate) struct Event {
    context: Context,
    raw: sys::CUevent,
}

// SAFETY: a handle of the driver, usable from any thread.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn new(context: &Context) -> Result<Self, CudaError> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current.
        let code = unsafe { sys::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32) };
        context.check("cuEventCreate", code)?;
        Ok(Self { context: context.clone(), raw })
    }

    /// Marks everything queued so far.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: both are ours, of one context.
        self.context.check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw) })
    }

    /// Waits until what was marked is done; at once if nothing was.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.context.enter()?;
        // SAFETY: our event.
        self.context.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Microseconds from `earlier` to this; both must have happened.
    pub(crate) fn since_us(&self, earlier: &Self) -> Result<f64, CudaError> {
        self.context.enter()?;
        let mut ms = 0.0_f32;
        // SAFETY: both are ours, of one context.
        let code = unsafe { sys::cuEventElapsedTime_v2(&mut ms, earlier.raw, self.raw) };
        self.context.check("cuEventElapsedTime", code)?;
        Ok(f64::from(ms) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: created in `new` and destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
