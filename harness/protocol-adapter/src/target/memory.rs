//! How much memory a process held at most, as Linux tells.

use std::fs;

/// `VmHWM` of a process, or of this one.
pub fn peak_ram_bytes_of(pid: Option<u32>) -> Option<u64> {
    let path = pid.map_or_else(|| "/proc/self/status".to_owned(), |pid| format!("/proc/{pid}/status"));
    high_water_mark(&fs::read_to_string(path).ok()?)
}

fn high_water_mark(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_kibibytes() {
        assert_eq!(high_water_mark("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        for odd in ["", "VmHWM:", "VmHWM: x kB", "VmHWM: 5 MB", "VmHWM: 99999999999999999999 kB"] {
            assert_eq!(high_water_mark(odd), None, "{odd}");
        }
    }

    #[test]
    fn this_process_has_a_high_water_mark() {
        assert!(peak_ram_bytes_of(None).is_some_and(|bytes| bytes > 0));
    }
}
