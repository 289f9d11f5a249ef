//! SIGINT, SIGTERM and SIGHUP end what is waited for; what was started is then dropped, which ends it.

use std::thread;

use bench_runner::Interrupt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// An interrupt that is raised by the first signal. To be called once.
pub(crate) fn listen() -> Result<Interrupt, Failure> {
    let failed = |source| Failure::Signals { source };
    let interrupt = Interrupt::new().map_err(failed)?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let raised = interrupt.clone();
    let listens = move || signals.forever().for_each(|_| raised.raise());
    thread::Builder::new().name("signals".into()).spawn(listens).map_err(failed)?;
    Ok(interrupt)
}
