//! The process that holds the weights for one run (engine-protocol-v1.md 9 and 10).

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench_runner::{Interrupt, WorkerEnvironment};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::failure::Failure;

/// How long a model may take to load (track-contract.md 6.2).
const LOADING: Duration = Duration::from_secs(5400);
/// What it is given to end by itself.
const ENDING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// Of its log, in a refusal.
const LOG_LINES: usize = 5;

/// A running resident. Dropped, it is ended and reaped, and its socket and files are gone.
pub(crate) struct Resident {
    child: Child,
    /// Socket, ready file and log; removed with it.
    folder: TempDir,
}

/// How one is started.
pub(crate) struct Plan<'a> {
    pub(crate) engine: &'a Path,
    pub(crate) weights: &'a Path,
    /// Drafts of a round and one more.
    pub(crate) draft_tokens: u32,
    pub(crate) ctx_tokens: Option<u32>,
    pub(crate) stop_ids: &'a [u32],
    pub(crate) environment: &'a WorkerEnvironment,
    pub(crate) interrupt: &'a Interrupt,
}

impl Resident {
    /// Starts one and waits until it can be connected to.
    pub(crate) fn boot(plan: &Plan<'_>) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("benchd-resident.").tempdir();
        let folder = folder.map_err(|source| Failure::Write { path: std::env::temp_dir(), source })?;
        let log = folder.path().join("log");
        let open = |path: &Path| File::create(path).map_err(|source| Failure::Write { path: path.into(), source });
        let mut command = Command::new(plan.engine);
        command.arg("resident").arg("--socket").arg(folder.path().join("socket"));
        command.arg("--ready-file").arg(folder.path().join("ready")).arg("--model").arg(plan.weights);
        command.arg("--draft-tokens").arg(plan.draft_tokens.to_string());
        if let Some(tokens) = plan.ctx_tokens {
            command.arg("--ctx-tokens").arg(tokens.to_string());
        }
        if !plan.stop_ids.is_empty() {
            let ids: Vec<String> = plan.stop_ids.iter().map(u32::to_string).collect();
            command.arg("--stop-ids").arg(ids.join(","));
        }
        command.env_clear().envs(plan.environment.iter());
        // A group of its own: Ctrl-C is for benchd, which ends the resident when nothing is attached to it any more.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(open(&log)?).process_group(0);
        let child = command.spawn().map_err(|source| Failure::Read { path: plan.engine.into(), source })?;
        let mut resident = Self { child, folder };
        resident.wait_until_ready(plan.interrupt)?;
        Ok(resident)
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        let until = Instant::now() + LOADING;
        loop {
            if self.folder.path().join("ready").exists() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.refused(format!("it ended before it was ready, {status}")));
            }
            if Instant::now() > until {
                return Err(self.refused(format!("it was not ready after {} s", LOADING.as_secs())));
            }
            interrupt.sleep(POLL).map_err(|_| Failure::Interrupted)?;
        }
    }

    fn refused(&self, what: String) -> Failure {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let log = lines[lines.len().saturating_sub(LOG_LINES)..].join(" | ");
        Failure::Resident { name: "LEG-SERVE-BOOT-FAILED", what, log }
    }

    /// Where workers attach.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + ENDING;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        // Does nothing to one that has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
