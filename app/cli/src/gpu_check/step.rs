//! A step run as a process: its outcome, its record, its part of the log.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use serde_json::{Value, json};

use super::plan::Step;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Ok,
    Failed,
    TimedOut,
    Skipped,
}

/// What is kept of a step.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    pub(super) part: String,
    pub(super) name: String,
    pub(super) command: Vec<String>,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    /// For the table.
    pub(super) note: String,
    /// What it printed, checks that held left out but for the timed ones.
    pub(super) record: Value,
}

/// Runs `step` with `program` and appends what it said to `log`.
pub(super) fn run(step: &Step, program: &Path, most: Duration, log: &mut File) -> io::Result<Done> {
    let mut command: Vec<_> = step.under.clone();
    command.push(program.into());
    command.extend(step.args.iter().cloned());
    let shown: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut done = Done {
        part: step.part.to_string(),
        name: step.name.clone(),
        command: shown,
        outcome: Outcome::Skipped,
        seconds: 0.0,
        note: String::new(),
        record: Value::Null,
    };
    if let Some(why) = &step.skipped {
        done.note.clone_from(why);
        return Ok(done);
    }
    writeln!(log, "\n== {} {}: {}", done.part, done.name, done.command.join(" "))?;
    let mut printed = tempfile::tempfile()?;
    let start = Instant::now();
    let (first, rest) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    // A group of its own: what runs under a sanitizer ends with it.
    let mut command = Command::new(first);
    command.args(rest).process_group(0).stdout(printed.try_clone()?).stderr(log.try_clone()?);
    let started = command.spawn();
    let status = match started {
        Ok(child) => wait(child, most)?,
        Err(e) => {
            done.outcome = Outcome::Failed;
            done.note = format!("{} cannot be started: {e}", first.display());
            if !step.under.is_empty() {
                done.note += "; name it with --sanitizer, or give --skip-sanitizer";
            }
            return Ok(done);
        }
    };
    done.seconds = start.elapsed().as_secs_f64();
    printed.rewind()?;
    let mut text = String::new();
    printed.read_to_string(&mut text)?;
    log.write_all(text.as_bytes())?;
    let record = record(&text);
    done.note = note(&record);
    done.outcome = match status {
        None => Outcome::TimedOut,
        Some(status) if status.success() && !record.is_null() => Outcome::Ok,
        Some(status) => {
            done.note = format!("{status} {}", done.note).trim_end().to_owned();
            Outcome::Failed
        }
    };
    done.record = kept(record);
    Ok(done)
}

/// The end of `child`; none where it ran out of time and was ended.
fn wait(mut child: Child, most: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // Where the group is gone already there is nothing to end.
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The object among the lines that a step printed: a sanitizer writes lines of its own around it.
fn record(text: &str) -> Value {
    let object = |line: &str| serde_json::from_str::<Value>(line).ok().filter(Value::is_object);
    text.lines().rev().find_map(object).unwrap_or_default()
}

fn checks(record: &Value) -> impl Iterator<Item = &Value> {
    record.get("checks").and_then(Value::as_array).into_iter().flatten()
}

fn held(check: &Value) -> bool {
    check.get("ok").and_then(Value::as_bool) == Some(true)
}

fn note(record: &Value) -> String {
    if let Some(rows) = record.get("rows").and_then(Value::as_array) {
        let row = |row: &Value| {
            Some(format!("{} {:.0}", row.get("test")?.as_str()?, row.pointer("/tok_s/median")?.as_f64()?))
        };
        return rows.iter().filter_map(row).collect::<Vec<_>>().join(", ");
    }
    let (all, failed) = (checks(record).count(), checks(record).filter(|check| !held(check)).count());
    let mut note = format!("{all} checks, {failed} failed");
    if let Some(first) = checks(record).find(|check| !held(check)) {
        let field = |name: &str| first.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        note += &format!(", first: {} {} {}", field("op"), field("shape"), field("note"));
    }
    if record.is_null() { "printed no record".into() } else { note }
}

/// A record without the checks that held and were not timed: there are thousands.
fn kept(mut record: Value) -> Value {
    let count = checks(&record).count();
    if let Some(checks) = record.get_mut("checks").and_then(Value::as_array_mut) {
        let timed = |check: &Value| check.get("op").and_then(Value::as_str).is_some_and(|op| op.starts_with("time "));
        checks.retain(|check| !held(check) || timed(check));
        record["checks_in_all"] = json!(count);
    }
    record
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::Part;

    fn shell(script: &str, most_ms: u64) -> Done {
        let args = ["-c", script].map(OsString::from).to_vec();
        let step = Step { part: Part::Ops, name: "x".into(), args, under: vec![], skipped: None };
        let mut log = tempfile::tempfile().unwrap();
        run(&step, Path::new("/bin/sh"), Duration::from_millis(most_ms), &mut log).unwrap()
    }

    #[test]
    fn a_step_ends_in_one_of_four_ways() {
        let done = shell(r#"echo noise; echo '{"checks":[{"op":"a","ok":true},{"op":"time a","ok":true}]}'"#, 60_000);
        assert_eq!((done.outcome, done.note.as_str()), (Outcome::Ok, "2 checks, 0 failed"));
        assert_eq!(done.record["checks"].as_array().map(Vec::len), Some(1));
        let done = shell(r#"echo '{"checks":[{"op":"a","shape":"s","note":"n","ok":false}]}'; exit 1"#, 60_000);
        assert_eq!(done.outcome, Outcome::Failed);
        assert!(done.note.contains("first: a s n"), "{}", done.note);
        assert_eq!(shell("true", 60_000).outcome, Outcome::Failed, "no record");
    }

    #[test]
    fn a_step_out_of_time_ends_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let done = shell(&format!("sleep 1000 & echo $! > {}; wait", file.display()), 2000);
        assert_eq!(done.outcome, Outcome::TimedOut);
        let started = std::fs::read_to_string(file).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", started.trim())).unwrap_or_default();
        // Ended, and perhaps not yet collected by whoever inherited it.
        let alive = || !state().is_empty() && !state().contains(") Z ");
        let end = Instant::now() + Duration::from_secs(60);
        while alive() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!alive());
    }

    #[test]
    fn a_program_that_is_not_there_fails_its_step() {
        let step = Step {
            part: Part::Sanitizer,
            name: "memcheck".into(),
            args: vec![],
            under: vec!["/no/such/compute-sanitizer".into()],
            skipped: None,
        };
        let mut log = tempfile::tempfile().unwrap();
        let done = run(&step, Path::new("/bin/true"), Duration::from_secs(60), &mut log).unwrap();
        assert_eq!(done.outcome, Outcome::Failed);
        assert!(done.note.contains("--skip-sanitizer"), "{}", done.note);
    }
}
