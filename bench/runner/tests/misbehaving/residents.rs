use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use bench_runner::{
    Interrupt, Resident, ResidentPlan, ServePlan, Served, Stopped, WorkerEnvironment, resident_hello, stop_resident,
};

use crate::cheats::is_gone;
use crate::worker::flag;

const CHEAT: &str = "BENCH_WORKER_CHEAT";

/// The resident: honest, but for the one thing that the variable names.
pub(crate) fn play(args: &[String]) -> ExitCode {
    let cheat = std::env::var(CHEAT).unwrap_or_default();
    let is = |name: &str| cheat == name;
    let (socket, ready) = (flag(args, "--socket").unwrap(), flag(args, "--ready-file").unwrap());
    if is("die-loading") {
        eprintln!("no such model");
        return ExitCode::FAILURE;
    }
    if is("ignore-term") {
        let ignored = rustix::process::Signal::TERM.as_raw();
        // SAFETY: a signal is ignored.
        unsafe { libc::signal(ignored, libc::SIG_IGN) };
    }
    let listener = UnixListener::bind(&socket).unwrap();
    if !is("never-ready") {
        fs::write(&ready, &socket).unwrap();
    }
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        let epoch = if is("impostor") { 1 } else { std::process::id() };
        let hello = format!(
            "{{\"ok\":true,\"vocab_size\":1024,\"eos_token\":99,\"mtp_armed\":true,\"draft_tokens\":3,\"ctx_size\":8192,\
             \"load_epoch\":{epoch},\"ident\":\"t\",\"model_path\":\"m\",\"mtp_head_path\":\"h\",\"device\":\"cpu\"}}\n"
        );
        match cheat.as_str() {
            "die-hello" => return ExitCode::FAILURE,
            "no-json" => stream.write_all(b"hello\n").unwrap(),
            "refuse" => stream.write_all(b"{\"ok\":false,\"error\":\"busy\"}\n").unwrap(),
            _ => stream.write_all(hello.as_bytes()).unwrap(),
        }
    }
    ExitCode::SUCCESS
}

fn plan(folder: &Path, cheat: &str) -> ResidentPlan {
    let mut environment = WorkerEnvironment::from_parent([]);
    environment.set(CHEAT, cheat);
    ResidentPlan {
        program: std::env::current_exe().unwrap(),
        args: Vec::new(),
        folder: None,
        environment,
        socket: folder.join("r.sock"),
        ready_file: folder.join("ready"),
        log: folder.join("log"),
        health_timeout: Duration::from_millis(if cheat == "never-ready" { 300 } else { 60_000 }),
        detached: false,
        interrupt: Interrupt::new().unwrap(),
    }
}

/// Everything but the log.
fn left(folder: &Path) -> Vec<OsString> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name != "log" && name != "tools").collect()
}

pub(crate) fn a_resident_is_started_known_and_gone_with_its_socket_and_ready_file() {
    for cheat in ["", "ignore-term"] {
        let folder = tempfile::tempdir().unwrap();
        let (resident, found) = Resident::start(&plan(folder.path(), cheat)).unwrap();
        assert_eq!((found.pid, found.hello.load_epoch), (resident.pid().unwrap(), found.pid.into()));
        assert_eq!(resident.identity(), Some(found.identity()));
        assert_eq!(resident_hello(resident.socket(), Duration::from_secs(60)).unwrap(), found);
        drop(resident);
        assert!(is_gone(found.pid) && left(folder.path()).is_empty());
    }
}

pub(crate) fn each_way_to_fail_as_a_resident_has_a_name_and_leaves_nothing() {
    let table = [
        ("die-loading", "RESIDENT-DIED"),
        ("never-ready", "RESIDENT-NOT-READY"),
        ("die-hello", "RESIDENT-NO-HELLO"),
        ("no-json", "RESIDENT-NO-HELLO"),
        ("refuse", "RESIDENT-NO-HELLO"),
        ("impostor", "RESIDENT-IMPOSTOR"),
    ];
    for (cheat, name) in table {
        let folder = tempfile::tempdir().unwrap();
        let error = Resident::start(&plan(folder.path(), cheat)).map(drop).unwrap_err();
        assert_eq!(error.name(), name, "{cheat}: {error}");
        assert_eq!(left(folder.path()), [""; 0], "{cheat}");
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = ResidentPlan { health_timeout: Duration::from_secs(3600), ..plan(folder.path(), "never-ready") };
    plan.interrupt.raise();
    assert_eq!(Resident::start(&plan).map(drop).unwrap_err().name(), "Interrupted");
    assert_eq!(left(folder.path()), [""; 0]);
}

pub(crate) fn a_resident_left_running_is_stopped_by_whoever_knows_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let plan = ResidentPlan { detached: true, ..plan(folder.path(), "") };
    let (resident, found) = Resident::start(&plan).unwrap();
    let detached = resident.detach().unwrap();
    assert_eq!(detached.pid, found.pid);
    let elsewhere = folder.path().join("another.sock");
    assert_eq!(stop_resident(detached.pid, &elsewhere, None).unwrap(), Stopped::NothingToStop);
    assert!(!is_gone(detached.pid), "a process that does not name the socket is let be");
    let stop = || stop_resident(detached.pid, &detached.socket, Some(&detached.ready_file)).unwrap();
    assert_eq!((stop(), stop()), (Stopped::WasRunning, Stopped::NothingToStop));
    assert_eq!(left(folder.path()), [""; 0]);
}

/// What `tools/serve-up.sh` is: the flags of track-contract.md 6.1, over the same supervisor.
pub(crate) fn serve_up(args: &[String]) -> ExitCode {
    let cheat = std::env::var(CHEAT).unwrap_or_default();
    let folder = std::env::current_dir().unwrap();
    let sidecar = folder.join("r.sock.pid");
    if args.iter().any(|arg| arg == "--stop") {
        if cheat == "no-stop" {
            return ExitCode::FAILURE;
        }
        let socket = PathBuf::from(flag(args, "--socket").unwrap());
        let pid = fs::read_to_string(&sidecar).unwrap().lines().next().unwrap().parse().unwrap();
        stop_resident(pid, &socket, Some(&folder.join("ready"))).unwrap();
        fs::remove_file(sidecar).unwrap();
        return ExitCode::SUCCESS;
    }
    assert_eq!(args[..5], ["--boot", "--spec", "mtp", "--draft-len", "2"]);
    match cheat.as_str() {
        "boot-fails" => {
            eprintln!("memory plan REFUSES the load");
            return ExitCode::FAILURE;
        }
        "tells-nothing" => return ExitCode::SUCCESS,
        "hangs" => sleep(Duration::from_secs(3600)),
        _ => {}
    }
    let detached = ResidentPlan { detached: true, ..plan(&folder, &cheat) };
    let Ok((resident, found)) = Resident::start(&detached) else { return ExitCode::FAILURE };
    fs::write(sidecar, format!("{}\n{}\n", found.pid, folder.join("ready").display())).unwrap();
    fs::write(flag(args, "--socket-out").unwrap(), format!("{}\n", folder.join("r.sock").display())).unwrap();
    resident.detach().unwrap();
    if cheat == "fails-after" { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn serve_plan(folder: &Path, cheat: &str) -> ServePlan {
    fs::create_dir_all(folder.join("tools")).unwrap();
    let script = folder.join("tools/serve-up.sh");
    let program = std::env::current_exe().unwrap();
    fs::write(&script, format!("#!/bin/sh\nexec '{}' serve-up \"$@\"\n", program.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut environment = WorkerEnvironment::from_parent([("PATH".into(), "/usr/bin:/bin".into())]);
    environment.set(CHEAT, cheat);
    ServePlan {
        workspace: folder.into(),
        script: "tools/serve-up.sh".into(),
        label: "candidate",
        depth: 2,
        environment,
        temp_dir: folder.join("tools"),
        boot_timeout: Duration::from_millis(if cheat == "hangs" { 300 } else { 60_000 }),
        interrupt: Interrupt::new().unwrap(),
    }
}

pub(crate) fn a_leg_is_served_by_the_script_of_its_tree_and_leaves_nothing() {
    // Stopped by the script, and where that does not, by force.
    for (cheat, stops) in [("", true), ("no-stop", false)] {
        let folder = tempfile::tempdir().unwrap();
        let (served, found) = Served::boot(serve_plan(folder.path(), cheat)).unwrap();
        assert_eq!((served.identity(), served.socket()), (Some(found.identity()), &*folder.path().join("r.sock")));
        assert_eq!(served.stop().is_ok(), stops);
        assert!(!Path::new(&format!("/proc/{}/exe", found.pid)).exists());
        assert_eq!(left(folder.path()), [""; 0]);
        let tools: Vec<_> = fs::read_dir(folder.path().join("tools")).unwrap().collect();
        assert_eq!(tools.len(), 1, "the script alone is left: {tools:?}");
    }
}

pub(crate) fn each_way_to_fail_to_serve_has_a_name_and_leaves_nothing() {
    for cheat in ["boot-fails", "tells-nothing", "hangs", "die-loading", "die-hello", "impostor", "fails-after"] {
        let folder = tempfile::tempdir().unwrap();
        let error = Served::boot(serve_plan(folder.path(), cheat)).map(drop).unwrap_err();
        assert_eq!(error.name(), "LEG-SERVE-BOOT-FAILED", "{cheat}: {error}");
        assert_eq!(left(folder.path()), [""; 0], "{cheat}");
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = ServePlan { script: "tools/other.sh".into(), ..serve_plan(folder.path(), "") };
    assert_eq!(Served::boot(plan).map(drop).unwrap_err().name(), "LEG-SERVE-SCRIPT-MISSING");
    let plan = serve_plan(folder.path(), "hangs");
    plan.interrupt.raise();
    assert_eq!(Served::boot(plan).map(drop).unwrap_err().name(), "Interrupted");
}
