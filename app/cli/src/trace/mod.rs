//! `cudafast trace`: every intermediate value of a run in a file, and where two such files part.

mod diff;
mod dump;
mod file;
mod record;

pub(crate) use diff::run as diff;
pub(crate) use dump::run as dump;

/// Whether a file is a whole trace.
pub(crate) fn is_trace(path: &std::path::Path) -> bool {
    file::Trace::open(path).is_ok()
}
