//! A child, its process group, and the end of both.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getppid, kill_process_group, set_parent_process_death_signal,
    setrlimit, test_kill_process_group, waitid,
};

use crate::sandbox::{Prepared, SandboxReport};

/// Between two looks at a child that is to end (engine-protocol-v1.md 2.1).
const POLL: Duration = Duration::from_millis(20);

/// How long the members of a killed group may take to vanish.
const GROUP_ENDS: Duration = Duration::from_secs(2);

/// A child that leads a process group. Dropped, it and its group are killed, and it is reaped.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    pid: Pid,
    status: Option<ExitStatus>,
    left: bool,
    pub(crate) report: SandboxReport,
}

impl Group {
    /// Starts a command in a group and a sandbox of its own, with no descriptors but its three streams. `bound`: the kernel
    /// kills it when the thread that called this ends.
    pub(crate) fn spawn(command: &mut Command, sandbox: Prepared, bound: bool) -> io::Result<Self> {
        let report = sandbox.report;
        let parent = rustix::process::getpid();
        let before_exec = move || {
            if bound {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                if getppid() != Some(parent) {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
            // A core file would be left behind.
            setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
            // SAFETY: three integers. A kernel without the call leaves descriptors as they were opened, which is closed on
            // exec for all of ours.
            unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
            sandbox.enforce()
        };
        // SAFETY: the closure makes system calls and allocates nothing, so it may run between fork and exec.
        let child = unsafe { command.process_group(0).pre_exec(before_exec) }.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid, status: None, left: false, report })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether it has ended, without reaping it: until it is reaped its number, and its group's, are no one else's.
    pub(crate) fn has_ended(&self) -> bool {
        let looked = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.status.is_some() || !matches!(waitid(WaitId::Pid(self.pid), looked), Ok(None))
    }

    /// Waits for it to end by itself; whether it did.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while !self.has_ended() {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }

    /// Asks all of the group to end.
    pub(crate) fn terminate(&self) {
        if self.status.is_none() && !self.left {
            // Gone already is as good.
            let _ = kill_process_group(self.pid, Signal::TERM);
        }
    }

    /// Lets it go on. Its process id.
    pub(crate) fn leave(mut self) -> u32 {
        self.left = true;
        self.id()
    }

    /// Kills what is left of the group and reaps the child. How the child ended.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && !self.left {
            // Before it is reaped, while the group's number is surely its own. Gone already is as good.
            let _ = kill_process_group(self.pid, Signal::KILL);
            self.status = self.child.wait().ok();
            let until = Instant::now() + GROUP_ENDS;
            while test_kill_process_group(self.pid).is_ok() && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}
