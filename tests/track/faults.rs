//! benchd when what it started dies, or it is told to end: a name, an exit code, and nothing left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Bench, CONTRACT, ENGINE, GOLDEN, child_running, children, code, is_alive, said};

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Starts a local run, does something to it once `what` runs, and waits for its end.
fn disturbed(bench: &Bench, what: &str, disturb: impl FnOnce(&Child, u32)) -> Output {
    let mut child = bench.iterate(&["--golden", GOLDEN, "--mtp-depth", "2"]).spawn().unwrap();
    let pid = child_running(&mut child, what);
    let resident = child_running(&mut child, "resident --socket");
    disturb(&child, pid);
    let benchd = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(!is_alive(pid) && !is_alive(resident), "{what} lives on");
    assert!(children(benchd).is_empty());
    assert!(bench.scratch().is_empty(), "{:?}", bench.scratch());
    assert!(!bench.result("score.json").exists(), "a run that broke off has a result");
    output
}

#[test]
fn a_worker_that_is_killed_is_named_and_the_resident_ended() {
    let bench = Bench::new();
    let output = disturbed(&bench, "runtime-worker", |_, worker| signal(worker, Signal::KILL));
    assert_eq!(code(&output), 1, "{}", said(&output));
    assert!(said(&output).contains("REFUSING -- WORKER-DIED: "), "{}", said(&output));
}

#[test]
fn a_resident_that_is_killed_fails_the_run_and_leaves_no_socket() {
    let bench = Bench::new();
    let output = disturbed(&bench, "runtime-worker", |child, _| {
        let resident = children(child.id()).into_iter().find(|(_, line)| line.contains("resident --socket"));
        signal(resident.unwrap().0, Signal::KILL);
    });
    assert_eq!(code(&output), 1, "{}", said(&output));
    assert!(said(&output).contains("REFUSING -- "), "{}", said(&output));
}

#[test]
fn a_resident_that_does_not_come_up_is_named_with_the_end_of_its_log() {
    let bench = Bench::new();
    let weights = tempfile::tempdir().unwrap();
    fs::write(weights.path().join("a.gguf"), "no model").unwrap();
    let line = ["iterate", "--engine", ENGINE, "--weights", weights.path().to_str().unwrap(), "--resident"];
    let output = bench.run(&[&line[..], &["--contract", CONTRACT, "--golden", GOLDEN]].concat());
    assert_eq!(code(&output), 1);
    assert!(
        said(&output).contains("REFUSING -- LEG-SERVE-BOOT-FAILED: it ended before it was ready"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_signal_ends_the_run_with_130_and_all_that_it_started() {
    for wanted in [Signal::TERM, Signal::INT] {
        let bench = Bench::new();
        let output = disturbed(&bench, "runtime-worker", |child, _| signal(child.id(), wanted));
        assert_eq!(code(&output), 130, "{}", said(&output));
    }
}

#[test]
fn an_engine_that_computes_nothing_passes_for_no_engine() {
    let bench = Bench::new();
    let mock = bench.result("mock");
    fs::write(&mock, format!("#!/bin/sh\nexec {ENGINE} \"$@\" --mock\n")).unwrap();
    fs::set_permissions(&mock, fs::Permissions::from_mode(0o755)).unwrap();
    let line = ["correctness", "--engine", mock.to_str().unwrap(), "--weights", "models/tiny", "--no-sandbox"];
    let output = bench.run(&[&line[..], &["--contract", CONTRACT, "--golden", GOLDEN]].concat());
    assert_eq!(code(&output), 1, "{}", said(&output));
    assert!(said(&output).contains("teacher-forced token mismatch in `stories` at step 0"), "{}", said(&output));
}
