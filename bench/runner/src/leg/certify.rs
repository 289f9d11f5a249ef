//! What our own clock says about a window, and what it could not be if the engine did the work when it says it did
//! (benchd.md 6).

use bench_core::contract::Limits;

use super::LegError;

/// A decode phase: one clock read ends the seed's part and begins the run's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Windows {
    /// `free_decode_begin`.
    pub seed_seconds: f64,
    /// `free_decode_run`.
    pub run_seconds: f64,
    /// Both, measured once more.
    pub whole_seconds: f64,
    /// Of the prompt.
    pub seed_tokens: usize,
    /// Timed tokens.
    pub steps: usize,
}

/// A prefill phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefillFigure {
    /// Of each timed run.
    pub seconds: Vec<f64>,
    /// Of the prompt.
    pub tokens: usize,
}

impl PrefillFigure {
    /// The mean over the runs.
    pub fn seconds_per_token(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64 / self.tokens as f64
    }
}

/// What the windows were found to be; sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossCheck {
    /// Nobody but us measures.
    NotObserved,
    /// A second measurement said the same.
    Agreed,
}

impl CrossCheck {
    /// As it is sealed.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotObserved => "not-observed",
            Self::Agreed => "agreed",
        }
    }
}

/// Certifies a leg's windows. `reported` is a duration of the whole window that somebody else measured, if there ever is
/// one. The prefill phase and the seed's window do the same work: a seed window much shorter was not all of it.
pub fn certify(
    prefill: &PrefillFigure,
    windows: &Windows,
    reported: Option<f64>,
    limits: &Limits,
) -> Result<CrossCheck, LegError> {
    let Windows { seed_seconds, run_seconds, whole_seconds, seed_tokens, steps } = *windows;
    let measured = [seed_seconds, run_seconds, whole_seconds, prefill.seconds_per_token()];
    if seed_tokens == 0 || steps == 0 || !measured.iter().all(|seconds| seconds.is_finite() && *seconds > 0.0) {
        return Err(LegError::WindowNotObserved { seed_seconds, run_seconds, whole_seconds });
    }
    let tolerance = limits.prefill_window_tolerance;
    let parts = seed_seconds + run_seconds;
    let differ = |a: f64, b: f64| (a - b).abs() / a.max(b) > tolerance;
    let disagrees = |detail: String| Err(LegError::WindowDisagrees { detail });
    if differ(parts, whole_seconds) {
        return disagrees(format!("its parts took {parts:.6} s and the whole {whole_seconds:.6} s"));
    }
    if let Some(reported) = reported
        && (!reported.is_finite() || differ(reported, whole_seconds))
    {
        return disagrees(format!("it took {whole_seconds:.6} s and {reported:.6} s are reported"));
    }
    let (seed, alone) = (seed_seconds / seed_tokens as f64, prefill.seconds_per_token());
    if seed < limits.prefill_window_min_ratio * alone {
        return disagrees(format!(
            "the seed took {seed:.9} s a token and the prefill phase {alone:.9}; less than {} of it is not the same work",
            limits.prefill_window_min_ratio
        ));
    }
    Ok(if reported.is_some() { CrossCheck::Agreed } else { CrossCheck::NotObserved })
}

#[cfg(test)]
pub(super) mod tests {
    use bench_core::contract::{Calibration, Range};

    use super::*;

    pub(crate) fn limits() -> Limits {
        let range = Range { low: 0.95, high: 1.05 };
        Limits {
            cool_gate_celsius: None,
            quiescence_max_load: 2.0,
            quiescence_max_gpu_percent: None,
            prefill_window_tolerance: 0.05,
            prefill_window_min_ratio: 0.7,
            fresh_prompt_max_ratio: 1.5,
            calibration: Calibration { max_cv: 0.01, prefill: range, decode: range },
            memory_plan: None,
        }
    }

    fn certified(change: impl FnOnce(&mut Windows), reported: Option<f64>) -> Result<CrossCheck, String> {
        let prefill = PrefillFigure { seconds: vec![1.0, 3.0], tokens: 100 };
        let mut windows =
            Windows { seed_seconds: 2.0, run_seconds: 4.0, whole_seconds: 6.0, seed_tokens: 100, steps: 10 };
        change(&mut windows);
        certify(&prefill, &windows, reported, &limits()).map_err(|error| error.name().to_owned())
    }

    #[test]
    fn windows_that_add_up_are_certified_and_all_others_are_named() {
        let (missing, disagrees) = (Err("PREFILL-WINDOW-NOT-OBSERVED".into()), Err("PREFILL-WINDOW-DISAGREES".into()));
        assert_eq!(certified(|_| (), None), Ok(CrossCheck::NotObserved));
        assert_eq!(certified(|_| (), Some(6.2)), Ok(CrossCheck::Agreed));
        assert_eq!(certified(|_| (), Some(7.0)), disagrees);
        assert_eq!(certified(|_| (), Some(f64::NAN)), disagrees);
        assert_eq!(certified(|windows| windows.whole_seconds = 6.4, None), disagrees);
        assert_eq!(certified(|windows| windows.whole_seconds = 6.3, None), Ok(CrossCheck::NotObserved));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(certified(|windows| windows.seed_seconds = seconds, None), missing);
        }
        assert_eq!(certified(|windows| windows.steps = 0, None), missing);
    }

    #[test]
    fn a_seed_window_much_shorter_than_the_prefill_phase_is_not_believed() {
        let seed = |seconds: f64| {
            move |windows: &mut Windows| {
                windows.seed_seconds = seconds;
                windows.whole_seconds = seconds + windows.run_seconds;
            }
        };
        assert_eq!(certified(seed(1.41), None), Ok(CrossCheck::NotObserved));
        assert_eq!(certified(seed(1.39), None), Err("PREFILL-WINDOW-DISAGREES".into()));
        assert_eq!(certified(seed(20.0), None), Ok(CrossCheck::NotObserved));
    }
}
