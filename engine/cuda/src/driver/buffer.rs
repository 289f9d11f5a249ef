//! Device memory and pinned host memory, typed.

use std::{ffi::c_void, fmt, marker::PhantomData, ops};

use bytemuck::Pod;
use cudarc::driver::sys;

use super::context::Context;
use crate::error::CudaError;

/// `len` values in device memory, 256-byte aligned. What it holds at first is whatever was there.
pub struct DeviceBuffer<T> {
    context: Context,
    at: u64,
    len: usize,
    values: PhantomData<T>,
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer {{ at: {:#x}, len: {} }}", self.at, self.len)
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates; `what` is named when there is no room. 16 bytes are added to the end, so that a kernel may read the
    /// whole word or vector that holds the last value.
    pub fn new(context: &Context, what: &str, len: usize) -> Result<Self, CudaError> {
        context.enter()?;
        let no_room = |free| CudaError::OutOfMemory {
            what: what.into(),
            bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
            place: "device",
            free,
        };
        let bytes = len.checked_mul(size_of::<T>()).and_then(|b| b.checked_add(16)).ok_or_else(|| no_room(0))?;
        let mut at = 0;
        // SAFETY: the context is current; `at` receives the address.
        match unsafe { sys::cuMemAlloc_v2(&mut at, bytes) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(no_room(context.memory()?.0)),
            code => context.check("cuMemAlloc", code)?,
        }
        Ok(Self { context: context.clone(), at, len, values: PhantomData })
    }

    /// All of it.
    pub fn all(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { at: self.at, len: self.len, values: PhantomData }
    }

    /// Values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // A lost context has no memory left to give back. The driver waits for kernels that still use it.
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new` and freed once.
            let _ = unsafe { sys::cuMemFree_v2(self.at) };
        }
    }
}

/// Part of a [`DeviceBuffer`]: a handle for launchers to read from or write to, like a `Cell`.
pub struct DeviceSlice<'a, T> {
    at: u64,
    len: usize,
    values: PhantomData<&'a T>,
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<T> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSlice {{ at: {:#x}, len: {} }}", self.at, self.len)
    }
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// Values `start..start + len`.
    ///
    /// # Panics
    /// When that is not inside: a slip of the caller, like an index of a slice.
    #[must_use]
    pub fn part(self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {} device values", self.len);
        Self { at: self.at + (start * size_of::<T>()) as u64, len, values: PhantomData }
    }

    /// Its address on the device.
    pub(crate) fn address(self) -> u64 {
        self.at
    }

    /// The same bytes as values of another type.
    ///
    /// # Panics
    /// When its size or address does not fit the type.
    #[must_use]
    pub(crate) fn cast<U: Pod>(self) -> DeviceSlice<'a, U> {
        let bytes = self.len * size_of::<T>();
        assert!(bytes.is_multiple_of(size_of::<U>()), "{bytes} bytes as values of {}", size_of::<U>());
        assert!(self.at.is_multiple_of(align_of::<U>() as u64), "alignment of {:#x}", self.at);
        DeviceSlice { at: self.at, len: bytes / size_of::<U>(), values: PhantomData }
    }

    /// Values.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Its size in bytes.
    pub(crate) fn bytes(self) -> usize {
        self.len * size_of::<T>()
    }
}

/// Page-locked host memory that the device can read and write in place; zeros at first.
pub struct PinnedBuffer<T> {
    context: Context,
    at: *mut T,
    len: usize,
    device: u64,
}

// SAFETY: it owns its memory; what the device does with it the stream orders, and the host waits for that.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: shared references only read.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer {{ at: {:p}, len: {} }}", self.at, self.len)
    }
}

impl<T: Pod> PinnedBuffer<T> {
    /// Allocates zeros; `what` is named when there is no room.
    pub fn new(context: &Context, what: &str, len: usize) -> Result<Self, CudaError> {
        context.enter()?;
        let no_room = |free| CudaError::OutOfMemory {
            what: what.into(),
            bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
            place: "pinned host",
            free,
        };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| no_room(0))?.max(1);
        let mut at: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current; `at` receives the address.
        match unsafe {
            sys::cuMemHostAlloc(&mut at, bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE)
        } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(no_room(context.memory()?.0)),
            code => context.check("cuMemHostAlloc", code)?,
        }
        let mut made = Self { context: context.clone(), at: at.cast(), len, device: 0 };
        // SAFETY: `bytes` bytes from `at` are ours; zero is a value of every `Pod`.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: mapped above.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut made.device, at, 0) };
        context.check("cuMemHostGetDevicePointer", code)?;
        Ok(made)
    }

    /// All of it, as the device sees it.
    pub fn mapped(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { at: self.device, len: self.len, values: PhantomData }
    }

    /// Reads one value that the device may be writing: a mailbox's generation word, or what stands before it once that
    /// was seen.
    ///
    /// # Panics
    /// When `index` is outside.
    pub fn read_volatile(&self, index: usize) -> T {
        assert!(index < self.len, "{index} of {} pinned values", self.len);
        // SAFETY: inside, aligned, and every bit pattern is a `T`.
        unsafe { self.at.add(index).read_volatile() }
    }
}

impl<T> ops::Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised values from `at`.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T> ops::DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised values from `at`, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new` and freed once.
            let _ = unsafe { sys::cuMemFreeHost(self.at.cast()) };
        }
    }
}
