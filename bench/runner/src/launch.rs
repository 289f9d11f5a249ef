//! How a worker is started (engine-protocol-v1.md 2.1).

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::environment::WorkerEnvironment;
use crate::interrupt::Interrupt;
use crate::process::Group;
use crate::sandbox::Sandbox;
use crate::session::{SessionError, WorkerSession};
use crate::stderr::Drain;
use crate::stream::Wire;

/// How long each step of a session may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// From the start to hello: a worker without a resident loads its weights in this time.
    pub hello: Duration,
    /// Any request but a free run.
    pub request: Duration,
    /// `free_decode_run`, see [`run_budget`](crate::run_budget).
    pub run: Duration,
    /// The end, once nothing more is asked.
    pub close: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let long = Duration::from_secs(300);
        Self { hello: long, request: long, run: long, close: Duration::from_secs(60) }
    }
}

/// A worker to be started, as often as wanted.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The engine.
    pub program: PathBuf,
    /// Behind the arguments that every worker gets.
    pub args: Vec<OsString>,
    /// `--weights`.
    pub weights: Option<PathBuf>,
    /// `--resource NAME=PATH`.
    pub resources: Vec<(String, PathBuf)>,
    /// All that it finds in its environment, but for the resident's socket.
    pub environment: WorkerEnvironment,
    /// The resident to attach to.
    pub resident_socket: Option<PathBuf>,
    /// What it may touch beside its program, weights and resources.
    pub sandbox: Sandbox,
    /// Whether people see what it writes to stderr: local modes only.
    pub forward_stderr: bool,
    /// How long it may take.
    pub deadlines: Deadlines,
    /// Ends its session.
    pub interrupt: Interrupt,
}

impl Launch {
    /// A worker in a sandbox, without weights and without a resident.
    pub fn new(program: impl Into<PathBuf>, environment: WorkerEnvironment, interrupt: Interrupt) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            weights: None,
            resources: Vec::new(),
            environment,
            resident_socket: None,
            sandbox: Sandbox::worker(),
            forward_stderr: false,
            deadlines: Deadlines::default(),
            interrupt,
        }
    }

    /// Starts a worker and reads its hello. It dies with the thread that calls this.
    pub fn connect(&self) -> Result<WorkerSession, SessionError> {
        let refused = |source| SessionError::Spawn { program: self.program.clone(), source };
        let (group, wire, stderr) = self.spawn().map_err(refused)?;
        WorkerSession::connect(group, wire, stderr, self.deadlines)
    }

    fn spawn(&self) -> io::Result<(Group, Wire, Drain)> {
        let mut command = Command::new(&self.program);
        command.arg("runtime-worker");
        let weights = self.weights.as_deref().map(std::path::absolute).transpose()?;
        if let Some(weights) = &weights {
            command.arg("--weights").arg(weights);
        }
        let mut sandbox = self.sandbox.clone().read(&self.program);
        if let Some(path) = &weights {
            sandbox = sandbox.read(path);
        }
        for (name, path) in &self.resources {
            let path = std::path::absolute(path)?;
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(&path);
            command.arg("--resource").arg(pair);
            sandbox = sandbox.read(path);
        }
        command.args(["--speculative-protocol", "v1.1"]).args(&self.args);
        command.env_clear().envs(self.environment.with_socket(self.resident_socket.as_deref()).iter());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // From here on whatever goes wrong ends the child: the group is dropped.
        let mut group = Group::spawn(&mut command, sandbox.prepare()?, true)?;
        let child = group.child_mut();
        let (Some(requests), Some(responses), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the child has no streams"));
        };
        let wire = Wire::new(requests, responses, self.interrupt.clone())?;
        Ok((group, wire, Drain::start(stderr, self.forward_stderr)?))
    }
}
