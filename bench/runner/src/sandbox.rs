//! What an untrusted child cannot do: see files it was not given, write any, reach the network, start processes, set clocks.
//!
//! Landlock holds the files, seccomp the system calls; neither needs privileges. A kernel without one of them is no error,
//! but recorded: [`SandboxReport`] is sealed. Both are prepared by the parent, so that the child, which may not allocate
//! between fork and exec, only makes the calls that switch them on.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Read and executed by any program: the loader, libraries, the system's and the driver's description of itself.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc",
    "/proc",
    "/sys",
    "/nix/store",
    "/run/opengl-driver",
    "/run/nvidia-persistenced",
];

/// Read and written by any program; the accelerator's nodes are found when a child is started.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The newest rights asked for; an older kernel enforces those it knows.
const NEWEST: ABI = ABI::V6;

/// What a child may touch beside the system's own files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    enabled: bool,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
}

impl Sandbox {
    /// Nothing is kept from the child.
    pub fn none() -> Self {
        Self::default()
    }

    /// The system's files and device nodes; [`read`](Self::read) adds what else a worker needs. Its program, weights and
    /// resources are added by whoever starts it.
    pub fn worker() -> Self {
        Self { enabled: true, ..Self::default() }
    }

    /// Lets the child read and execute what is at or below a path.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// Lets the child do anything at or below a path.
    #[must_use]
    pub fn write(mut self, path: impl Into<PathBuf>) -> Self {
        self.write.push(path.into());
        self
    }

    /// Errors: a rule that the kernel claims to know and refuses.
    pub(crate) fn prepare(&self) -> io::Result<Prepared> {
        if !self.enabled {
            return Ok(Prepared { ruleset: None, filters: Vec::new(), report: SandboxReport::default() });
        }
        let ruleset = match landlock_abi() {
            None => None,
            Some(_) => self.ruleset()?,
        };
        let filters = if seccomp_is_there() { filters()? } else { Vec::new() };
        let landlock_abi = landlock_abi().filter(|_| ruleset.is_some());
        Ok(Prepared { report: SandboxReport { landlock_abi, seccomp: !filters.is_empty() }, ruleset, filters })
    }

    fn ruleset(&self) -> io::Result<Option<OwnedFd>> {
        let read = AccessFs::from_read(NEWEST);
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let devices = DEVICES.iter().map(PathBuf::from).chain(accelerator_nodes());
        // Files that are named through links elsewhere, as snapshot folders hold them, are named once more by themselves.
        let linked = self.read.iter().flat_map(|path| links_in(path));
        let built = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
            .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
            .and_then(Ruleset::create)
            .and_then(|rules| rules.add_rules(path_beneath_rules(SYSTEM, read)))
            .and_then(|rules| rules.add_rules(path_beneath_rules(&self.read, read)))
            .and_then(|rules| rules.add_rules(path_beneath_rules(linked, read)))
            .and_then(|rules| rules.add_rules(path_beneath_rules(devices, device)))
            .and_then(|rules| rules.add_rules(path_beneath_rules(&self.write, AccessFs::from_all(NEWEST))));
        built.map(Into::into).map_err(io::Error::other)
    }
}

/// `/dev/nvidia*` and `/dev/nvidia-caps`.
fn accelerator_nodes() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"nvidia"))
        .map(|entry| entry.path())
        .collect()
}

fn links_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())).map(|entry| entry.path()).collect()
}

/// What was switched on for a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SandboxReport {
    /// The kernel's version of Landlock, where it is used.
    pub landlock_abi: Option<i64>,
    /// Whether system calls are filtered.
    pub seccomp: bool,
}

impl SandboxReport {
    /// Whether files and system calls are held.
    pub fn is_full(&self) -> bool {
        self.landlock_abi.is_some() && self.seccomp
    }
}

impl fmt::Display for SandboxReport {
    /// As it is sealed (benchd.md 15).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.landlock_abi, self.seccomp) {
            (Some(abi), true) => write!(f, "landlock abi {abi} + seccomp"),
            (Some(abi), false) => write!(f, "landlock abi {abi}"),
            (None, true) => f.write_str("seccomp"),
            (None, false) => f.write_str("none (linux)"),
        }
    }
}

/// Ready to be switched on between fork and exec.
#[derive(Debug)]
pub(crate) struct Prepared {
    ruleset: Option<OwnedFd>,
    filters: Vec<BpfProgram>,
    pub(crate) report: SandboxReport,
}

impl Prepared {
    /// Restricts the calling process for good. Allocates nothing.
    pub(crate) fn enforce(&self) -> io::Result<()> {
        if let Some(ruleset) = &self.ruleset {
            rustix::thread::set_no_new_privs(true)?;
            // SAFETY: the descriptor is a ruleset that lives as long as `self`; the call takes two integers.
            let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        for filter in &self.filters {
            seccompiler::apply_filter(filter).map_err(|_| io::Error::from_raw_os_error(libc::EACCES))?;
        }
        Ok(())
    }
}

fn landlock_abi() -> Option<i64> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel reads no attributes and returns a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    (abi > 0).then_some(abi)
}

fn seccomp_is_there() -> bool {
    const GET_ACTION_AVAILABLE: libc::c_uint = 2;
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one integer at the address of a local.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAILABLE, 0, &raw const action) == 0 }
}

/// System calls that no worker needs: a worker is one process that reads, computes and answers.
const DENIED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_kill,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    // A group of its own, in which it would outlive its benchmarker.
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // Clocks.
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    // The rest of the system, and ways around this list.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

fn filters() -> io::Result<Vec<BpfProgram>> {
    let condition = |operator, value| {
        let one = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![one])
    };
    let build = || -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
        let arch = std::env::consts::ARCH.try_into()?;
        let mut denied: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().map(|&call| (call, Vec::new())).collect();
        denied.insert(libc::SYS_socket, vec![condition(SeccompCmpOp::Ne, libc::AF_UNIX as u64)?]);
        // Threads, but no processes.
        let thread = libc::CLONE_THREAD as u64;
        denied.insert(libc::SYS_clone, vec![condition(SeccompCmpOp::MaskedEq(thread), 0)?]);
        // Its flags are behind a pointer. Without it, C libraries take `clone`.
        let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let filter = |rules, errno: i32| {
            SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)?.try_into()
        };
        Ok(vec![filter(denied, libc::EPERM)?, filter(unknown, libc::ENOSYS)?])
    };
    build().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_holds_the_child() {
        let report = |landlock_abi, seccomp| SandboxReport { landlock_abi, seccomp }.to_string();
        assert_eq!(report(Some(7), true), "landlock abi 7 + seccomp");
        assert_eq!(report(Some(1), false), "landlock abi 1");
        assert_eq!(report(None, true), "seccomp");
        assert_eq!(Sandbox::none().prepare().unwrap().report.to_string(), "none (linux)");
    }
}
