//! The environment as a worker may see it; what decides about benchd itself is named at its flags.

use std::ffi::OsString;

use bench_runner::WorkerEnvironment;

/// What of our environment is passed on to a worker.
pub(crate) fn of_workers() -> WorkerEnvironment {
    WorkerEnvironment::from_parent(std::env::vars_os())
}

/// What git is given: where its programs are, and nothing that would configure it.
pub(crate) fn of_git() -> Option<(&'static str, OsString)> {
    Some(("PATH", std::env::var_os("PATH")?))
}
