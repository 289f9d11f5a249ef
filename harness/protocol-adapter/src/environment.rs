//! The one variable that decides what a worker does: whoever boots the resident has no other way to it
//! (engine-protocol-v1.md 2.1 and 9).

use std::ffi::OsString;
use std::path::PathBuf;

/// The variable's name.
pub(crate) const SOCKET_VARIABLE: &str = "BENCH_WORKER_RESIDENT_SOCKET";

/// The socket of the resident to attach to; set and empty is not set.
pub(crate) fn resident_socket() -> Option<PathBuf> {
    path_of(std::env::var_os(SOCKET_VARIABLE))
}

fn path_of(variable: Option<OsString>) -> Option<PathBuf> {
    variable.filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_as_good_as_none() {
        assert_eq!(path_of(None), None);
        assert_eq!(path_of(Some(OsString::new())), None);
        assert_eq!(path_of(Some("/run/resident.sock".into())), Some(PathBuf::from("/run/resident.sock")));
    }
}
