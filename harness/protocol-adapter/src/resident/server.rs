//! One load, one socket, one connection at a time.

use std::fs::{self, Permissions};
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench_protocol::LineReader;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

use crate::target::Target;

use super::dialogue::{Then, answer};
use super::error::ResidentError;
use super::stop::{Patient, Stop, Woken};

/// Clients that may wait while one is served (engine-protocol-v1.md 10).
const BACKLOG: i32 = 8;

/// Where a resident is found, and how long it waits.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Path of the socket. What lies there is replaced.
    pub socket: PathBuf,
    /// A file to write once clients can connect; it holds the socket's path.
    pub ready_file: Option<PathBuf>,
    /// How long a client may be silent.
    pub idle: Duration,
}

/// A socket that clients can connect to. Dropped, it takes socket and ready file away.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    options: ServerOptions,
    /// Whether the ready file is ours to remove.
    ready: bool,
}

impl Server {
    /// Listens, and then says so in the ready file. To be called with the weights loaded: whoever can connect finds them.
    pub fn start(options: ServerOptions) -> Result<Self, ResidentError> {
        let refused = |source| ResidentError::Listen { path: options.socket.clone(), source };
        let listener = listen_at(&options.socket).map_err(refused)?;
        let mut server = Self { listener, options, ready: false };
        server.announce()?;
        Ok(server)
    }

    fn announce(&mut self) -> Result<(), ResidentError> {
        let Some(path) = &self.options.ready_file else { return Ok(()) };
        let mut text = self.options.socket.as_os_str().as_encoded_bytes().to_vec();
        text.push(b'\n');
        write_whole(path, &text).map_err(|source| ResidentError::ReadyFile { path: path.clone(), source })?;
        self.ready = true;
        Ok(())
    }

    /// Serves one client after the other until `stop` is raised. Each finds a target without tokens.
    pub fn serve(&self, target: &mut dyn Target, stop: &Stop) -> Result<(), ResidentError> {
        let failed = |source| ResidentError::Accept { path: self.options.socket.clone(), source };
        loop {
            match stop.wait(self.listener.as_fd(), PollFlags::IN, None).map_err(failed)? {
                Woken::Stopped => return Ok(()),
                Woken::Late => {}
                Woken::Ready => match self.listener.accept() {
                    Ok((client, _)) => {
                        target.invalidate();
                        if self.converse(target, stop, &client) == Then::Die {
                            return Err(ResidentError::EngineFailed);
                        }
                    }
                    // The client was gone again before it was its turn.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                        ) => {}
                    Err(error) => return Err(failed(error)),
                },
            }
        }
    }

    /// Answers one client until it says `bye`, is gone, is silent for too long or does not read what it is told.
    fn converse(&self, target: &mut dyn Target, stop: &Stop, client: &UnixStream) -> Then {
        let idle = self.options.idle;
        if client.set_nonblocking(true).is_err() {
            return Then::Close;
        }
        let mut lines = LineReader::new(BufReader::new(Patient { stream: client, stop, idle }));
        let mut out = Patient { stream: client, stop, idle };
        while let Ok(line) = lines.read() {
            let Some((reply, then)) = answer(target, std::process::id(), line) else { break };
            if out.write_all(&reply).is_err() || then != Then::Go {
                return then;
            }
        }
        Then::Close
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What is gone already need not be removed.
        let _ = fs::remove_file(&self.options.socket);
        if let Some(path) = self.options.ready_file.as_ref().filter(|_| self.ready) {
            let _ = fs::remove_file(path);
        }
    }
}

/// A socket that only its owner can connect to. The mode is set before the first `listen`, so that nobody slips in.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let listening = fs::set_permissions(path, Permissions::from_mode(0o600))
        .and_then(|()| listen(&socket, BACKLOG).map_err(io::Error::from))
        .map(|()| UnixListener::from(socket));
    if listening.is_err() {
        let _ = fs::remove_file(path);
    }
    listening
}

/// Written beside and renamed: who finds the file finds all of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?);
    name.push(".part");
    let part = path.with_file_name(name);
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}
