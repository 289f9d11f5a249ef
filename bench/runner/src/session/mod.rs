//! A session with a worker: one request at a time, each response checked, timed by our clock alone
//! (engine-protocol-v1.md 3 and 7).

mod engine;
mod error;
mod verbs;

use std::time::{Duration, Instant};

use bench_protocol::{Hello, Request, Response, UNREADABLE_ID, Verb};

use crate::launch::Deadlines;
use crate::process::Group;
use crate::sandbox::SandboxReport;
use crate::stderr::{Drain, clip};
use crate::stream::{Broken, Wire};

pub use self::error::{BudgetError, DEFAULT_CEILING_SECONDS_PER_TOKEN, SessionError, run_budget};
pub use self::verbs::{FreeRun, PhaseReport, SeedReply};

/// How long a worker whose stdout has ended may take to end itself (engine-protocol-v1.md 2.1).
const DYING: Duration = Duration::from_millis(2000);

/// What was answered, and our clock on both sides of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<T> {
    /// The answer.
    pub value: T,
    /// Just before the request was written.
    pub sent: Instant,
    /// When all of the response was there.
    pub received: Instant,
}

impl<T> Reply<T> {
    /// In between.
    pub fn elapsed(&self) -> Duration {
        self.received.saturating_duration_since(self.sent)
    }
}

/// A worker that has said hello. Dropped, or at its first error, it is killed and reaped with all of its process group.
#[derive(Debug)]
pub struct WorkerSession {
    group: Group,
    wire: Wire,
    stderr: Drain,
    deadlines: Deadlines,
    hello: Hello,
    next_id: i64,
    phase: Option<Phase>,
    discarded: bool,
}

/// What an open phase must add up to.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    /// Timed steps that were issued.
    Steps(u64),
    /// A free run: begun, and what was run, with the count that was asked for.
    Free(Option<(u32, FreeRun)>),
}

impl WorkerSession {
    pub(crate) fn connect(group: Group, wire: Wire, stderr: Drain, deadlines: Deadlines) -> Result<Self, SessionError> {
        let hello = Hello::default();
        let mut session = Self { group, wire, stderr, deadlines, hello, next_id: 1, phase: None, discarded: false };
        let until = Instant::now() + deadlines.hello;
        let line = session.wire.read(until, &session.stderr);
        let (line, _) = line.map_err(|broken| session.broken(broken, "hello", deadlines.hello))?;
        let hello = Response::parse(&line).map_err(|error| SessionError::Json(clip(&error.to_string()).into()));
        let hello = hello.and_then(|response| {
            Hello::from_response(response).map_err(|error| SessionError::Protocol(clip(&error.to_string()).into()))
        });
        session.hello = hello.map_err(|error| session.discard(error))?;
        Ok(session)
    }

    /// What it said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What holds it.
    pub fn sandbox(&self) -> &SandboxReport {
        &self.group.report
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.group.id()
    }

    /// The last it wrote to stderr, redacted, in one line.
    pub fn stderr_tail(&self) -> String {
        self.stderr.post_mortem()
    }

    /// Ends the session: an open phase is dropped by the worker. Errors: a response nobody asked for; a worker that does not
    /// end, or not with success.
    pub fn finish(mut self) -> Result<(), SessionError> {
        if self.discarded {
            return Err(SessionError::SessionDiscarded);
        }
        match self.wire.expect_silence() {
            Ok(()) => {}
            Err(broken) => return Err(self.broken(broken, "end", self.deadlines.close)),
        }
        self.wire.close_requests();
        if !self.group.wait(self.deadlines.close) {
            return Err(self.broken(Broken::Late, "end", self.deadlines.close));
        }
        match self.wire.expect_silence() {
            Ok(()) | Err(Broken::End) => {}
            Err(broken) => return Err(self.broken(broken, "end", self.deadlines.close)),
        }
        match self.group.end() {
            Some(status) if status.success() => Ok(()),
            _ => Err(self.broken(Broken::End, "end", self.deadlines.close)),
        }
    }

    /// One round trip. Any error ends the session.
    fn ask(&mut self, mut request: Request) -> Result<Reply<Response>, SessionError> {
        if self.discarded {
            return Err(SessionError::SessionDiscarded);
        }
        request.id = self.next_id;
        self.next_id += 1;
        let limit = match request.verb() {
            Some(Verb::FreeDecodeRun) => self.deadlines.run,
            _ => self.deadlines.request,
        };
        let kind = request.kind.clone();
        let line = request.to_line().map_err(|error| self.discard(SessionError::Protocol(error.to_string())))?;
        if let Err(broken) = self.wire.expect_silence() {
            return Err(self.broken(broken, &kind, limit));
        }
        let sent = Instant::now();
        let until = sent + limit;
        let written = self.wire.write(&line, until, &self.stderr);
        let read = written.and_then(|()| self.wire.read(until, &self.stderr));
        let (line, received) = read.map_err(|broken| self.broken(broken, &kind, limit))?;
        match check_response(&line, &request, &self.hello.nonce) {
            Ok(_) if self.stderr.is_flooded() => Err(self.discard(SessionError::StderrFlood)),
            Ok(value) => Ok(Reply { value, sent, received }),
            Err(error) => Err(self.discard(error)),
        }
    }

    fn discard(&mut self, error: SessionError) -> SessionError {
        self.discarded = true;
        self.group.end();
        self.stderr.stop();
        error
    }

    fn broken(&mut self, broken: Broken, kind: &str, limit: Duration) -> SessionError {
        let kind = kind.to_owned();
        if matches!(broken, Broken::End) {
            self.group.wait(DYING);
        }
        let ended = self.group.has_ended();
        self.discarded = true;
        let status = self.group.end();
        self.stderr.stop();
        if self.stderr.is_flooded() {
            return SessionError::StderrFlood;
        }
        match broken {
            Broken::End => {
                let status = match status {
                    Some(status) if ended => status.to_string(),
                    _ => "its stdout, and had to be killed".into(),
                };
                SessionError::WorkerDied { kind, status, stderr: self.stderr.post_mortem() }
            }
            Broken::Late => SessionError::RunTimeout { phase: kind, budget_seconds: limit.as_secs_f64() },
            Broken::TooLong => SessionError::LineTooLong { kind },
            Broken::Noise => SessionError::StdoutFlood { kind },
            Broken::Flood => SessionError::StderrFlood,
            Broken::Unasked => SessionError::ResponseBeforeRequest { kind },
            Broken::Interrupted => SessionError::Interrupted,
            Broken::Io(source) => SessionError::Io { kind, source },
        }
    }
}

/// The checks of every response, in the order of engine-protocol-v1.md 3. What a worker says of time is not among the keys
/// of the envelope, so a response that does say something does not decode.
pub fn check_response(line: &[u8], request: &Request, nonce: &str) -> Result<Response, SessionError> {
    let kind = || request.kind.clone();
    let response = Response::parse(line).map_err(|error| SessionError::Json(clip(&error.to_string()).into()))?;
    let message = || clip(response.error.as_deref().unwrap_or("unknown error")).to_owned();
    if response.id == UNREADABLE_ID && !response.ok {
        return Err(SessionError::Engine { kind: kind(), message: message() });
    }
    if response.nonce.as_deref() != Some(nonce) {
        return Err(SessionError::NonceMismatch { kind: kind() });
    }
    if response.id != request.id {
        let (found, wanted) = (response.id, request.id);
        return Err(SessionError::Protocol(format!("{}: the response has id {found}, not {wanted}", kind())));
    }
    if !response.ok {
        return Err(SessionError::Engine { kind: kind(), message: message() });
    }
    Ok(response)
}
