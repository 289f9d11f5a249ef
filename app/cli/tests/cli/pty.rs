//! The program on a terminal that the test is the other end of.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::fixture::Cli;

/// Far more than anything here takes: only a hang reaches it.
const HANG: Duration = Duration::from_secs(120);

pub(crate) struct Terminal {
    child: Child,
    /// The test's end.
    near: File,
    /// The program's end, kept to see how it was left.
    far: File,
    seen: Vec<u8>,
    /// What was waited for lies before this.
    mark: usize,
}

impl Terminal {
    /// Starts the program in `cli`'s folder, where it also keeps its history.
    pub(crate) fn start(cli: &Cli, line: &[&str]) -> Self {
        Self::open(cli, line, true)
    }

    /// The same on a terminal that is not the program's own: it does not hear of its end.
    pub(crate) fn borrow(cli: &Cli, line: &[&str]) -> Self {
        Self::open(cli, line, false)
    }

    fn open(cli: &Cli, line: &[&str], own: bool) -> Self {
        let near = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap());
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        fcntl_setfl(&near, OFlags::NONBLOCK | OFlags::RDWR).unwrap();
        let name = PathBuf::from(ptsname(&near, Vec::new()).unwrap().into_string().unwrap());
        let far = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, rustix::fs::Mode::empty());
        let far = File::from(far.unwrap());
        let end = || Stdio::from(far.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudafast"));
        command.current_dir(cli.folder.path()).args(line).stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm").env("XDG_STATE_HOME", cli.path("state"));
        // SAFETY: all are system calls that are safe between fork and exec; none allocates.
        unsafe {
            command.pre_exec(move || {
                // As a shell of that terminal starts it, also where the tests run under `nohup`.
                if libc::signal(libc::SIGHUP, libc::SIG_DFL) == libc::SIG_ERR {
                    return Err(std::io::Error::last_os_error());
                }
                rustix::process::setsid()?;
                if own {
                    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                }
                Ok(())
            });
        }
        Self { child: command.spawn().unwrap(), near, far, seen: Vec::new(), mark: 0 }
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.bytes(keys.as_bytes());
    }

    /// What no keyboard should send.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.near.write_all(bytes).unwrap();
    }

    /// Reads until `text` appears behind what was waited for before.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let begun = Instant::now();
        loop {
            self.read();
            let new = &self.seen[self.mark..];
            if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.mark += at + text.len();
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < HANG, "no {text:?}, {ended:?}: {}", self.text());
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Waits until the program waits: signals have their thread, and the main one sleeps again and again.
    #[track_caller]
    pub(crate) fn wait_for_reading(&mut self) {
        let (begun, process) = (Instant::now(), PathBuf::from(format!("/proc/{}", self.child.id())));
        let mut asleep = 0;
        while asleep < 5 {
            let tasks = std::fs::read_dir(process.join("task")).unwrap().count();
            let stat = std::fs::read_to_string(process.join("stat")).unwrap();
            asleep = if tasks > 1 && stat.contains(") S ") { asleep + 1 } else { 0 };
            assert!(begun.elapsed() < HANG, "never waits: {}", self.text());
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.near.read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => self.seen.extend(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return, // nothing yet, or never again
            }
        }
    }

    /// All there was, as a person would read it but for the colours.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).replace("\r\n", "\n")
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits for the end: the exit code, and that the terminal was left as it was found.
    #[track_caller]
    pub(crate) fn ended(mut self) -> i32 {
        let code = self.wait(true);
        let modes = tcgetattr(&self.far).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}: {}", self.text());
        code
    }

    /// Presses keys again and again until the program ends: a signal that comes right behind its like is one with it.
    #[track_caller]
    pub(crate) fn ended_by(self, keys: &str) -> i32 {
        self.ended_by_repeating(|terminal| drop(terminal.near.write_all(keys.as_bytes()))) // nobody may be there any more
    }

    /// The same with a signal from elsewhere.
    #[track_caller]
    pub(crate) fn ended_by_signals(self, signal: &str) -> i32 {
        self.ended_by_repeating(|terminal| terminal.signal(signal))
    }

    #[track_caller]
    fn ended_by_repeating(mut self, act: impl Fn(&mut Self)) -> i32 {
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() && begun.elapsed() < HANG {
            act(&mut self);
            self.read();
            std::thread::sleep(Duration::from_millis(50));
        }
        self.ended()
    }

    /// The terminal goes away: the exit code.
    #[track_caller]
    pub(crate) fn hung_up(mut self) -> i32 {
        self.near = File::open("/dev/null").unwrap(); // closes the test's end
        self.wait(false)
    }

    #[track_caller]
    fn wait(&mut self, read: bool) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(begun.elapsed() < HANG, "does not end: {}", self.text());
            if read {
                self.read();
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
