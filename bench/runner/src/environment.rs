//! The environment of a worker, built from nothing (engine-protocol-v1.md 2.1, as narrowed by track-contract.md 12.3).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Tells a worker the socket of its resident; set per leg, never inherited.
pub const RESIDENT_SOCKET_VARIABLE: &str = "BENCH_WORKER_RESIDENT_SOCKET";

/// Variables that an official run must not have found set (benchd.md 6, `LEG-SERVE-INHERITED-SOCKET`).
pub const SOCKET_VARIABLES: [&str; 2] = [RESIDENT_SOCKET_VARIABLE, "DS4_RESIDENT_SOCKET"];

const WORKER_PREFIX: &str = "BENCH_WORKER_";

const NAMES: [&str; 12] = [
    "HF_HUB_OFFLINE",
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSH_AUTH_SOCK",
    "TERM",
    "TMPDIR",
    "TRANSFORMERS_OFFLINE",
    "USER",
    "__CF_USER_TEXT_ENCODING",
];

const PREFIXES: [&str; 2] = ["LC_", WORKER_PREFIX];

/// What a child finds in its environment: this and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerEnvironment(BTreeMap<OsString, OsString>);

impl WorkerEnvironment {
    /// What of its parent's variables a worker may see, and `MLXFAST_USE_RUNTIME_WORKER=0`. A resident's socket is never
    /// inherited: which one a leg speaks to is said by [`set`](Self::set).
    pub fn from_parent(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut kept: BTreeMap<_, _> = vars.into_iter().filter(|(name, _)| is_passed_on(name)).collect();
        kept.insert("MLXFAST_USE_RUNTIME_WORKER".into(), "0".into());
        Self(kept)
    }

    /// Adds a variable of this leg.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    /// With a resident to attach to.
    pub(crate) fn with_socket(&self, socket: Option<&Path>) -> Self {
        let mut of_leg = self.clone();
        if let Some(socket) = socket {
            of_leg.set(RESIDENT_SOCKET_VARIABLE, socket);
        }
        of_leg
    }

    /// In order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

fn is_passed_on(name: &OsStr) -> bool {
    let Some(text) = name.to_str() else { return false };
    let by_prefix = PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    (NAMES.contains(&text) || by_prefix) && !SOCKET_VARIABLES.contains(&text)
}

/// The `BENCH_WORKER_*` variables that are set: an official run refuses them (track-contract.md 12.3).
pub fn inherited_worker_variables(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<String> {
    let names = vars.into_iter().map(|(name, _)| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(WORKER_PREFIX)).collect()
}

/// The first variable that names a resident's socket and is not blank.
pub fn inherited_resident_socket(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Option<String> {
    let set = vars.into_iter().filter(|(_, value)| !value.to_string_lossy().trim().is_empty());
    let mut names = set.map(|(name, _)| name.to_string_lossy().into_owned());
    names.find(|name| SOCKET_VARIABLES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn only_the_named_variables_reach_a_worker_and_no_socket_is_inherited() {
        let vars = parent(&[
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("BENCH_WORKER_X", "1"),
            (RESIDENT_SOCKET_VARIABLE, "/s"),
            ("MLXFAST_COMMIT_SHA", "a"),
            ("MLXFAST_USE_RUNTIME_WORKER", "1"),
            ("BENCH_GOLDEN_PATH", "/g"),
            ("GIT_DIR", "/d"),
            ("LD_PRELOAD", "/l"),
            ("DS4_MODEL", "/m"),
            ("XLC_ALL", "x"),
        ]);
        let environment = WorkerEnvironment::from_parent(vars);
        let found: Vec<_> = environment.iter().map(|(name, value)| (name.to_str(), value.to_str())).collect();
        let want = [("BENCH_WORKER_X", "1"), ("HOME", "/h"), ("LC_ALL", "C"), ("MLXFAST_USE_RUNTIME_WORKER", "0")];
        assert_eq!(found, want.map(|(name, value)| (Some(name), Some(value))));
        let of_leg = environment.with_socket(Some(Path::new("/run/r.sock")));
        assert!(of_leg.iter().any(|pair| pair == (RESIDENT_SOCKET_VARIABLE.as_ref(), "/run/r.sock".as_ref())));
    }

    #[test]
    fn what_an_official_run_refuses_is_found_by_name() {
        let vars = parent(&[("BENCH_WORKER_FAST", "1"), ("DS4_RESIDENT_SOCKET", " "), ("HOME", "/h")]);
        assert_eq!(inherited_worker_variables(vars.clone()), ["BENCH_WORKER_FAST"]);
        assert_eq!(inherited_resident_socket(vars), None);
        let vars = parent(&[("DS4_RESIDENT_SOCKET", "/s")]);
        assert_eq!(inherited_resident_socket(vars).as_deref(), Some("DS4_RESIDENT_SOCKET"));
    }
}
