//! The environment as a worker may see it; what decides about benchd itself is named at its flags.

use bench_runner::WorkerEnvironment;

/// What of our environment is passed on to a worker.
pub(crate) fn of_workers() -> WorkerEnvironment {
    WorkerEnvironment::from_parent(std::env::vars_os())
}
