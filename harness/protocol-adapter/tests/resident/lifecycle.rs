//! Start, clients one after the other, end.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::time::Duration;

use cuda_engine::resident::{PATIENCE, Resident};
use cuda_engine::target::Target;
use rustix::process::Signal;

use crate::booted::{Booted, Raw, binary, eventually};

#[test]
fn the_ready_file_names_a_socket_that_only_its_owner_can_use() {
    let booted = Booted::stub("1");
    assert_eq!(fs::read_to_string(booted.ready_file()).unwrap().trim_end(), booted.socket().to_str().unwrap());
    let metadata = fs::metadata(booted.socket()).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_signal_removes_socket_and_ready_file_and_closes_the_engine() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut booted = Booted::stub("1");
        let _silent = Raw::connect(&booted.socket());
        eventually("the connection", || (booted.said("INVALIDATE") == 1).then_some(()));
        booted.signal(signal);
        assert_eq!(booted.wait().code(), Some(0));
        assert!(!booted.socket().exists() && !booted.ready_file().exists());
        assert_eq!((booted.said("OPEN #"), booted.said("CLOSE")), (1, 1));
    }
}

#[test]
fn every_client_finds_a_state_without_tokens_and_one_load() {
    let booted = Booted::stub("1");
    for connection in 1..=4 {
        let mut client = Resident::attach(&booted.socket(), PATIENCE).unwrap();
        assert_eq!(client.load_epoch(), booted.pid());
        assert_eq!(client.argmax(), Some(40), "the argmax of a fresh state");
        assert_eq!(client.sync(&[11, 12, 13]).unwrap(), 653);
        assert_eq!(booted.said("INVALIDATE"), connection);
    }
    assert_eq!(booted.said("OPEN #"), 1);
}

#[test]
fn a_second_client_waits_for_the_first_to_go() {
    let booted = Booted::stub("1");
    let mut first = Raw::connect(&booted.socket());
    assert_eq!(first.ask(r#"{"op":"sync","tokens":[11,12,13]}"#)["token"], 653);
    let mut second = Raw::connect(&booted.socket());
    second.send(b"{\"op\":\"argmax\"}\n");
    // Had the second been let in, the state would be a fresh one by now.
    assert_eq!(first.ask(r#"{"op":"eval","token":50}"#)["token"], 836);
    assert_eq!(booted.said("INVALIDATE"), 1);
    drop(first);
    assert_eq!(second.reply().unwrap()["token"], 40);
}

#[test]
fn a_silent_client_is_dropped_and_the_next_served() {
    let booted = Booted::with(&["--stub", "--idle-timeout-s", "1"]);
    let mut silent = Raw::connect(&booted.socket());
    let mut half = Raw::connect(&booted.socket());
    half.send(br#"{"op":"argm"#);
    let mut next = Raw::connect(&booted.socket());
    assert_eq!(next.ask(r#"{"op":"sync","tokens":[11]}"#)["token"], 730);
    assert_eq!((silent.reply(), half.reply()), (None, None));
}

#[test]
fn a_client_that_reads_no_reply_does_not_keep_a_resident_from_ending() {
    let mut booted = Booted::stub("1");
    let mut deaf = UnixStream::connect(booted.socket()).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let requests = b"{\"op\":\"hello\"}\n".repeat(1000);
    while deaf.write_all(&requests).is_ok() {}
    booted.signal(Signal::TERM);
    assert_eq!(booted.wait().code(), Some(0));
    assert!(!booted.socket().exists());
}

#[test]
fn a_client_that_is_gone_before_its_reply_does_no_harm() {
    let booted = Booted::stub("1");
    for _ in 0..20 {
        let mut gone = Raw::connect(&booted.socket());
        gone.send(b"{\"op\":\"hello\"}\n{\"op\":\"sync\",\"tokens\":[1,2,3]}\n{\"op\":\"argmax\"}\n{\"op\":\"ev");
    }
    let mut next = Raw::connect(&booted.socket());
    assert_eq!(next.ask(r#"{"op":"sync","tokens":[11]}"#)["token"], 730);
}

#[test]
fn what_lies_at_the_path_of_the_socket_is_replaced() {
    let booted = Booted::stub("1");
    let stale = booted.folder().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let mut child =
        binary().args(["resident", "--stub", "--socket"]).arg(&stale).stderr(Stdio::null()).spawn().unwrap();
    eventually("a resident at the stale path", || UnixStream::connect(&stale).ok());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// engine-protocol-v1.md 10, "start order": each of these is wrong in what is checked later, too.
#[test]
fn a_start_is_refused_by_the_first_thing_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("socket").display().to_string();
    let nowhere = folder.path().join("nowhere/socket").display().to_string();
    let long = format!("/tmp/{}", "x".repeat(103));
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--draft-tokens", "x"], 2, "--socket is missing"),
        (&["--socket", &long, "--draft-tokens", "x"], 2, "108 bytes"),
        (&["--socket", &nowhere, "--draft-tokens", "x"], 2, "--model is missing"),
        (&["--socket", &nowhere, "--model", "gone.gguf", "--draft-tokens", "17"], 2, "--draft-tokens \"17\""),
        (&["--socket", &nowhere, "--model", "gone.gguf", "--ctx-tokens", "255"], 2, "--ctx-tokens \"255\""),
        (&["--socket", &nowhere, "--model", "gone.gguf", "--stop-ids", "1,x"], 2, "--stop-ids \"1,x\""),
        (&["--socket", &nowhere, "--model", "gone.gguf", "--ident"], 2, "--ident"),
        (&["--socket", &nowhere, "--model", "gone.gguf"], 1, "gone.gguf"),
        (&["--socket", &nowhere, "--stub"], 1, "cannot listen"),
    ];
    for (args, code, why) in cases {
        let output = binary().arg("resident").args(args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(why), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
    let ready = folder.path().join("nowhere/ready").display().to_string();
    let output = binary().args(["resident", "--stub", "--socket", &good, "--ready-file", &ready]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!folder.path().join("socket").exists(), "a start that failed leaves no socket");
}
