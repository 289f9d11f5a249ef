//! The program as it is spawned: its streams, its command line, its environment, its exit codes (engine-protocol-v1.md 2, 2.1
//! and 9).

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use bench_protocol::{Hello, MAX_LINE_BYTES, Response};

use crate::{NONCE, transcript};

/// A worker with an empty environment.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuda-engine"));
    command.arg("runtime-worker").args(args).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output_of(mut command: Command, requests: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // One that does not start reads nothing, and that is its right.
        scope.spawn(move || drop(stdin.write_all(requests)));
        child.wait_with_output().unwrap()
    })
}

/// Sends everything, closes, and waits for the end.
pub(crate) fn converse(args: &[&str], requests: &[u8]) -> Output {
    output_of(program(args), requests)
}

fn responses(output: &Output) -> Vec<Response> {
    output.stdout.split_inclusive(|&byte| byte == b'\n').map(|line| Response::parse(line).unwrap()).collect()
}

fn hello(output: &Output) -> Hello {
    Hello::from_response(responses(output).remove(0)).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start() -> Self {
        let mut child = program(&["--mock"]).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn next(&mut self) -> Response {
        let mut line = Vec::new();
        self.stdout.read_until(b'\n', &mut line).unwrap();
        Response::parse(&line).unwrap()
    }

    fn send(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn hello_comes_unasked_and_each_response_before_the_next_request() {
    let mut worker = Running::start();
    assert_eq!(worker.next().id, 0);
    worker.send("{\"id\":1,\"kind\":\"prefill\",\"prompt_tokens\":[1,2]}\n");
    assert_eq!(worker.next().token, Some(100_002));
    worker.send("{\"id\":2,\"kind\":\"phase_diagnostics\"}\n");
    assert_eq!(worker.next().completed_work, Some(0));
    drop(worker.child.stdin.take());
    assert!(worker.child.wait().unwrap().success());
}

#[test]
fn the_mock_names_itself_and_says_so_on_stderr() {
    let output = converse(&["--mock", "--weights", "embedded"], b"");
    let hello = hello(&output);
    assert_eq!((hello.backend.as_str(), hello.device.as_str()), ("mock", "none"));
    assert_eq!((hello.resident, hello.runner, hello.head_provenance), (None, None, None));
    assert!(stderr(&output).contains("mock"));
}

#[test]
fn the_end_of_the_requests_is_a_clean_end_also_inside_a_phase() {
    let output = converse(&["--mock"], b"{\"id\":1,\"kind\":\"decode_begin\",\"seed_tokens\":[1]}\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(responses(&output).len(), 2, "no barrier that nobody asked for");
}

#[test]
fn every_process_makes_up_a_nonce_of_16_hexadecimal_digits() {
    let nonces: Vec<_> = (0..3).map(|_| hello(&converse(&["--mock"], b"")).nonce).collect();
    for nonce in &nonces {
        assert!(nonce.len() == 16 && nonce.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{nonce}");
    }
    assert!(nonces[0] != nonces[1] && nonces[1] != nonces[2] && nonces[0] != nonces[2]);
    assert!(!hello(&converse(&["--mock", "--nonce", ""], b"")).nonce.is_empty());
}

#[test]
fn unknown_arguments_and_variables_change_nothing() {
    let (requests, wanted) = transcript::of_the_mock();
    let args =
        ["--speculative-protocol", "v1.1", "--mock", "--resource", "A=b", "--what", "-z", "stray", "--nonce", NONCE];
    let mut command = program(&args);
    let variables =
        ["DS4_MODEL", "DS4_RESIDENT_SOCKET", "MLXFAST_USE_RUNTIME_WORKER", "BENCH_WORKER_OTHER", "RUST_LOG"];
    command.envs(variables.map(|variable| (variable, "1"))).env("BENCH_WORKER_RESIDENT_SOCKET", "");
    let output = output_of(command, requests.as_bytes());
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
}

#[test]
fn a_line_of_20_mb_is_refused_and_the_next_one_is_served() {
    let mut requests = b"{\"id\":1,\"kind\":\"prefill\",\"prompt_tokens\":[".to_vec();
    while requests.len() < 20_000_000 {
        requests.extend_from_slice(b"1,");
    }
    requests.extend_from_slice(b"1]}\n{\"id\":2,\"kind\":\"prefill\",\"prompt_tokens\":[1]}\n");
    let output = converse(&["--mock"], &requests);
    let [_, refused, served] = &responses(&output)[..] else { panic!("{}", stderr(&output)) };
    assert_eq!(refused.id, -1);
    let wanted = format!("request line was not a valid WorkerRequest: it is longer than {MAX_LINE_BYTES} bytes");
    assert_eq!(refused.error.as_deref(), Some(wanted.as_str()));
    assert_eq!((served.id, served.token), (2, Some(100_001)));
    assert!(output.status.success());
}

#[test]
fn a_prompt_of_a_million_tokens_is_read_whole() {
    let mut requests = b"{\"id\":1,\"kind\":\"prefill\",\"prompt_tokens\":[1".to_vec();
    requests.extend(b",1".repeat(999_999));
    requests.extend_from_slice(b"]}\n");
    assert_eq!(responses(&converse(&["--mock"], &requests))[1].token, Some(1_100_000));
}

#[test]
fn bytes_that_are_no_text_are_refused_and_the_next_line_is_served() {
    let output = converse(
        &["--mock"],
        b"{\"id\":1,\"kind\":\"\xff\"}\n\0\n{\"id\":3,\"kind\":\"prefill\",\"prompt_tokens\":[]}\n",
    );
    let seen: Vec<_> = responses(&output).iter().map(|response| (response.id, response.ok)).collect();
    assert_eq!(seen, [(0, true), (-1, false), (-1, false), (3, true)]);
}

/// Only a stream that breaks is an end that failed. A folder cannot be read, and a full device not written: a pipe whose end
/// is dropped here may for a moment still be open in the child of another test.
#[test]
fn a_broken_stream_ends_the_worker_with_an_error() {
    let mut deaf = program(&["--mock"]);
    deaf.stdin(File::open("/").unwrap());
    let mut mute = program(&["--mock"]);
    mute.stdout(File::options().write(true).open("/dev/full").unwrap());
    for mut command in [deaf, mute] {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("the protocol stream broke"), "{}", stderr(&output));
    }
}

/// The resident that the variable names, or nothing: never quietly another engine.
#[test]
fn a_resident_that_cannot_be_reached_is_a_failure_before_hello() {
    for args in [&["--mock"][..], &[]] {
        let mut command = program(args);
        command.env("BENCH_WORKER_RESIDENT_SOCKET", "/nowhere/resident.sock");
        let output = output_of(command, b"");
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert!(stderr(&output).contains("/nowhere/resident.sock"), "{}", stderr(&output));
    }
}

#[cfg(not(feature = "engine"))]
#[test]
fn a_build_without_an_engine_is_the_mock_unless_an_engine_is_demanded() {
    assert_eq!(hello(&converse(&["--weights", "w"], b"")).backend, "mock");
    let output = converse(&["--engine", "--weights", "w"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(stderr(&output).contains("--features engine"));
}

#[test]
fn a_command_line_without_a_command_is_a_usage_error() {
    for args in [&[][..], &["no-such-command"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_cuda-engine")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
}
