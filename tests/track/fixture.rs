//! benchd in a process, and what it leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const ENGINE: &str = env!("CARGO_BIN_EXE_cuda-engine-in-tests");
pub(crate) const CONTRACT: &str = "fixtures/tiny_story_track.json";
pub(crate) const GOLDEN: &str = "correctness_prompts/stories.golden.json";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A folder for results, and one for whatever benchd makes beside them.
pub(crate) struct Bench {
    pub(crate) results: TempDir,
    scratch: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { results: tempfile::tempdir().unwrap(), scratch: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn result(&self, name: &str) -> PathBuf {
        self.results.path().join(name)
    }

    /// Where the resident's socket is while it runs.
    pub(crate) fn scratch(&self) -> Vec<PathBuf> {
        fs::read_dir(self.scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_benchd-in-tests"));
        command.args(line).current_dir(root()).env("TMPDIR", self.scratch.path());
        for name in ["MLXFAST_QWEN_MTP_TRACK_ID", "MLXFAST_SCORE_PATH", "MLXFAST_TARGET_SNAPSHOT_DIR"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end, which leaves nothing behind.
    pub(crate) fn run(&self, line: &[&str]) -> Output {
        let output = self.command(line).output().unwrap();
        assert!(self.scratch().is_empty(), "left behind by {line:?}: {:?}", self.scratch());
        output
    }

    /// A local run over the resident, at a depth.
    pub(crate) fn iterate(&self, more: &[&str]) -> Command {
        let score = self.result("score.json");
        let line = ["iterate", "--engine", ENGINE, "--weights", "models/tiny", "--contract", CONTRACT, "--resident"];
        let mut command = self.command(&line);
        command.arg("--score-path").arg(score).args(more);
        command
    }
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

/// Processes whose parent is this one, by what they were started as.
pub(crate) fn children(of: u32) -> Vec<(u32, String)> {
    let stat = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let line = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
    pids.filter(|&pid| stat(pid) == Some(of)).map(|pid| (pid, line(pid))).collect()
}

/// The child that was started as `what`, once there is one.
pub(crate) fn child_running(child: &mut Child, what: &str) -> u32 {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some((pid, _)) = children(child.id()).into_iter().find(|(_, line)| line.contains(what)) {
            return pid;
        }
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "no {what} was started");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process is there and not merely unreaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
