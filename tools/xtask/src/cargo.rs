//! Checks that are a run of cargo.
//!
//! All build in the release profile: build scripts and procedural macros are then compiled once for clippy, rustdoc, the
//! tests and the program itself, which is most of a cold CI run on two cores.

use std::path::Path;
use std::process::Command;

use crate::check::Verdict;

/// What README tells a reader to type; CI runs the second.
pub(crate) const README_COMMANDS: &[&str] =
    &["cargo run --release -- run \"Once upon a time\"", "cargo test --release --workspace"];

/// Runs cargo with its output shown; wrong is a command that cannot be run or does not succeed.
pub(crate) fn run(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Verdict {
    let line = arguments.join(" ");
    let status = Command::new("cargo").args(arguments).envs(environment.iter().copied()).current_dir(root).status();
    match status {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(status) => Err(vec![format!("`cargo {line}`: {status}")]),
        Err(error) => Err(vec![format!("`cargo {line}` cannot be run: {error}")]),
    }
}

pub(crate) fn fmt(root: &Path) -> Verdict {
    let names_only = ["--", "--check", "-l"];
    run(root, &[&["fmt", "--all"], &names_only[..]].concat(), &[])?;
    // The fuzz targets are a workspace of their own.
    run(root, &[&["fmt", "--manifest-path", "fuzz/Cargo.toml"], &names_only[..]].concat(), &[])
}

/// The fuzz targets' lock file goes stale with any dependency of a crate they link, and nothing else builds them.
pub(crate) fn locks(root: &Path) -> Verdict {
    run(root, &["fetch", "--quiet", "--locked"], &[])?;
    run(root, &["fetch", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml"], &[])
}

pub(crate) fn clippy(root: &Path) -> Verdict {
    run(root, &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

/// The other half of the feature `embed`: the model is read from the tree.
pub(crate) fn no_embed(root: &Path) -> Verdict {
    let without = ["--release", "--no-default-features", "-p", "cudafast-tiny"];
    run(root, &[&["clippy"], &without[..], &["-p", "cudafast", "--", "-D", "warnings"]].concat(), &[])?;
    run(root, &[&["test", "--quiet"], &without[..]].concat(), &[])
}

/// The worker and the resident process with an engine in them; without one, both are part of the workspace's checks. Asked
/// for of the whole workspace: features of all other crates resolve as they do there, and nothing else is built twice.
pub(crate) fn worker_engine(root: &Path) -> Verdict {
    let with = ["--release", "--workspace", "--features", "cuda-engine/engine"];
    run(root, &[&["clippy", "--all-targets"], &with[..], &["--", "-D", "warnings"]].concat(), &[])?;
    run(root, &[&["test", "--quiet", "--test", "resident"], &with[..]].concat(), &[])
}

/// Private items too: nothing is published, so the reader is a developer, and links inside a crate are checked as well.
pub(crate) fn doc(root: &Path) -> Verdict {
    let doc = ["doc", "--release", "--workspace", "--no-deps", "--document-private-items"];
    run(root, &doc, &[("RUSTDOCFLAGS", "-D warnings")])
}

pub(crate) fn test(root: &Path) -> Verdict {
    run(root, &["test", "--release", "--workspace"], &[])
}
