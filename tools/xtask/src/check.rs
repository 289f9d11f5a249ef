//! The list of checks, which of them a command line asks for, and running them in order.

use std::path::Path;
use std::time::Instant;

use crate::{arrows, cargo, deny, tree, walls};

/// What a check that holds has to say, or each thing that is wrong.
pub(crate) type Verdict = Result<String, Vec<String>>;

/// One thing that must hold.
pub(crate) struct Check {
    /// What `--only` and `--skip` call it.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) what: &'static str,
    /// Part of `--fast`.
    pub(crate) fast: bool,
    /// Runs it in the repository at the path.
    pub(crate) run: fn(&Path) -> Verdict,
}

/// Every check, cheapest first: a run stops at the first that fails.
pub(crate) const CHECKS: &[Check] = &[
    Check { name: "fmt", what: "rustfmt changes nothing", fast: true, run: cargo::fmt },
    Check { name: "locks", what: "both lock files match their manifests", fast: true, run: cargo::locks },
    Check { name: "arrows", what: "crates depend only on the rooms they may know", fast: true, run: arrows::check },
    Check { name: "walls", what: "file length, environment reads, open ends", fast: true, run: walls::check_sources },
    Check { name: "data", what: "no data under engine/ or harness/", fast: true, run: walls::check_data },
    Check { name: "size", what: "the repository stays under 45 MB", fast: true, run: walls::check_size },
    Check { name: "readme", what: "README shows the commands that CI runs", fast: true, run: walls::check_readme },
    Check { name: "clippy", what: "no warning in any target", fast: true, run: cargo::clippy },
    Check { name: "no-embed", what: "the program builds without the model in it", fast: false, run: cargo::no_embed },
    Check {
        name: "worker-engine",
        what: "the worker and the resident, engine included",
        fast: false,
        run: cargo::worker_engine,
    },
    Check { name: "doc", what: "documentation builds without a warning", fast: false, run: cargo::doc },
    Check { name: "deny", what: "licences, sources, bans, advisories", fast: false, run: deny::check },
    Check { name: "test", what: "README's test command passes", fast: false, run: cargo::test },
];

/// The checks a command line asks for, or what is wrong with it.
pub(crate) fn select(flags: &[&str]) -> Result<Vec<&'static Check>, String> {
    let (mut fast, mut only, mut skip) = (false, Vec::new(), Vec::new());
    let mut rest = flags.iter();
    while let Some(&flag) = rest.next() {
        match flag {
            "--fast" => fast = true,
            "--gpu" => {
                return Err("--gpu: this tree has no engine/cuda, so there are no device tests to run".to_owned());
            }
            "--only" | "--skip" => {
                let name = rest.next().ok_or(format!("{flag} wants the name of a check"))?;
                let check = CHECKS.iter().find(|check| check.name == *name);
                let check = check.ok_or(format!("{flag} {name}: no such check"))?;
                if flag == "--only" { only.push(check.name) } else { skip.push(check.name) }
            }
            other => return Err(format!("no flag `{other}`")),
        }
    }
    let asked = |check: &&Check| {
        (check.fast || !fast) && (only.is_empty() || only.contains(&check.name)) && !skip.contains(&check.name)
    };
    let checks: Vec<_> = CHECKS.iter().filter(asked).collect();
    if checks.is_empty() { Err("these flags leave no check to run".to_owned()) } else { Ok(checks) }
}

/// Names and purposes for the usage text; `*` marks the fast ones.
pub(crate) fn list() -> String {
    let line = |check: &Check| format!("  {:<9}{} {}\n", check.name, if check.fast { '*' } else { ' ' }, check.what);
    CHECKS.iter().map(line).collect::<String>() + "* part of --fast\n"
}

/// Runs checks in order and tells how each went; false at the first that fails.
pub(crate) fn run_all(checks: &[&Check], root: &Path) -> bool {
    for check in checks {
        eprintln!("xtask {}: {}", check.name, check.what);
        let start = Instant::now();
        let verdict = (check.run)(root);
        let seconds = start.elapsed().as_secs_f64();
        match verdict {
            Ok(note) if note.is_empty() => eprintln!("xtask {}: ok, {seconds:.1} s", check.name),
            Ok(note) => eprintln!("xtask {}: ok, {seconds:.1} s; {note}", check.name),
            Err(problems) => {
                for problem in &problems {
                    eprintln!("  {problem}");
                }
                eprintln!("xtask {}: FAILED, {seconds:.1} s, {} found", check.name, problems.len());
                return false;
            }
        }
    }
    true
}

/// [`Verdict`] of a list of violations: holds when there is none.
pub(crate) fn verdict(problems: Vec<String>, note: String) -> Verdict {
    if problems.is_empty() { Ok(note) } else { Err(problems) }
}

/// [`tree::committable`] as a check's first step.
pub(crate) fn files(root: &Path) -> Result<Vec<tree::File>, Vec<String>> {
    tree::committable(root).map_err(|problem| vec![problem])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(flags: &[&str]) -> Vec<&'static str> {
        select(flags).unwrap().iter().map(|check| check.name).collect()
    }

    #[test]
    fn without_flags_every_check_runs() {
        assert_eq!(names(&[]).len(), CHECKS.len());
    }

    #[test]
    fn fast_leaves_out_what_takes_minutes() {
        let fast = names(&["--fast"]);
        assert!(fast.contains(&"clippy") && fast.contains(&"arrows"));
        assert!(!fast.contains(&"test") && !fast.contains(&"deny"));
    }

    #[test]
    fn only_and_skip_narrow_the_list() {
        assert_eq!(names(&["--only", "doc", "--only", "fmt"]), ["fmt", "doc"]);
        assert!(!names(&["--skip", "test"]).contains(&"test"));
        assert_eq!(names(&["--skip", "test"]).len(), CHECKS.len() - 1);
    }

    #[test]
    fn flags_that_cannot_be_followed_are_refused() {
        for flags in [&["--only"][..], &["--only", "nothing"], &["--gpu"], &["--quick"], &["--fast", "--only", "test"]]
        {
            assert!(select(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        for check in CHECKS {
            assert_eq!(CHECKS.iter().filter(|other| other.name == check.name).count(), 1, "{}", check.name);
        }
    }
}
