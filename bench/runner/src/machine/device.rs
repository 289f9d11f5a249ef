//! Who else is on the accelerator, how busy and how hot it is.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{MachineError, Thermometer};
use crate::process::Group;
use crate::sandbox::Sandbox;

/// A process that has a context on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProcess {
    /// Its id.
    pub pid: u32,
    /// Its program, as the driver has it.
    pub name: String,
}

/// A device that can be asked.
pub trait Device: Thermometer {
    /// Who is on it. Errors: it cannot be told, which is not nobody.
    fn processes(&mut self) -> Result<Vec<DeviceProcess>, MachineError>;
    /// How busy it is, 0 to 100.
    fn use_percent(&mut self) -> Result<f64, MachineError>;
}

/// Programs that draw the screen, and compute nothing.
const TOLERATED: [&str; 2] = ["Xorg", "gnome-shell"];

/// Refuses a device that others are on, too. `ours` are the processes of this run.
pub fn expect_alone(device: &mut dyn Device, ours: &[u32]) -> Result<(), MachineError> {
    let others: Vec<String> = device
        .processes()?
        .into_iter()
        .filter(|process| !ours.contains(&process.pid))
        .filter(|process| !TOLERATED.contains(&process.name.rsplit('/').next().unwrap_or_default()))
        .map(|process| format!("{} ({})", process.pid, process.name))
        .collect();
    if others.is_empty() { Ok(()) } else { Err(MachineError::NotAlone { others: others.join(", ") }) }
}

/// How long a program that only reads a value may take.
const READS: Duration = Duration::from_secs(10);

/// What a program prints to stdout; `None`: it failed, or did not end.
fn output(mut command: Command) -> Option<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = Group::spawn(&mut command, Sandbox::none().prepare().ok()?, true).ok()?;
    let ended = group.wait(READS);
    let stdout = group.child_mut().stdout.take();
    let success = group.end().is_some_and(|status| status.success());
    let mut text = String::new();
    // What a pipe holds: values are short, and longer output has kept the program from ending.
    stdout?.take(64 << 10).read_to_string(&mut text).ok()?;
    (ended && success).then_some(text)
}

/// `nvidia-smi`, of the driver.
#[derive(Debug, Clone)]
pub struct NvidiaSmi {
    program: PathBuf,
}

impl NvidiaSmi {
    /// The program by name or path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    fn query(&self, what: &str) -> Result<String, MachineError> {
        let mut command = Command::new(&self.program);
        command.args([what, "--format=csv,noheader,nounits"]);
        output(command).ok_or_else(|| MachineError::Unreadable { program: self.program.clone(), what: what.to_owned() })
    }

    fn number(&self, what: &str) -> Result<f64, MachineError> {
        let text = self.query(what)?;
        let number = text.lines().next().and_then(|line| line.trim().parse().ok());
        number.ok_or_else(|| MachineError::Unreadable { program: self.program.clone(), what: what.to_owned() })
    }
}

impl Thermometer for NvidiaSmi {
    fn celsius(&mut self) -> Option<f64> {
        self.number("--query-gpu=temperature.gpu").ok()
    }
}

impl Device for NvidiaSmi {
    fn processes(&mut self) -> Result<Vec<DeviceProcess>, MachineError> {
        let what = "--query-compute-apps=pid,process_name";
        let unreadable = || MachineError::Unreadable { program: self.program.clone(), what: what.to_owned() };
        let text = self.query(what)?;
        let process = |line: &str| {
            let (pid, name) = line.split_once(',')?;
            Some(DeviceProcess { pid: pid.trim().parse().ok()?, name: name.trim().to_owned() })
        };
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| process(line).ok_or_else(unreadable)).collect()
    }

    fn use_percent(&mut self) -> Result<f64, MachineError> {
        self.number("--query-gpu=utilization.gpu")
    }
}

/// A command of the machine's owner: the first line that a shell prints for it is the temperature.
#[derive(Debug, Clone)]
pub struct CommandThermometer {
    line: String,
}

impl CommandThermometer {
    /// What `bash -c` runs.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into() }
    }
}

impl Thermometer for CommandThermometer {
    fn celsius(&mut self) -> Option<f64> {
        let mut command = Command::new("bash");
        command.args(["-c", &self.line]);
        output(command)?.lines().next()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that prints by what it is asked.
    fn smi(folder: &std::path::Path, script: &str) -> NvidiaSmi {
        let path = folder.join("smi");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        NvidiaSmi::new(path)
    }

    #[test]
    fn a_second_process_on_the_device_is_refused_and_the_screens_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut device = smi(folder.path(), "echo '7, /usr/lib/xorg/Xorg'; echo '8, ours'; echo '9, /opt/other'");
        let error = expect_alone(&mut device, &[8]).unwrap_err();
        assert_eq!(error.to_string(), "DEVICE-HAS-OTHER-PROCESS: 9 (/opt/other) computes on the device too; end it");
        assert!(expect_alone(&mut device, &[8, 9]).is_ok());
    }

    #[test]
    fn a_device_that_cannot_be_asked_is_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        for script in ["exit 1", "echo 'no devices were found'"] {
            let mut device = smi(folder.path(), script);
            assert_eq!(expect_alone(&mut device, &[]).unwrap_err().name(), "DEVICE-UNREADABLE");
            assert!(device.use_percent().is_err() && device.celsius().is_none());
        }
        assert!(NvidiaSmi::new("/nonexistent").processes().is_err());
    }

    #[test]
    fn a_temperature_is_the_first_line_of_a_command() {
        assert_eq!(CommandThermometer::new("echo 45; echo 90").celsius(), Some(45.0));
        assert_eq!(CommandThermometer::new("echo hot").celsius(), None);
        assert_eq!(CommandThermometer::new("echo 45; exit 1").celsius(), None);
    }
}
