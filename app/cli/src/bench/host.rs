//! The machine and the process, as far as a record of a measurement needs them.

use serde::Serialize;

/// Where something was measured, with what.
#[derive(Debug, Serialize)]
pub(crate) struct Host {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) os: String,
    pub(crate) instruction_set: String,
    pub(crate) memory_bytes: Option<u64>,
}

/// Which program.
#[derive(Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    /// Empty where the program was not built in a git tree.
    pub(crate) commit: &'static str,
    /// Whether the tree it was built from differs from the commit.
    pub(crate) dirty: bool,
    pub(crate) rustc: &'static str,
}

impl Host {
    pub(crate) fn here() -> Self {
        let line = |file: &str, key: &str| field(&std::fs::read_to_string(file).unwrap_or_default(), key);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kib = line("/proc/meminfo", "MemTotal").and_then(|kib| kib.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Self {
            // Only x86 names its processor there.
            cpu: line("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: cores(),
            os: format!("{} {}", std::env::consts::OS, kernel.trim()),
            instruction_set: cudafast_cpu::Isa::current().to_string(),
            memory_bytes: kib.map(|kib| kib * 1024),
        }
    }
}

impl Build {
    pub(crate) fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("CUDAFAST_COMMIT"),
            dirty: env!("CUDAFAST_DIRTY") == "1",
            rustc: env!("CUDAFAST_RUSTC"),
        }
    }
}

/// Cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value of `key: value`.
fn field(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|found| found.trim() == key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// Lets the next [`peak_bytes`] count from now. Where the system does not allow it, the peak is that of the process's life.
pub(crate) fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5"); // proc(5): resets VmHWM
}

/// Most memory that was resident since [`reset_peak`], where the system says so.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmHWM")?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_what_follows_its_own_name() {
        let text = "model\t\t: 1\nmodel name\t: A: B\nVmHWM:\t  12 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "VmHWM").as_deref(), Some("12 kB"));
        assert_eq!(field(text, "none"), None);
    }
}
