//! Ctrl-C and SIGTERM: work under way ends at its next check and cleans up behind itself; otherwise the program ends at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cudafast_runtime::CancelFlag;

use crate::failure::{Failure, INTERRUPTED};

/// The flag of the work under way.
static UNDER_WAY: Mutex<Option<CancelFlag>> = Mutex::new(None);

fn under_way() -> MutexGuard<'static, Option<CancelFlag>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be called once, first of all.
pub(crate) fn listen() -> Result<(), Failure> {
    let heard = || match &*under_way() {
        Some(flag) if !flag.is_raised() => flag.raise(),
        _ => std::process::exit(i32::from(INTERRUPTED)),
    };
    ctrlc::set_handler(heard).map_err(|source| Failure::Signals { source })
}

/// Work that a signal cancels instead of killing, as long as this lives.
pub(crate) struct Work {
    pub(crate) cancel: CancelFlag,
}

impl Work {
    pub(crate) fn begin() -> Self {
        let cancel = CancelFlag::default();
        *under_way() = Some(cancel.clone());
        Self { cancel }
    }

    /// [`Failure::Interrupted`] if a signal came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.cancel.is_raised() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        *under_way() = None;
    }
}
