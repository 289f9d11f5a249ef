//! The cool gate: a timed phase begins on a device that is not hot from the one before (benchd.md 12).

use std::time::Duration;

use crate::interrupt::{Interrupt, Interrupted};

/// What waits. Tests count what others sleep.
pub trait Clock {
    /// Sleeps, or ends early because the run was interrupted.
    fn sleep(&mut self, time: Duration) -> Result<(), Interrupted>;
}

impl Clock for Interrupt {
    fn sleep(&mut self, time: Duration) -> Result<(), Interrupted> {
        Interrupt::sleep(self, time)
    }
}

/// What tells how hot the device is.
pub trait Thermometer {
    /// In degrees Celsius; `None`: it cannot be read now.
    fn celsius(&mut self) -> Option<f64>;
}

/// Whether a gate that cannot be read is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Official runs: no.
    Required,
    /// Local runs: yes, and it is recorded.
    IfReadable,
}

/// How a gate was passed; sealed by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoolState {
    /// Somebody switched the gate off.
    Off,
    /// The platform has none (track-contract.md 12.5).
    NotApplicable,
    /// The temperature cannot be read.
    SkippedNoReader,
    /// Cool at once.
    Fired,
    /// Cool after a while.
    Waited {
        /// How long.
        seconds: u64,
    },
}

impl CoolState {
    /// As it is sealed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NotApplicable => "not-applicable",
            Self::SkippedNoReader => "skipped-no-reader",
            Self::Fired => "fired",
            Self::Waited { .. } => "waited",
        }
    }
}

/// The phase may not begin.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum CoolError {
    /// An official run without a reader.
    #[error("official mode requires a GPU temperature reader for the cool gate")]
    NoReader,
    /// It stays as hot as it is.
    #[error("the device is not cooling down: {lowest} C is the least in {waited_s} s, the gate is at {gate} C")]
    NotCooling {
        /// Degrees.
        lowest: f64,
        /// The gate's.
        gate: f64,
        /// So long.
        waited_s: u64,
    },
    /// It cools too slowly.
    #[error("the device did not reach {gate} C in {waited_s} s: {lowest} C is the least")]
    NotReached {
        /// Degrees.
        lowest: f64,
        /// The gate's.
        gate: f64,
        /// So long.
        waited_s: u64,
    },
    /// Somebody wants the run to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl CoolError {
    /// The name it is refused by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Interrupted(_) => "Interrupted",
            Self::NoReader | Self::NotCooling { .. } | Self::NotReached { .. } => "GateRejected",
        }
    }
}

const STEP_S: u64 = 10;
const RETRY: Duration = Duration::from_secs(2);
/// In a row.
const MOST_BAD_READINGS: u32 = 3;
const LEAST_PROGRESS: f64 = 0.25;

/// Waits until the device is as cool as `gate` says; `None` is a platform without one. Only the seconds slept between
/// readings are counted, so a slow reader ends no run.
pub fn cool_gate(
    gate: Option<f64>,
    demand: Demand,
    reader: &mut dyn Thermometer,
    clock: &mut dyn Clock,
) -> Result<CoolState, CoolError> {
    let Some(gate) = gate else { return Ok(CoolState::NotApplicable) };
    let (mut waited_s, mut progress_s, mut bad, mut lowest) = (0, 0, 0, f64::INFINITY);
    loop {
        let Some(celsius) = reader.celsius().filter(|celsius| celsius.is_finite()) else {
            bad += 1;
            if bad >= MOST_BAD_READINGS {
                return match demand {
                    Demand::Required => Err(CoolError::NoReader),
                    Demand::IfReadable => Ok(CoolState::SkippedNoReader),
                };
            }
            clock.sleep(RETRY)?;
            continue;
        };
        bad = 0;
        if celsius <= lowest - LEAST_PROGRESS {
            (lowest, progress_s) = (celsius, waited_s);
        }
        if celsius <= gate {
            return Ok(if waited_s == 0 { CoolState::Fired } else { CoolState::Waited { seconds: waited_s } });
        }
        if waited_s >= 180 && waited_s - progress_s >= 90 {
            return Err(CoolError::NotCooling { lowest, gate, waited_s });
        }
        if waited_s >= 900 {
            return Err(CoolError::NotReached { lowest, gate, waited_s });
        }
        clock.sleep(Duration::from_secs(STEP_S))?;
        waited_s += STEP_S;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what a function of the number of readings says.
    struct Fake<F>(F, u32);

    impl<F: FnMut(u32) -> Option<f64>> Thermometer for Fake<F> {
        fn celsius(&mut self) -> Option<f64> {
            self.1 += 1;
            (self.0)(self.1 - 1)
        }
    }

    struct Counted(u64);

    impl Clock for Counted {
        fn sleep(&mut self, time: Duration) -> Result<(), Interrupted> {
            self.0 += time.as_secs();
            Ok(())
        }
    }

    fn run(demand: Demand, read: impl FnMut(u32) -> Option<f64>) -> (Result<CoolState, CoolError>, u64) {
        let mut clock = Counted(0);
        let found = cool_gate(Some(60.0), demand, &mut Fake(read, 0), &mut clock);
        (found, clock.0)
    }

    #[test]
    fn a_cool_device_fires_a_cooling_one_is_waited_for() {
        assert_eq!(run(Demand::Required, |_| Some(60.0)), (Ok(CoolState::Fired), 0));
        let cooling = run(Demand::Required, |at| Some(70.0 - f64::from(at)));
        assert_eq!(cooling, (Ok(CoolState::Waited { seconds: 100 }), 100));
    }

    #[test]
    fn a_device_that_does_not_cool_and_one_that_cools_too_slowly_are_rejected() {
        let (error, slept) = run(Demand::IfReadable, |_| Some(70.0));
        assert_eq!((error.unwrap_err().to_string().contains("not cooling down"), slept), (true, 180));
        let (error, slept) = run(Demand::IfReadable, |at| Some(90.0 - 0.3 * f64::from(at)));
        let error = error.unwrap_err();
        assert_eq!((error.to_string().contains("did not reach"), slept, error.name()), (true, 900, "GateRejected"));
    }

    #[test]
    fn without_a_reader_a_local_run_goes_on_and_an_official_one_does_not() {
        assert_eq!(run(Demand::IfReadable, |_| None), (Ok(CoolState::SkippedNoReader), 4));
        assert_eq!(run(Demand::Required, |_| Some(f64::NAN)), (Err(CoolError::NoReader), 4));
        let one_bad = run(Demand::Required, |at| (at > 0).then_some(50.0));
        assert_eq!(one_bad, (Ok(CoolState::Fired), 2));
        let none = cool_gate(None, Demand::Required, &mut Fake(|_| None, 0), &mut Counted(0));
        assert_eq!(none, Ok(CoolState::NotApplicable));
    }
}
