//! A resident process of its own, in a folder of its own, gone at the end of the test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Ends a test that would otherwise hang. Nothing is expected to take as long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_cuda-engine"))
}

/// Waits until `found` has something.
pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        match found() {
            Some(found) => return found,
            None if begun.elapsed() > DEADLINE => panic!("waited in vain for {what}"),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

pub(crate) struct Booted {
    child: Child,
    folder: tempfile::TempDir,
}

impl Booted {
    /// `cuda-engine resident` with these arguments besides the socket and the ready file, once it is ready.
    pub(crate) fn with(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stderr = File::create(folder.path().join("stderr")).unwrap();
        let child = binary()
            .arg("resident")
            .arg("--socket")
            .arg(folder.path().join("socket"))
            .arg("--ready-file")
            .arg(folder.path().join("ready"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut booted = Self { child, folder };
        eventually("the ready file", || {
            let ended = booted.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended with {ended:?}: {}", booted.stderr());
            booted.ready_file().exists().then_some(())
        });
        booted
    }

    pub(crate) fn stub(draft_tokens: &str) -> Self {
        Self::with(&["--stub", "--draft-tokens", draft_tokens])
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn ready_file(&self) -> PathBuf {
        self.folder.path().join("ready")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// Lines on stderr that start so.
    pub(crate) fn said(&self, start: &str) -> usize {
        self.stderr().lines().filter(|line| line.starts_with(start)).count()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the end of the resident", || self.child.try_wait().unwrap())
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that says what it likes.
pub(crate) struct Raw {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
}

impl Raw {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let replies = BufReader::new(stream.try_clone().unwrap());
        Self { stream, replies }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply; `None` at the end of the connection.
    pub(crate) fn reply(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn ask(&mut self, request: &str) -> Value {
        self.send(request.as_bytes());
        self.send(b"\n");
        self.reply().unwrap()
    }

    /// Whether a request is answered as refused with a text that holds `why`.
    pub(crate) fn is_refused(&mut self, request: &str, why: &str) -> bool {
        let reply = self.ask(request);
        reply["ok"] == false && reply["error"].as_str().is_some_and(|error| error.contains(why))
    }
}
