//! A worker process of its own, spoken to over its pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Stdio};

use serde_json::Value;

use crate::booted::{binary, eventually};

pub(crate) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    stderr: ChildStderr,
    issued: i64,
}

impl Worker {
    /// Attached to a resident, with its hello.
    pub(crate) fn attached(socket: &Path) -> (Self, Value) {
        let mut worker = Self::spawn(Some(socket));
        let hello = worker.response().unwrap();
        (worker, hello)
    }

    /// With the model in its own process, and its hello.
    #[cfg(feature = "engine")]
    pub(crate) fn in_process() -> (Self, Value) {
        let mut worker = Self::spawn(None);
        let hello = worker.response().unwrap();
        (worker, hello)
    }

    /// As the benchmarker spawns it (engine-protocol-v1.md 2.1), the nonce pinned.
    pub(crate) fn spawn(socket: Option<&Path>) -> Self {
        let mut command = binary();
        command.args(["runtime-worker", "--weights", "embedded", "--speculative-protocol", "v1.1", "--nonce", "5f1c"]);
        command.env_clear().envs(socket.map(|socket| ("BENCH_WORKER_RESIDENT_SOCKET", socket)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let requests = child.stdin.take();
        let responses = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        Self { child, requests, responses, stderr, issued: 0 }
    }

    /// The next line; `None` at the end of them.
    pub(crate) fn response(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.responses.read_line(&mut line).unwrap() {
            0 => None,
            _ => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    /// Sends a request, given without its id, and returns the response without id and nonce, which are those there must be.
    pub(crate) fn ask(&mut self, mut request: Value) -> Value {
        self.issued += 1;
        request["id"] = self.issued.into();
        let line = format!("{request}\n");
        self.requests.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut response = self.response().unwrap();
        let fields = response.as_object_mut().unwrap();
        assert_eq!((fields.remove("id"), fields.remove("nonce")), (Some(self.issued.into()), Some("5f1c".into())));
        response
    }

    /// Ends its input; its exit and all it said on stderr.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        drop(self.requests.take());
        let status = eventually("the end of the worker", || self.child.try_wait().unwrap());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (status, said)
    }

    /// Kills it where it stands.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
