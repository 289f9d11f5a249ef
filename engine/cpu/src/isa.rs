//! Which instruction set the inner loops use.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction sets with versions of their own, narrowest first. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What the target guarantees; NEON on aarch64.
    Portable,
    /// aarch64 with the int8 dot instructions.
    Dotprod,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, CD, DQ, VL and VNNI.
    Avx512,
}

const ALL: [Isa; 4] = [Isa::Portable, Isa::Dotprod, Isa::Avx2, Isa::Avx512];

/// The one in use, plus 1; 0 until the machine was asked. For the process, since the choice is made in loops where no
/// model is at hand.
static CURRENT: AtomicU8 = AtomicU8::new(0);

impl Isa {
    /// The widest one this machine has.
    pub fn widest() -> Self {
        ALL.into_iter().rev().find(|isa| isa.is_supported()).unwrap_or(Self::Portable)
    }

    /// Whether this machine has it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Self::Dotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                std::is_x86_feature_detected!("avx2")
                    && std::is_x86_feature_detected!("fma")
                    && std::is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_supported()
                    && std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512cd")
                    && std::is_x86_feature_detected!("avx512dq")
                    && std::is_x86_feature_detected!("avx512vl")
                    && std::is_x86_feature_detected!("avx512vnni")
            }
            _ => false,
        }
    }

    /// The one in use: the widest, unless [`limit`](Self::limit) was called.
    #[inline]
    pub fn current() -> Self {
        match CURRENT.load(Ordering::Relaxed) {
            0 => {
                // A limit set meanwhile stands.
                let widest = Self::widest() as u8 + 1;
                let _ = CURRENT.compare_exchange(0, widest, Ordering::Relaxed, Ordering::Relaxed);
                Self::current()
            }
            n => ALL[usize::from(n - 1) % ALL.len()],
        }
    }

    /// Uses nothing wider than `isa` in this process from now on; returns what will be used. Speed changes, bits do not.
    pub fn limit(isa: Isa) -> Self {
        let chosen = ALL.into_iter().rev().find(|i| *i <= isa && i.is_supported()).unwrap_or(Self::Portable);
        CURRENT.store(chosen as u8 + 1, Ordering::Relaxed);
        chosen
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Dotprod => "dotprod",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

impl FromStr for Isa {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|isa| isa.to_string() == name);
        let isa = found.ok_or_else(|| format!("`{name}` is none of portable, dotprod, avx2, avx512"))?;
        if isa.is_supported() { Ok(isa) } else { Err(format!("this machine has no {name}; it has {}", Self::widest())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_where_the_machine_has_the_set() {
        for isa in ALL {
            assert_eq!(isa.to_string().parse::<Isa>().is_ok(), isa.is_supported());
        }
        assert!("sse9".parse::<Isa>().unwrap_err().contains("portable, dotprod, avx2, avx512"));
    }

    #[test]
    fn the_widest_set_is_supported_and_portable_always_is() {
        assert!(Isa::widest().is_supported() && Isa::Portable.is_supported());
        assert!(Isa::widest() >= Isa::current());
    }
}
