//! Asking a resident who it is (engine-protocol-v1.md 10). Nothing else is asked of it here: workers speak to it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bench_protocol::ResidentIdentity;
use serde::Deserialize;

use super::ResidentError;

/// More than any hello has.
const MAX_HELLO_BYTES: u64 = 64 << 10;

/// What a resident says it loaded. What it adds to this is not read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ResidentHello {
    /// Tokens of the vocabulary.
    pub vocab_size: i64,
    /// -1: none.
    pub eos_token: i64,
    /// Whether it can draft.
    pub mtp_armed: bool,
    /// Tokens of a cycle.
    pub draft_tokens: u32,
    /// Most tokens of the timeline.
    pub ctx_size: u64,
    /// Its process id.
    pub load_epoch: u64,
    /// Which engine.
    pub ident: String,
    /// What was loaded.
    pub model_path: String,
    /// The draft head; empty without one.
    #[serde(default)]
    pub mtp_head_path: String,
}

/// A hello, and who the kernel says is behind the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentFound {
    /// Its own words.
    pub hello: ResidentHello,
    /// The process that listens.
    pub pid: u32,
}

impl ResidentFound {
    /// As workers name it.
    pub fn identity(&self) -> ResidentIdentity {
        ResidentIdentity { pid: self.pid, load_epoch: self.hello.load_epoch }
    }
}

#[derive(Deserialize)]
struct Ok {
    ok: bool,
    error: Option<String>,
}

/// Connects, says hello, and leaves. Its `load_epoch` must be the process that the kernel says is listening: a resident of
/// another leg, or a program that relays to one, is none of this run's.
pub fn resident_hello(socket: &Path, patience: Duration) -> Result<ResidentFound, ResidentError> {
    let failed = |source| ResidentError::NoHello { socket: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).map_err(failed)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|errno| failed(errno.into()))?;
    let line = ask(&stream, patience).map_err(failed)?;
    let defect = |text: String| ResidentError::BadHello { socket: socket.to_owned(), text };
    let answer: Ok = serde_json::from_slice(&line).map_err(|error| defect(error.to_string()))?;
    if !answer.ok {
        return Err(defect(answer.error.unwrap_or("unknown error".into())));
    }
    let hello: ResidentHello = serde_json::from_slice(&line).map_err(|error| defect(error.to_string()))?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    if hello.load_epoch != u64::from(pid) {
        return Err(ResidentError::Impostor { socket: socket.to_owned(), epoch: hello.load_epoch, pid });
    }
    Ok(ResidentFound { hello, pid })
}

/// One line, however slowly its bytes come, in the given time.
fn ask(mut stream: &UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(b"{\"op\":\"hello\"}\n")?;
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || line.len() as u64 > MAX_HELLO_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut chunk)?;
        line.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            line.truncate(end);
            // It would find out by itself; that it is told is a courtesy.
            let _ = stream.write_all(b"{\"op\":\"bye\"}\n");
            return Ok(line);
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
