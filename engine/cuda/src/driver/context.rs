//! The device and its context; the place where a result code becomes an error.

use std::{
    ffi::{CStr, c_char},
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use cudarc::driver::{result, sys};

use crate::error::CudaError;

/// What nvcc 13.0 makes needs a driver of its major version.
const NEEDED_DRIVER: i32 = 13_000;

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `NVIDIA H200`.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Most shared memory a block may ask for, bytes.
    pub shared_bytes: u32,
    /// Whether device and host share one memory.
    pub integrated: bool,
    /// All of its memory, bytes.
    pub memory_bytes: u64,
    /// Driver, `13.0`.
    pub driver: String,
}

pub(crate) struct Inner {
    device: sys::CUdevice,
    context: sys::CUcontext,
    info: DeviceInfo,
    /// The fault that ended it, once there was one.
    lost: OnceLock<Arc<CudaError>>,
    /// Kernels launched since the last synchronisation: what a fault is blamed on.
    in_flight: Mutex<InFlight>,
}

#[derive(Default)]
struct InFlight {
    first: Option<String>,
    last: Option<String>,
    count: u64,
}

// SAFETY: the driver's handles may be used from any thread that made the context current, which every call here does
// first; the other fields are Send and Sync themselves.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver locks internally.
unsafe impl Sync for Inner {}

/// A device, ready for use. Clones share it; the last one releases it.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("info", &self.0.info).field("lost", &self.0.lost.get()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `Context::open`, and nothing that uses it outlives the last `Arc`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

fn version(v: i32) -> String {
    format!("{}.{}", v / 1000, v % 1000 / 10)
}

/// `CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)`.
pub(crate) fn code_text(code: sys::CUresult) -> String {
    let text = |get: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut at = std::ptr::null();
        // SAFETY: the driver writes a pointer to a static string, or null for a code it does not know.
        let ok = unsafe { get(code, &mut at) };
        if ok != sys::CUresult::CUDA_SUCCESS || at.is_null() {
            return None;
        }
        // SAFETY: a static, null-terminated string of the driver.
        Some(unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
    };
    match (text(sys::cuGetErrorName), text(sys::cuGetErrorString)) {
        (Some(name), Some(string)) => format!("{name} ({string})"),
        _ => format!("code {}", code as u32),
    }
}

/// After these the context answers nothing any more.
fn is_fault(code: sys::CUresult) -> bool {
    use sys::CUresult as R;
    matches!(
        code,
        R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_LAUNCH_FAILED
            | R::CUDA_ERROR_ECC_UNCORRECTABLE
            | R::CUDA_ERROR_EXTERNAL_DEVICE
            | R::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | R::CUDA_ERROR_DEINITIALIZED
            | R::CUDA_ERROR_UNKNOWN
    )
}

impl Context {
    /// Opens device `ordinal`.
    pub fn open(ordinal: u32) -> Result<Self, CudaError> {
        // SAFETY: loading the driver's library runs its initialisers, which is what it is for.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let call = |what: &str, code: sys::CUresult| match code {
            sys::CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(CudaError::Driver { call: what.into(), code: code_text(code) }),
        };
        let mut found = 0;
        // SAFETY: writes one integer; needs no context.
        call("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut found) })?;
        // Asked first: an older library lacks symbols that the bindings look up.
        if found < NEEDED_DRIVER {
            return Err(CudaError::OldDriver { found: version(found), needed: version(NEEDED_DRIVER) });
        }
        // SAFETY: no preconditions.
        match unsafe { sys::cuInit(0) } {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => return Err(CudaError::NoDevice { ordinal, count: 0 }),
            code => call("cuInit", code)?,
        }
        let mut count = 0;
        // SAFETY: writes one integer.
        call("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        let count = u32::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let mut device = 0;
        // SAFETY: `ordinal` is below the count.
        call("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
        let info = device_info(device, version(found))?;
        let (major, minor) = info.capability;
        if major < 8 {
            return Err(CudaError::OldDevice { name: info.name, major, minor });
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: `device` is a device; released in `Inner::drop`.
        call("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let (lost, in_flight) = (OnceLock::new(), Mutex::default());
        Ok(Self(Arc::new(Inner { device, context, info, lost, in_flight })))
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Free and total bytes of the device.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes; the context is current.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// The fault that ended this context, if one did.
    pub fn fault(&self) -> Option<Arc<CudaError>> {
        self.0.lost.get().cloned()
    }

    /// Makes the context current on this thread, unless it is lost.
    pub(crate) fn enter(&self) -> Result<(), CudaError> {
        if let Some(fault) = self.0.lost.get() {
            return Err(CudaError::Lost { source: Arc::clone(fault) });
        }
        // SAFETY: the context lives as long as `self`.
        let code = unsafe { sys::cuCtxSetCurrent(self.0.context) };
        self.check("cuCtxSetCurrent", code)
    }

    /// Turns a result code into an error; a fault ends the context and names the kernels that may have caused it.
    pub(crate) fn check(&self, call: &str, code: sys::CUresult) -> Result<(), CudaError> {
        if code == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        if let Some(fault) = self.0.lost.get() {
            return Err(CudaError::Lost { source: Arc::clone(fault) });
        }
        if !is_fault(code) {
            return Err(CudaError::Driver { call: call.into(), code: code_text(code) });
        }
        let fault = CudaError::Fault { during: self.blamed(call), code: code_text(code) };
        let _ = self.0.lost.set(Arc::new(fault.clone()));
        Err(fault)
    }

    fn blamed(&self, call: &str) -> String {
        let flight = self.0.in_flight.lock().unwrap_or_else(|e| e.into_inner());
        match (&flight.first, &flight.last) {
            (Some(first), Some(_)) if flight.count == 1 => format!("`{first}`"),
            (Some(first), Some(last)) => format!("one of {} launches, `{first}` to `{last}`", flight.count),
            _ => format!("`{call}`"),
        }
    }

    /// Remembers a launch until [`landed`](Self::landed).
    pub(crate) fn launched(&self, name: &str) {
        let mut flight = self.0.in_flight.lock().unwrap_or_else(|e| e.into_inner());
        flight.count += 1;
        // The string of the launch before is reused: no allocation in the steady state.
        let InFlight { first, last, .. } = &mut *flight;
        for slot in [first.is_none().then_some(first), Some(last)].into_iter().flatten() {
            let text = slot.get_or_insert_default();
            text.clear();
            text.push_str(name);
        }
    }

    /// Everything launched so far is done.
    pub(crate) fn landed(&self) {
        let mut flight = self.0.in_flight.lock().unwrap_or_else(|e| e.into_inner());
        (flight.first, flight.count) = (None, 0);
    }
}

fn device_info(device: sys::CUdevice, driver: String) -> Result<DeviceInfo, CudaError> {
    use sys::CUdevice_attribute as A;
    let failed = |call: &str| {
        let call = call.to_owned();
        move |e: result::DriverError| CudaError::Driver { call, code: code_text(e.0) }
    };
    // SAFETY: `device` came from the driver.
    let get = |a| unsafe { result::device::get_attribute(device, a) }.map_err(failed("cuDeviceGetAttribute"));
    let capability =
        (get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?, get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?);
    Ok(DeviceInfo {
        name: result::device::get_name(device).map_err(failed("cuDeviceGetName"))?,
        capability,
        multiprocessors: get(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32,
        shared_bytes: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.max(0) as u32,
        integrated: get(A::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        // SAFETY: as above.
        memory_bytes: unsafe { result::device::total_mem(device) }.map_err(failed("cuDeviceTotalMem"))? as u64,
        driver,
    })
}
