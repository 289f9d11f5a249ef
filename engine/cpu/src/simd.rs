//! One body, compiled for the machine it runs on.
//!
//! A [`Kernel`] is written once in portable Rust; [`run`] compiles it again inside functions that may use wider registers
//! and fused multiply-add. The compiler never reassociates floats, so every version gives the same bits; machines without
//! FMA get the same bits from the software `fma`, slowly.

/// A body that is inlined into each instruction-set version. `run` must be `#[inline(always)]`.
pub(crate) trait Kernel {
    type Out;
    fn run(self) -> Self::Out;
}

/// Runs `kernel` in the widest version this machine supports.
#[inline]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Out {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: both features were detected on this machine one line above.
            return unsafe { run_avx2(kernel) };
        }
    }
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}
