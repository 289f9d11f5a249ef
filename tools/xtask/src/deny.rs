//! cargo-deny: licences, bans and sources always, advisories where their database can be had.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cargo::run;
use crate::check::Verdict;

/// The version deny.toml is written for; .ci/run installs the same.
const INSTALL: &str = "cargo install cargo-deny --locked --version 0.20.2";

/// A network that swallows packets must not hold the check up.
const FETCH_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn check(root: &Path) -> Verdict {
    let version = Command::new("cargo").args(["deny", "--version"]).stderr(Stdio::null()).output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Err(vec![format!("cargo-deny is not installed; run `{INSTALL}`")]);
    }
    // Inclusion graphs of harmless duplicates would bury what is refused; `cargo tree -i CRATE` shows one.
    let judge = ["deny", "--all-features", "check", "--hide-inclusion-graph"];
    run(root, &[&judge[..], &["licenses", "bans", "sources"]].concat(), &[])?;
    match fetch_advisories(root) {
        Err(why) => Ok(format!("advisories SKIPPED, no database: {why}")),
        Ok(()) => run(root, &[&judge[..], &["--disable-fetch", "advisories"]].concat(), &[]),
    }
}

/// The database is a git repository of its own; a machine that reaches only the crates registry cannot have it.
fn fetch_advisories(root: &Path) -> Result<(), String> {
    let mut fetch = Command::new("cargo");
    fetch.args(["deny", "fetch", "db"]).current_dir(root).stdin(Stdio::null()).stdout(Stdio::null());
    // git must fail rather than ask for a password.
    let mut child = fetch.stderr(Stdio::null()).env("GIT_TERMINAL_PROMPT", "0").spawn().map_err(|e| e.to_string())?;
    let start = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => return Err("`cargo deny fetch db` cannot reach it from this machine".to_owned()),
            None if start.elapsed() > FETCH_LIMIT => {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                return Err(format!("`cargo deny fetch db` took more than {} s", FETCH_LIMIT.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
