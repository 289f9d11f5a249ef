//! `exactness` and `capture`: free runs behind a golden's prompt (track-contract.md 7.10).

use std::fs;
use std::path::{Path, PathBuf};

use bench_core::fidelity::compare;
use bench_core::golden::{Capture, Demands, Golden};
use bench_core::mode::Mode;
use bench_core::timed::OracleError;
use bench_runner::Launch;

use crate::args::{CaptureArgs, ExactnessArgs, TrackArgs};
use crate::failure::Failure;
use crate::{documents, engine, output, signals};

pub(crate) fn run(args: &ExactnessArgs) -> Result<(), Failure> {
    let goldens = goldens(args)?;
    let prompts: Vec<(&PathBuf, Vec<i64>)> =
        goldens.iter().map(|path| Ok((path, seed_tokens(&args.track, path)?))).collect::<Result<_, Failure>>()?;
    let launch = args.engine.launch(signals::listen()?)?;
    let mut inexact = 0;
    for (path, prompt) in &prompts {
        let serial = free_run(&launch, prompt, args.steps, 0)?;
        let drafted = free_run(&launch, prompt, args.steps, args.depth)?;
        let stream = |capture: &Capture| [&[capture.seed_token][..], &capture.tokens].concat();
        let found = compare(0, &stream(&drafted), &stream(&serial));
        let found = found.map_err(|error| Failure::Correctness { verdict: error.to_string() })?;
        let counts = format!("drafted {}, accepted {}", drafted.drafted_total, drafted.accepted_total);
        match found.first {
            None => output::line(&format!("MATCH {}: depth {}, {counts}", path.display(), args.depth))?,
            Some(step) => {
                inexact += 1;
                output::line(&format!("MISMATCH {}: depth {} at step {step}, {counts}", path.display(), args.depth))?;
            }
        }
    }
    match inexact {
        0 => Ok(()),
        count => Err(Failure::Inexact { count, all: prompts.len() }),
    }
}

pub(crate) fn capture(args: &CaptureArgs) -> Result<(), Failure> {
    let prompt = seed_tokens(&args.track, &args.seed_from)?;
    let launch = args.engine.launch(signals::listen()?)?;
    let found = free_run(&launch, &prompt, args.steps, args.depth.unwrap_or(0))?;
    output::line(&serde_json::to_string(&found).map_err(|source| Failure::Json { source })?)
}

fn free_run(launch: &Launch, prompt: &[i64], steps: u32, depth: u32) -> Result<Capture, Failure> {
    let doing = format!("free run, {depth} drafts a round");
    let (tape, run) = engine::in_fresh_worker(launch, &doing, |session| {
        let spec = engine::spec(depth);
        session.record_tape(prompt, steps, spec.as_ref()).map_err(Failure::session(&*doing))
    })?;
    Ok(Capture {
        seed_token: tape.seed_token,
        tokens: tape.decode_tokens,
        drafted_total: run.drafted_total,
        accepted_total: run.accepted_total,
    })
}

fn seed_tokens(track: &TrackArgs, path: &Path) -> Result<Vec<i64>, Failure> {
    let contract = track.contract()?;
    let demands = Demands { provenance: None, ..contract.demands(Mode::Official).map_err(Failure::Track)? };
    let golden = Golden::load(&documents::read(path)?, &demands);
    let golden = golden.map_err(|source| Failure::Golden { path: path.to_owned(), source })?;
    let block = golden.benchmark().ok_or(Failure::Oracle(OracleError::NoBenchmark))?;
    Ok(block.decode_seed_tokens.clone())
}

/// Those that were named, and those of the folder that are about a prompt.
fn goldens(args: &ExactnessArgs) -> Result<Vec<PathBuf>, Failure> {
    let mut found = args.goldens.clone();
    if let Some(folder) = &args.golden_dir {
        let entries = fs::read_dir(folder).map_err(|source| Failure::Read { path: folder.clone(), source })?;
        let mut names: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        names.sort();
        found.extend(names.into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.ends_with(".golden.json") && !name.contains(".mtp") && !name.starts_with("negative-")
        }));
    }
    match found.is_empty() {
        true => {
            Err(Failure::Flag { flag: "--golden-dir", what: "no golden to run; name one, or a folder of some".into() })
        }
        false => Ok(found),
    }
}
