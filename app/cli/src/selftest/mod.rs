//! `selftest`: every kernel of the CUDA backend against plain code, and whole models against the CPU.

mod lengths;
mod model;

use cudafast_cuda::{Check, SelfTest, SelfTestOptions};
use serde_json::json;

use crate::{args::SelftestArgs, failure::Failure, output};

pub(crate) fn run(args: &SelftestArgs) -> Result<(), Failure> {
    let options = SelfTestOptions {
        device: args.cuda_device,
        seed: args.seed,
        only: args.only.clone(),
        timed: args.time,
        fault: args.fault,
        plain_edges: args.plain_edges,
    };
    let mut printed = Ok(());
    let mut each = |check: &Check| {
        if !args.json && printed.is_ok() {
            printed = output::text(&line(check));
        }
    };
    // Models first: a drill, which ends the device, comes last.
    let models = match args.only.as_str() {
        "lengths" => lengths::run(args, &mut each)?,
        only if only.is_empty() || only.starts_with("model") => model::run(args, &mut each)?,
        _ => Vec::new(),
    };
    let mut done = SelfTest::run(&options, &mut each)?;
    done.checks.splice(..0, models);
    printed?;
    let failed = done.checks.iter().filter(|check| !check.ok).count();
    output::text(&if args.json { object(&done, args.seed) } else { summary(&done, failed, args.seed) })?;
    if done.ok() { Ok(()) } else { Err(Failure::Selftest { failed, checks: done.checks.len() }) }
}

fn line(check: &Check) -> String {
    let Check { op, shape, error, bound, ok, note } = check;
    let verdict = if *ok { "ok" } else { "FAILED" };
    let by = if *bound == 0.0 { "bits".into() } else { format!("{error:.2e} <= {bound:.0e}") };
    format!("{op:<16} {shape:<52} {by:<20} {verdict} {note}").trim_end().to_owned() + "\n"
}

fn summary(done: &SelfTest, failed: usize, seed: u64) -> String {
    let (info, checks) = (&done.device, done.checks.len());
    let (major, minor) = info.capability;
    let mut text = String::new();
    for check in done.checks.iter().filter(|check| !check.ok).take(20) {
        text += &line(check);
    }
    text + &format!(
        "{}, sm_{major}{minor}, {} multiprocessors, driver {}: {checks} checks, {failed} failed (seed {seed})\n",
        info.name, info.multiprocessors, info.driver
    )
}

fn object(done: &SelfTest, seed: u64) -> String {
    let checks = done.checks.iter().map(
        |c| json!({ "op": c.op, "shape": c.shape, "error": c.error, "bound": c.bound, "ok": c.ok, "note": c.note }),
    );
    let info = &done.device;
    let device = json!({
        "name": info.name,
        "capability": format!("{}.{}", info.capability.0, info.capability.1),
        "multiprocessors": info.multiprocessors,
        "memory_bytes": info.memory_bytes,
        "driver": info.driver,
    });
    format!("{}\n", json!({ "device": device, "seed": seed, "ok": done.ok(), "checks": checks.collect::<Vec<_>>() }))
}
