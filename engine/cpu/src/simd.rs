//! One body, compiled for the machine it runs on.
//!
//! A [`Kernel`] is written once in portable Rust; [`run`] compiles it again inside functions that may use wider registers
//! and fused multiply-add. The compiler never reassociates floats, so every version gives the same bits; machines without
//! FMA get the same bits from the software `fma`, slowly.

use crate::isa::Isa;

/// A body that is inlined into each instruction-set version. `run` must be `#[inline(always)]`.
pub(crate) trait Kernel {
    type Out;
    fn run(self) -> Self::Out;
}

/// Runs `kernel` in the widest version in use.
#[inline]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: only supported sets are ever in use. Not asked again: a token runs a kernel some thousand times.
    unsafe { version(Isa::current(), kernel) }
}

/// Runs the version for `isa`.
///
/// # Panics
/// When this machine does not support it.
#[cfg(test)]
pub(crate) fn run_as<K: Kernel>(isa: Isa, kernel: K) -> K::Out {
    assert!(isa.is_supported(), "{isa} on a machine without it");
    // SAFETY: supported, see the line above.
    unsafe { version(isa, kernel) }
}

/// # Safety
/// This machine supports `isa`.
#[inline(always)]
unsafe fn version<K: Kernel>(isa: Isa, kernel: K) -> K::Out {
    match isa {
        // SAFETY: the caller's contract.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { run_avx512(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { run_avx2(kernel) },
        _ => kernel.run(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}
