//! Signals: Ctrl-C, SIGTERM, and SIGHUP of a terminal that goes away. Work under way ends at its next check and cleans up
//! behind itself; otherwise the program ends at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cudafast_runtime::CancelFlag;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, INTERRUPTED};
use crate::output;

struct State {
    /// The flag of the work under way.
    under_way: Option<CancelFlag>,
    /// A signal came that means the program, whatever it is doing.
    ended: bool,
    /// Ctrl-C came between a line and its answer, or between an answer and the next line.
    deferred: bool,
    /// How standard input was before lines were edited on it.
    terminal: Option<Termios>,
}

static STATE: Mutex<State> = Mutex::new(State { under_way: None, ended: false, deferred: false, terminal: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be called once, first of all.
pub(crate) fn listen() -> Result<(), Failure> {
    let failed = |source| Failure::Signals { source };
    let wanted: &[i32] = if hangup_is_ignored() { &[SIGINT, SIGTERM] } else { &[SIGINT, SIGTERM, SIGHUP] };
    let mut signals = Signals::new(wanted).map_err(failed)?;
    let listens = move || signals.forever().for_each(heard);
    std::thread::Builder::new().name("signals".into()).spawn(listens).map(drop).map_err(failed)
}

/// Whoever starts a program with `nohup` wants it to survive that.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGHUP - 1)) != 0
}

fn heard(signal: i32) {
    let mut state = state();
    state.ended |= signal != SIGINT;
    match &state.under_way {
        Some(flag) if !flag.is_raised() => flag.raise(),
        None if signal == SIGINT && !state.deferred && state.terminal.is_some() => state.deferred = true,
        _ => {
            if let Some(terminal) = &state.terminal {
                // Without it the shell would get a terminal that shows nothing of what is typed.
                let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, terminal);
            }
            if state.under_way.is_none() {
                // Nobody else will say it. Not after a second signal, when standard error may be what hangs.
                output::error_line(&Failure::Interrupted.one_line());
            }
            std::process::exit(i32::from(INTERRUPTED))
        }
    }
}

/// Whether Ctrl-C came while nothing was under way that it could have ended. Only where lines are edited: elsewhere, and at
/// the second time, it has ended the program.
pub(crate) fn take_deferred() -> bool {
    std::mem::take(&mut state().deferred)
}

/// Leaves a Ctrl-C to whoever asks next.
pub(crate) fn defer() {
    state().deferred = true;
}

/// Notes how standard input is now, to leave it so whenever a signal ends the program.
pub(crate) fn keep_terminal() {
    state().terminal = tcgetattr(std::io::stdin()).ok();
}

/// Whether a signal came that means the program and not just what it is doing: any but Ctrl-C.
pub(crate) fn ended() -> bool {
    state().ended
}

/// Work that a signal cancels instead of killing, as long as this lives.
pub(crate) struct Work {
    pub(crate) cancel: CancelFlag,
}

impl Work {
    pub(crate) fn begin() -> Self {
        let cancel = CancelFlag::default();
        state().under_way = Some(cancel.clone());
        Self { cancel }
    }

    /// [`Failure::Interrupted`] if a signal came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.cancel.is_raised() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        state().under_way = None;
    }
}
