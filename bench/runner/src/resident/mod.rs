//! The process that holds the weights: started, asked who it is, stopped, nothing left (engine-protocol-v1.md 9 and 10,
//! track-contract.md 6.1).

mod client;
mod error;
mod served;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bench_protocol::ResidentIdentity;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::environment::WorkerEnvironment;
use crate::interrupt::Interrupt;
use crate::process::Group;
use crate::sandbox::Sandbox;

pub use self::client::{ResidentFound, ResidentHello, resident_hello};
pub use self::error::ResidentError;
pub use self::served::{ServeError, ServePlan, Served};

/// Between two looks at a resident that is to come up.
const POLL: Duration = Duration::from_millis(20);

/// How long a resident has to end when it is asked to: 50 waits of 0.2 s.
const ENDS: Duration = Duration::from_secs(10);

/// How long a loaded resident may take to say hello.
const HELLO: Duration = Duration::from_secs(30);

/// A resident to be started.
#[derive(Debug, Clone)]
pub struct ResidentPlan {
    /// The engine.
    pub program: PathBuf,
    /// Behind `resident`: everything but the socket and the ready file.
    pub args: Vec<OsString>,
    /// Where it runs.
    pub folder: Option<PathBuf>,
    /// All that it finds in its environment.
    pub environment: WorkerEnvironment,
    /// `--socket`.
    pub socket: PathBuf,
    /// `--ready-file`.
    pub ready_file: PathBuf,
    /// Takes its stdout and stderr.
    pub log: PathBuf,
    /// How long it may take to load.
    pub health_timeout: Duration,
    /// Whether it is to outlive whoever starts it; else it dies with the thread that does.
    pub detached: bool,
    /// Ends the wait.
    pub interrupt: Interrupt,
}

/// A resident that has said hello. Dropped, it is asked to end, then killed with all of its process group, and its socket
/// and ready file are taken away.
#[derive(Debug)]
pub struct Resident {
    group: Option<Group>,
    found: Option<ResidentFound>,
    socket: PathBuf,
    ready_file: PathBuf,
}

/// A resident that was left running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// Its process, which leads its group.
    pub pid: u32,
    /// Where it listens.
    pub socket: PathBuf,
    /// What says so.
    pub ready_file: PathBuf,
}

impl Resident {
    /// Starts one and waits until it is healthy: alive, its ready file there, and a hello from that very process.
    pub fn start(plan: &ResidentPlan) -> Result<(Self, ResidentFound), ResidentError> {
        let failed = |source| ResidentError::Spawn { program: plan.program.clone(), source };
        // A ready file of an earlier one would be believed.
        remove(&plan.ready_file);
        let log = File::create(&plan.log).map_err(|source| ResidentError::Log { path: plan.log.clone(), source })?;
        let mut command = Command::new(&plan.program);
        command.arg("resident").args(&plan.args);
        command.arg("--socket").arg(&plan.socket).arg("--ready-file").arg(&plan.ready_file);
        command.env_clear().envs(plan.environment.iter()).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        if let Some(folder) = &plan.folder {
            command.current_dir(folder);
        }
        let prepared = Sandbox::none().prepare().map_err(failed)?;
        let group = Group::spawn(&mut command, prepared, !plan.detached).map_err(failed)?;
        let (socket, ready_file) = (plan.socket.clone(), plan.ready_file.clone());
        let pid = group.id();
        let mut resident = Self { group: Some(group), found: None, socket, ready_file };
        resident.wait_until_ready(plan)?;
        let found = resident_hello(&plan.socket, HELLO)?;
        if found.pid != pid {
            return Err(ResidentError::Impostor { socket: plan.socket.clone(), epoch: pid.into(), pid: found.pid });
        }
        resident.found = Some(found.clone());
        Ok((resident, found))
    }

    fn wait_until_ready(&self, plan: &ResidentPlan) -> Result<(), ResidentError> {
        let until = Instant::now() + plan.health_timeout;
        loop {
            if self.group.as_ref().is_none_or(Group::has_ended) {
                return Err(ResidentError::Died { log: tail(&plan.log) });
            }
            if plan.ready_file.exists() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(ResidentError::NotReady {
                    seconds: plan.health_timeout.as_secs_f64(),
                    log: tail(&plan.log),
                });
            }
            plan.interrupt.sleep(POLL).map_err(|_| ResidentError::Interrupted)?;
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.group.as_ref().map(Group::id)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// As workers name it.
    pub fn identity(&self) -> Option<ResidentIdentity> {
        self.found.as_ref().map(ResidentFound::identity)
    }

    /// Leaves it running: whoever has its pid and socket stops it with [`stop_resident`].
    pub fn detach(mut self) -> Option<Detached> {
        let pid = self.group.take()?.leave();
        Some(Detached { pid, socket: self.socket.clone(), ready_file: self.ready_file.clone() })
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        if let Some(mut group) = self.group.take() {
            group.terminate();
            group.wait(ENDS);
            group.end();
            remove(&self.socket);
            remove(&self.ready_file);
        }
    }
}

/// What [`stop_resident`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It ran, and has ended.
    WasRunning,
    /// The process is gone, or is another one.
    NothingToStop,
}

/// Stops a resident that was left running, and takes its socket and ready file away. Only a process whose command line
/// names the socket is signalled: a number may have been given to another since. Any number of times.
pub fn stop_resident(pid: u32, socket: &Path, ready_file: Option<&Path>) -> Result<Stopped, ResidentError> {
    let mut state = Stopped::NothingToStop;
    if is_resident(pid, socket)
        && let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw)
    {
        state = Stopped::WasRunning;
        for signal in [Signal::TERM, Signal::KILL] {
            // Gone already is as good. One that leads no group is signalled alone.
            let _ = kill_process_group(process, signal);
            let _ = kill_process(process, signal);
            let until = Instant::now() + ENDS;
            while is_resident(pid, socket) && Instant::now() < until {
                thread::sleep(POLL);
            }
        }
        if is_resident(pid, socket) {
            return Err(ResidentError::WillNotEnd { pid });
        }
    }
    remove(socket);
    if let Some(ready_file) = ready_file {
        remove(ready_file);
    }
    Ok(state)
}

/// Whether a process is there, and not just its entry, with the socket among its arguments.
fn is_resident(pid: u32, socket: &Path) -> bool {
    let Ok(command_line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let socket = socket.as_os_str().as_encoded_bytes();
    command_line.split(|&byte| byte == 0).any(|argument| argument == socket)
}

/// Gone already is as good.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// The end of a log, in one line.
fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.get(bytes.len().saturating_sub(2048)..).unwrap_or_default()).into_owned();
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "nothing".into() } else { lines.join(" | ") }
}

/// Of a folder that must be there.
fn ensure_parent(path: &Path) -> io::Result<()> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(Ok(()), fs::create_dir_all)
}
