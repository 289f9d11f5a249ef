//! A run begins on a machine that does nothing else (track-contract.md 9).

use std::fs;
use std::time::Duration;

use super::{Clock, Device, MachineError};

/// How quiet it must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quiet {
    /// The load of the last minute must be below it.
    pub max_load: f64,
    /// The device's use must be below it; `None`: no device is looked at.
    pub max_gpu_percent: Option<f64>,
}

/// How quiet it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuietReport {
    /// Of the last minute.
    pub load: f64,
    /// Of the device.
    pub gpu_percent: Option<f64>,
    /// Before it was.
    pub waited_s: u64,
}

const POLL_S: u64 = 15;
const MOST_S: u64 = 900;

/// The load of the last minute, as the kernel says. What cannot be read is not 0.
pub fn one_minute_load() -> Result<f64, MachineError> {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split_whitespace().next().and_then(|word| word.parse().ok());
    load.ok_or(MachineError::LoadUnreadable)
}

/// Waits until it is quiet, up to a quarter of an hour. `load` is [`one_minute_load`], but in tests.
pub fn wait_until_quiet(
    limits: &Quiet,
    load: &mut dyn FnMut() -> Result<f64, MachineError>,
    device: Option<&mut dyn Device>,
    clock: &mut dyn Clock,
) -> Result<QuietReport, MachineError> {
    let (mut device, mut waited_s) = (device, 0);
    loop {
        let load = load()?;
        let percent = match (limits.max_gpu_percent, &mut device) {
            (None, _) => None,
            (Some(_), None) => return Err(MachineError::NoDevice),
            (Some(most), Some(device)) => Some((device.use_percent()?, most)),
        };
        if load < limits.max_load && percent.is_none_or(|(percent, most)| percent < most) {
            return Ok(QuietReport { load, gpu_percent: percent.map(|(percent, _)| percent), waited_s });
        }
        if waited_s >= MOST_S {
            let gpu = percent.map_or_else(String::new, |(percent, most)| format!(", device use {percent} % of {most}"));
            return Err(MachineError::NotQuiet { waited_s, load, max_load: limits.max_load, gpu });
        }
        clock.sleep(Duration::from_secs(POLL_S))?;
        waited_s += POLL_S;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupted;
    use crate::machine::{DeviceProcess, Thermometer};

    struct Instantly;

    impl Clock for Instantly {
        fn sleep(&mut self, _: Duration) -> Result<(), Interrupted> {
            Ok(())
        }
    }

    struct Busy(f64);

    impl Thermometer for Busy {
        fn celsius(&mut self) -> Option<f64> {
            None
        }
    }

    impl Device for Busy {
        fn processes(&mut self) -> Result<Vec<DeviceProcess>, MachineError> {
            Ok(Vec::new())
        }

        fn use_percent(&mut self) -> Result<f64, MachineError> {
            self.0 -= 20.0;
            Ok(self.0 + 20.0)
        }
    }

    #[test]
    fn a_busy_machine_is_waited_for_and_refused_after_a_quarter_of_an_hour() {
        let limits = Quiet { max_load: 2.0, max_gpu_percent: Some(10.0) };
        let mut load = || Ok(0.5);
        let report = wait_until_quiet(&limits, &mut load, Some(&mut Busy(40.0)), &mut Instantly).unwrap();
        assert_eq!(report, QuietReport { load: 0.5, gpu_percent: Some(0.0), waited_s: 30 });
        let error = wait_until_quiet(&limits, &mut || Ok(2.0), Some(&mut Busy(0.0)), &mut Instantly).unwrap_err();
        assert_eq!(error.name(), "MACHINE-NOT-QUIET");
        assert!(error.to_string().contains("900 s"), "{error}");
        let error = wait_until_quiet(&limits, &mut || Ok(0.0), None, &mut Instantly).unwrap_err();
        assert_eq!(error.name(), "DEVICE-UNREADABLE");
        let no_gpu = Quiet { max_load: f64::INFINITY, max_gpu_percent: None };
        let report = wait_until_quiet(&no_gpu, &mut one_minute_load, None, &mut Instantly).unwrap();
        assert_eq!((report.gpu_percent, report.waited_s), (None, 0));
    }
}
