//! Compiled kernels: embedded, loaded by file, looked up by symbol.

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    fmt,
    sync::{Arc, Mutex},
};

use bytemuck::Pod;
use cudarc::driver::sys;

use super::{buffer::DeviceSlice, context::Context};
use crate::error::CudaError;

include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));

/// A kernel. May use as much dynamic shared memory as the device has beside its static.
#[derive(Clone)]
pub(crate) struct Function {
    pub(super) raw: sys::CUfunction,
    pub(super) name: Arc<str>,
}

// SAFETY: a handle of the driver, which any thread may launch.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Every kernel of this build, on one device.
pub(crate) struct Kernels {
    context: Context,
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: Mutex<HashMap<String, Function>>,
}

// SAFETY: the handles may be used from any thread; the map is behind a lock.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("files", &self.modules.keys()).finish()
    }
}

impl Kernels {
    /// Loads every file's kernels.
    pub(crate) fn load(context: &Context) -> Result<Self, CudaError> {
        context.enter()?;
        let mut made = Self { context: context.clone(), modules: HashMap::new(), functions: Mutex::default() };
        for &(file, fatbin) in FATBINS {
            let mut module = std::ptr::null_mut();
            // SAFETY: a whole fatbin as nvcc wrote it; the driver copies what it keeps.
            let code = unsafe { sys::cuModuleLoadData(&mut module, fatbin.as_ptr().cast::<c_void>()) };
            context.check(&format!("loading kernels/{file}.cu"), code)?;
            made.modules.insert(file, module);
        }
        Ok(made)
    }

    /// Kernel `symbol` of `kernels/{file}.cu`.
    pub(crate) fn get(&self, file: &str, symbol: &str) -> Result<Function, CudaError> {
        let mut functions = self.functions.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(function) = functions.get(symbol) {
            return Ok(function.clone());
        }
        let missing = || CudaError::NoKernel { file: file.into(), symbol: symbol.into() };
        let module = *self.modules.get(file).ok_or_else(missing)?;
        let name = CString::new(symbol).map_err(|_| missing())?;
        self.context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name ends in a zero.
        match unsafe { sys::cuModuleGetFunction(&mut raw, module, name.as_ptr()) } {
            sys::CUresult::CUDA_ERROR_NOT_FOUND => return Err(missing()),
            code => self.context.check(symbol, code)?,
        }
        self.allow_shared(raw, symbol)?;
        let function = Function { raw, name: symbol.into() };
        functions.insert(symbol.to_owned(), function.clone());
        Ok(function)
    }

    fn allow_shared(&self, function: sys::CUfunction, symbol: &str) -> Result<(), CudaError> {
        use sys::CUfunction_attribute as A;
        let mut fixed = 0;
        // SAFETY: a function of a loaded module.
        let code = unsafe { sys::cuFuncGetAttribute(&mut fixed, A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) };
        self.context.check(symbol, code)?;
        let most = self.context.info().shared_bytes as i32 - fixed;
        // SAFETY: as above; the driver refuses what the device lacks.
        let code =
            unsafe { sys::cuFuncSetAttribute(function, A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most) };
        self.context.check(symbol, code)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            for module in self.modules.values() {
                // SAFETY: loaded in `load`; functions hold no claim on it, and graphs keep the `Arc` of this.
                let _ = unsafe { sys::cuModuleUnload(*module) };
            }
        }
    }
}

/// A kernel's arguments, in its order.
#[derive(Debug, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Args {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Any plain value: an integer, a float, a `repr(C)` struct that a kernel takes by value.
    pub(crate) fn value<T: Pod>(mut self, value: T) -> Self {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(bytemuck::bytes_of(&value));
        self
    }

    /// A pointer to device values.
    pub(crate) fn slice<T: Pod>(self, slice: DeviceSlice<'_, T>) -> Self {
        self.value(slice.address())
    }

    /// A pointer that may be null.
    pub(crate) fn optional<T: Pod>(self, slice: Option<DeviceSlice<'_, T>>) -> Self {
        self.value(slice.map_or(0, DeviceSlice::address))
    }

    pub(super) fn pointers(&mut self) -> Vec<*mut c_void> {
        let base = self.bytes.as_mut_ptr();
        self.starts.iter().map(|&start| base.wrapping_add(start).cast()).collect()
    }
}
