//! `gpu-check`: everything that must hold on a GPU, in one command, with a table last and a record in a folder.

mod compare;
mod plan;
mod step;

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use self::compare::Pair;
use self::step::{Done, Outcome};
use crate::args::GpuCheckArgs;
use crate::bench::Build;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &GpuCheckArgs) -> Result<(), Failure> {
    // Read first: a wrong name should not be found after ten minutes.
    let before = args.compare.as_deref().map(earlier).transpose()?;
    let stem = match args.only.iter().map(ToString::to_string).collect::<Vec<_>>().join("-") {
        parts if parts.is_empty() => "gpu-check".to_owned(),
        parts => format!("gpu-check-{parts}"),
    };
    let out = |source| Failure::Out { flag: "--out", path: args.out.clone(), source };
    fs::create_dir_all(&args.out).map_err(out)?;
    let mut log = File::create(args.out.join(format!("{stem}.log"))).map_err(out)?;
    let program = std::env::current_exe().map_err(|source| Failure::Read { path: "this program".into(), source })?;
    let mut done = Vec::new();
    for step in plan::steps(args, Path::new(".")) {
        let ended = step::run(&step, &program, Duration::from_secs(args.step_seconds), &mut log).map_err(out)?;
        // Lines as steps end: a run that is cut short has shown how far it came.
        output::text(&line(&ended))?;
        done.push(ended);
    }
    let pairs = before.map(|before| {
        let now: Vec<_> = done.iter().flat_map(|step| compare::rows(&step.record)).collect();
        compare::pairs(&before, &now)
    });
    let pairs = pairs.unwrap_or_default();
    let record = record(&done, &pairs);
    let text = serde_json::to_string_pretty(&record).map_err(|e| out(e.into()))? + "\n";
    fs::write(args.out.join(format!("{stem}.json")), text).map_err(out)?;
    let failed = done.iter().filter(|step| matches!(step.outcome, Outcome::Failed | Outcome::TimedOut)).count()
        + pairs.iter().filter(|pair| !pair.ok()).count();
    output::text(&table(&done, &pairs))?;
    if failed == 0 { Ok(()) } else { Err(Failure::GpuCheck { failed }) }
}

/// Rows of an earlier bench.
fn earlier(path: &Path) -> Result<Vec<(String, f64)>, Failure> {
    let read = |source| Failure::Read { path: path.display().to_string(), source };
    let text = fs::read_to_string(path).map_err(read)?;
    let record: Value = serde_json::from_str(&text).map_err(|e| read(e.into()))?;
    let rows = compare::rows(&record);
    if rows.is_empty() { Err(Failure::NoRows { path: path.to_owned() }) } else { Ok(rows) }
}

fn record(done: &[Done], pairs: &[Pair]) -> Value {
    let device = done.iter().find_map(|step| step.record.get("device")).cloned();
    let compared: Vec<Value> = pairs
        .iter()
        .map(|p| json!({"test": p.test, "before": p.before, "now": p.now, "change": p.change(), "ok": p.ok()}))
        .collect();
    json!({ "schema": 1, "build": Build::this(), "device": device, "steps": done, "compared": compared })
}

fn verdict(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Failed => "FAILED",
        Outcome::TimedOut => "TIMED OUT",
        Outcome::Skipped => "skipped",
    }
}

fn line(done: &Done) -> String {
    let Done { part, name, outcome, seconds, note, .. } = done;
    format!("{part:<10} {name:<18} {:<10} {seconds:>6.1} s  {note}\n", verdict(outcome))
}

fn table(done: &[Done], pairs: &[Pair]) -> String {
    let mut text = String::from("\npart       step               outcome         time  what\n");
    text.extend(done.iter().map(line));
    for pair in pairs {
        let outcome = verdict(if pair.ok() { &Outcome::Ok } else { &Outcome::Failed });
        let change = pair.change().map_or("gone".into(), |change| format!("{:+.1} %", 100.0 * change));
        let now = pair.now.unwrap_or_default();
        text += &format!(
            "{:<10} {:<18} {outcome:<10} {:>8}  {:.1} -> {now:.1} tok/s\n",
            "compare", pair.test, change, pair.before
        );
    }
    let of = |wanted: fn(&Outcome) -> bool| done.iter().filter(|step| wanted(&step.outcome)).count();
    let slower = pairs.iter().filter(|pair| !pair.ok()).count();
    text += &format!(
        "{} steps: {} ok, {} failed, {} skipped; {} rows compared, {slower} slower or gone\n",
        done.len(),
        of(|o| *o == Outcome::Ok),
        of(|o| matches!(o, Outcome::Failed | Outcome::TimedOut)),
        of(|o| *o == Outcome::Skipped),
        pairs.len(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_stands_in_the_table() {
        let step = |name: &str, outcome| Done {
            part: "sanitizer".into(),
            name: name.into(),
            command: vec![],
            outcome,
            seconds: 0.0,
            note: "--skip-sanitizer".into(),
            record: Value::Null,
        };
        let pairs = [Pair { test: "tg64".into(), before: 100.0, now: Some(90.0) }];
        let text = table(&[step("memcheck", Outcome::Skipped), step("racecheck", Outcome::Ok)], &pairs);
        assert!(text.contains("memcheck           skipped"), "{text}");
        assert!(text.contains("-10.0 %"), "{text}");
        assert!(text.ends_with("2 steps: 1 ok, 0 failed, 1 skipped; 1 rows compared, 1 slower or gone\n"), "{text}");
    }
}
