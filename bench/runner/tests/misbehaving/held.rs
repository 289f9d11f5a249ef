use std::fs;

use bench_runner::{Sandbox, WorkerEnvironment};

use crate::worker::launch;

/// What the worker of `held` still can do: the bits of its `probe`.
fn can(sandbox: Sandbox, folder: &std::path::Path) -> (u32, bench_runner::SandboxReport) {
    let (secret, given, out) = (folder.join("golden.json"), folder.join("given"), folder.join("memo"));
    fs::write(&secret, "{}").unwrap();
    fs::write(&given, "weights").unwrap();
    let mut launch = launch("held");
    let parent = [("GIT_DIR", "/d"), ("MLXFAST_COMMIT_SHA", "a"), ("PATH", "/bin")];
    launch.environment = WorkerEnvironment::from_parent(parent.map(|(name, value)| (name.into(), value.into())));
    launch.environment.set("BENCH_WORKER_SECRET", &secret);
    launch.environment.set("BENCH_WORKER_GIVEN", &given);
    launch.environment.set("BENCH_WORKER_OUT", &out);
    launch.sandbox = sandbox;
    launch.weights = Some(given);
    let mut session = launch.connect().unwrap();
    session.prefill(&[1]).unwrap();
    let bits = session.close_phase().unwrap().peak_ram_gb;
    (bits as u32, *session.sandbox())
}

pub(crate) fn a_worker_finds_only_the_variables_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let (bits, report) = can(Sandbox::none(), folder.path());
    // Read, write, start a process, reach for the network, leave the group; no bit for a variable.
    assert_eq!(bits & 0b1100_0011, 0b0000_0011);
    assert_eq!(report.to_string(), "none (linux)");
}

pub(crate) fn a_worker_in_a_sandbox_reads_writes_and_reaches_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (bits, report) = can(Sandbox::worker(), folder.path());
    let mut forbidden = 0;
    if report.landlock_abi.is_some() {
        forbidden |= 0b0_0011;
    }
    if report.seccomp {
        forbidden |= 0b1_1100;
    }
    assert_eq!(bits & forbidden, 0, "{bits:b} under {report}");
    assert_eq!(bits & 0b1110_0000, 0, "threads run, the weights are read, no variable came along: {bits:b}");
}
