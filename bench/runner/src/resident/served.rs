//! A leg's resident, booted and stopped by the serve script of the leg's own tree (engine-protocol-v1.md 9, benchd.md 6).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bench_protocol::ResidentIdentity;

use super::{HELLO, ResidentError, ResidentFound, ensure_parent, remove, resident_hello, stop_resident, tail};
use crate::environment::WorkerEnvironment;
use crate::interrupt::Interrupt;
use crate::process::Group;
use crate::sandbox::Sandbox;

/// How long a script that is told to end has to take its resident down.
const TEARS_DOWN: Duration = Duration::from_secs(15);

const POLL: Duration = Duration::from_millis(20);

/// A leg's resident to be booted.
#[derive(Debug, Clone)]
pub struct ServePlan {
    /// The leg's tree: the script runs there.
    pub workspace: PathBuf,
    /// Below it: `tools/serve-up.sh`.
    pub script: PathBuf,
    /// `serial-control` or `candidate`.
    pub label: &'static str,
    /// Drafts a round; 0 is serial.
    pub depth: u32,
    /// All that the script finds in its environment.
    pub environment: WorkerEnvironment,
    /// For the file that tells the socket, and the script's log.
    pub temp_dir: PathBuf,
    /// How long a load may take.
    pub boot_timeout: Duration,
    /// Ends the wait.
    pub interrupt: Interrupt,
}

/// Why a leg has no resident.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The tree cannot serve.
    #[error("LEG-SERVE-SCRIPT-MISSING: {label}: {script} is no file; the leg's tree needs it")]
    ScriptMissing {
        /// The leg.
        label: &'static str,
        /// Looked for.
        script: PathBuf,
    },
    /// The script did not do it.
    #[error("LEG-SERVE-BOOT-FAILED: {label}: {detail}; the script's output ends: {log}")]
    BootFailed {
        /// The leg.
        label: &'static str,
        /// What is missing.
        detail: String,
        /// Its last words.
        log: String,
    },
    /// What it booted does not answer.
    #[error("{label}: {error}")]
    Resident {
        /// The leg.
        label: &'static str,
        /// By this.
        error: ResidentError,
    },
    /// The operating system failed.
    #[error("{label}: {path}: the script cannot be run")]
    Io {
        /// The leg.
        label: &'static str,
        /// On this.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody wants the run to end.
    #[error("interrupted")]
    Interrupted,
}

impl ServeError {
    /// The name it is refused by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ScriptMissing { .. } => "LEG-SERVE-SCRIPT-MISSING",
            Self::BootFailed { .. } => "LEG-SERVE-BOOT-FAILED",
            Self::Resident { error, .. } => error.name(),
            Self::Io { .. } => "Io",
            Self::Interrupted => "Interrupted",
        }
    }
}

/// A leg's resident. Dropped, it is stopped by its script, and by force if it is still there then.
#[derive(Debug)]
pub struct Served {
    plan: ServePlan,
    socket: PathBuf,
    /// `None`: what listens never said who it is.
    found: Option<ResidentFound>,
    stopped: bool,
}

impl Served {
    /// Boots it, and asks it who it is.
    pub fn boot(plan: ServePlan) -> Result<(Self, ResidentFound), ServeError> {
        let label = plan.label;
        let script = plan.workspace.join(&plan.script);
        if !script.is_file() {
            return Err(ServeError::ScriptMissing { label, script });
        }
        let told = plan.temp_dir.join(format!("benchd-leg-socket.{}.{label}.txt", std::process::id()));
        // What an earlier leg was told is not what this one is.
        remove(&told);
        ensure_parent(&told).map_err(|source| ServeError::Io { label, path: told.clone(), source })?;
        let spec = if plan.depth == 0 { "serial" } else { "mtp" };
        let depth = plan.depth.to_string();
        let args = ["--boot", "--spec", spec, "--draft-len", &depth, "--socket-out"];
        let booted = plan.run(|command| command.args(args).arg(&told), plan.boot_timeout);
        let text = fs::read_to_string(&told).unwrap_or_default();
        remove(&told);
        let socket = text.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from);
        let failed = |detail: String| ServeError::BootFailed { label, detail, log: tail(&plan.log()) };
        match (booted, socket) {
            (Err(error), None) => Err(error),
            (Err(error), Some(socket)) => {
                // Told before it failed: what is there is stopped.
                drop(Self { plan, socket, found: None, stopped: false });
                Err(error)
            }
            (Ok(()), None) => Err(failed("it told no socket".into())),
            (Ok(()), Some(socket)) => {
                let mut served = Self { plan, socket, found: None, stopped: false };
                let found = resident_hello(&served.socket, HELLO);
                let found = found.map_err(|error| ServeError::Resident { label, error })?;
                served.found = Some(found.clone());
                Ok((served, found))
            }
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// As workers name it.
    pub fn identity(&self) -> Option<ResidentIdentity> {
        self.found.as_ref().map(ResidentFound::identity)
    }

    /// Stops it, and says if the script could not.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), ServeError> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        // Told to stop before it has an identity, there is still its sidecar to ask.
        let sidecar = fs::read_to_string(sidecar_path(&self.socket)).unwrap_or_default();
        let mut lines = sidecar.lines();
        let told = lines.next().and_then(|line| line.trim().parse().ok());
        let ready_file = lines.next().map(PathBuf::from);
        let socket = self.socket.clone();
        // Also a run that was interrupted is taken down.
        self.plan.interrupt = Interrupt::new().unwrap_or_else(|_| self.plan.interrupt.clone());
        let stopped = self.plan.run(|command| command.arg("--stop").arg("--socket").arg(&socket), TEARS_DOWN);
        let label = self.plan.label;
        let pid = self.found.as_ref().map(|found| found.pid).or(told);
        let by_force = pid.map_or(Ok(()), |pid| stop_resident(pid, &socket, ready_file.as_deref()).map(drop));
        remove(&self.socket);
        remove(&sidecar_path(&self.socket));
        remove(&self.plan.log());
        stopped.and(by_force.map_err(|error| ServeError::Resident { label, error }))
    }
}

fn sidecar_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".pid");
    path.into()
}

impl Drop for Served {
    fn drop(&mut self) {
        // What cannot be reported here has been tried.
        let _ = self.take_down();
    }
}

impl ServePlan {
    fn log(&self) -> PathBuf {
        self.temp_dir.join(format!("benchd-leg-serve.{}.{}.log", std::process::id(), self.label))
    }

    /// Runs the script to its end. One that takes too long, or that nobody wants any more, is told to end first, so that it
    /// takes down what it began.
    fn run(&self, arguments: impl FnOnce(&mut Command) -> &mut Command, patience: Duration) -> Result<(), ServeError> {
        let (label, log_path) = (self.label, self.log());
        let failed = |source| ServeError::Io { label, path: self.script.clone(), source };
        let log = fs::File::create(&log_path).map_err(failed)?;
        let mut command = Command::new(self.workspace.join(&self.script));
        arguments(&mut command);
        command.current_dir(&self.workspace).env_clear().envs(self.environment.iter()).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        let prepared = Sandbox::none().prepare().map_err(failed)?;
        let mut group = Group::spawn(&mut command, prepared, true).map_err(failed)?;
        let until = Instant::now() + patience;
        let mut broken = None;
        while broken.is_none() && !group.has_ended() {
            if self.interrupt.sleep(POLL).is_err() {
                broken = Some(ServeError::Interrupted);
            } else if Instant::now() >= until {
                let detail = format!("it took longer than {} s", patience.as_secs_f64());
                broken = Some(ServeError::BootFailed { label, detail, log: tail(&log_path) });
            }
        }
        if let Some(error) = broken {
            group.terminate();
            group.wait(TEARS_DOWN);
            group.end();
            return Err(error);
        }
        match group.end() {
            Some(status) if status.success() => Ok(()),
            status => {
                let detail = status.map_or("it was lost".into(), |status| format!("it ended with {status}"));
                Err(ServeError::BootFailed { label, detail, log: tail(&log_path) })
            }
        }
    }
}
