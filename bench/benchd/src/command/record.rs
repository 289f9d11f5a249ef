//! `record-golden`: a golden out of what an engine answers, and the oracles of its depths (benchd.md 4.3).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bench_core::contract::Contract;
use bench_core::engine::Engine as _;
use bench_core::golden::author::{Recording, prompt_tokens, record_case};
use bench_core::golden::{Benchmark, Capture, Demands, Golden, negative_control, per_depth_oracle};
use bench_core::mode::Mode;
use bench_core::{ContentPin, Provenance};
use bench_runner::Launch;
use serde_json::{Map, Value, json};

use crate::args::RecordArgs;
use crate::checkout::Checkout;
use crate::failure::Failure;
use crate::{documents, engine, output, signals};

/// What an engine is built from. Goldens name its state by the commit, so it must be committed.
const ENGINE_SOURCE: [&str; 5] = ["engine", "harness", "models", "Cargo.toml", "Cargo.lock"];

/// A golden that was recorded, before it is a file.
struct Recorded {
    /// 0: the serial golden.
    depth: u32,
    path: PathBuf,
    bytes: Vec<u8>,
}

pub(crate) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let contract = args.track.contract()?;
    let demands = demands(args, &contract)?;
    let prompts = prompts(args, &demands)?;
    if !args.compare {
        contract.expect_unarmed().map_err(Failure::Track)?;
        expect_clean_engine()?;
    }
    for &depth in &args.depths {
        let permitted = contract.permitted_depths();
        if !permitted.contains(&depth) {
            let what = format!("{depth} is not among the contract's permitted_draft_depths, {permitted:?}");
            return Err(Failure::Flag { flag: "--depths", what });
        }
    }
    let launch = args.engine.launch(signals::listen()?)?;
    let recorded = record(args, &contract, &demands, &prompts, &launch)?;
    for golden in &recorded {
        expect_negative_control(golden, &demands)?;
        if args.compare {
            expect_same(golden)?;
        } else {
            write(golden)?;
        }
        output::say(&format!(
            "{} {}: {}",
            if args.compare { "compared" } else { "recorded" },
            golden.path.display(),
            ContentPin::of(&golden.bytes)
        ));
    }
    output::json(&patch(&recorded))
}

/// Of a golden of so many steps, official but for the timed block when none is recorded.
fn demands<'a>(args: &RecordArgs, contract: &'a Contract) -> Result<Demands<'a>, Failure> {
    let demands = contract.demands(Mode::Official).map_err(Failure::Track)?;
    Ok(Demands { expected_tokens: args.steps as usize, benchmark: args.benchmark_free_run, ..demands })
}

/// Names and prompts, refused before anything is started.
fn prompts(args: &RecordArgs, demands: &Demands<'_>) -> Result<Vec<(String, Vec<i64>)>, Failure> {
    let (files, names) = (args.prompt_tokens.len(), args.case_name.len());
    if files != names {
        let what = format!("{names} names for {files} --prompt-tokens; each file is followed by its name");
        return Err(Failure::Flag { flag: "--case-name", what });
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = args.case_name.iter().find(|name| !seen.insert(*name)) {
        return Err(Failure::Flag { flag: "--case-name", what: format!("{twice:?} is given twice; names are unique") });
    }
    let read = |(path, name): (&PathBuf, &String)| {
        let text = String::from_utf8_lossy(&documents::read(path)?).into_owned();
        let tokens = prompt_tokens(name, &text, demands.shape);
        let tokens = tokens.map_err(|source| Failure::Prompt { path: path.clone(), source })?;
        Ok((name.clone(), tokens))
    };
    args.prompt_tokens.iter().zip(&args.case_name).map(read).collect()
}

fn expect_clean_engine() -> Result<(), Failure> {
    let status = [&["--porcelain", "--"][..], &ENGINE_SOURCE].concat();
    let changed = Checkout::at(Path::new(".")).git("status", &status)?;
    match String::from_utf8_lossy(&changed).lines().next() {
        None => Ok(()),
        Some(line) => Err(Failure::EnginePin { changed: line.trim().to_owned() }),
    }
}

fn record(
    args: &RecordArgs,
    contract: &Contract,
    demands: &Demands<'_>,
    prompts: &[(String, Vec<i64>)],
    launch: &Launch,
) -> Result<Vec<Recorded>, Failure> {
    let mut cases = Vec::new();
    for (name, prompt) in prompts {
        let doing = format!("case {name}");
        output::say(&format!("{doing}: {} steps", args.steps));
        cases.push(engine::in_fresh_worker(launch, &doing, |session| {
            let case = record_case(session, name, prompt, args.steps as usize);
            let case = case.map_err(Failure::session(&*doing))?;
            session.next_phase().map_err(Failure::session(&*doing))?;
            Ok(case)
        })?);
    }
    let prompt = prompts.first().map(|(_, prompt)| &prompt[..]).unwrap_or_default();
    let free_run = |depth: u32| {
        let doing = format!("free run, {depth} drafts a round");
        output::say(&doing);
        engine::in_fresh_worker(launch, &doing, |session| {
            let spec = engine::spec(depth);
            session.record_tape(prompt, args.benchmark_steps, spec.as_ref()).map_err(Failure::session(&*doing))
        })
    };
    let benchmark = match args.benchmark_free_run {
        true => Some(Benchmark::from(free_run(0)?.0)),
        false => None,
    };
    let named = args.model_provenance_repo.clone().zip(args.model_provenance_rev.clone());
    let named = named.map(|(repository, revision)| Provenance { repository, revision });
    let provenance = named.or_else(|| contract.target.as_ref().map(|target| target.provenance.clone()));
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::Golden { path, source }
    };
    let serial = Recording { provenance, cases, benchmark }.author(demands).map_err(refused(&args.out))?.0;

    let mut recorded = Vec::new();
    for &depth in &args.depths {
        let (tape, run) = free_run(depth)?;
        let capture = Capture {
            seed_token: tape.seed_token,
            tokens: tape.decode_tokens,
            drafted_total: run.drafted_total,
            accepted_total: run.accepted_total,
        };
        let path = oracle_path(&args.out, depth);
        let bytes = per_depth_oracle(&serial, &capture, demands).map_err(refused(&path))?.0;
        recorded.push(Recorded { depth, path, bytes });
    }
    recorded.insert(0, Recorded { depth: 0, path: args.out.clone(), bytes: serial });
    Ok(recorded)
}

/// `DIR/PROMPT.golden.json` becomes `DIR/PROMPT.mtpN.golden.json`.
fn oracle_path(serial: &Path, depth: u32) -> PathBuf {
    let name = serial.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".golden.json").unwrap_or(&name);
    serial.with_file_name(format!("{stem}.mtp{depth}.golden.json"))
}

/// One digit changed must fail the golden's own pin, else the pin proves nothing (benchd.md 4.3).
fn expect_negative_control(golden: &Recorded, demands: &Demands<'_>) -> Result<(), Failure> {
    if !demands.benchmark {
        return Ok(());
    }
    let wrong = negative_control(&golden.bytes, demands);
    let wrong = wrong.map_err(|source| Failure::Golden { path: golden.path.clone(), source })?;
    let pinned = Demands { pin: Some(ContentPin::of(&golden.bytes)), ..demands.clone() };
    match Golden::load(&wrong, &pinned) {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::NegativeControl { path: golden.path.clone() }),
    }
}

fn expect_same(golden: &Recorded) -> Result<(), Failure> {
    let found = documents::read(&golden.path)?;
    if found == golden.bytes {
        return Ok(());
    }
    let at = found.iter().zip(&golden.bytes).take_while(|(a, b)| a == b).count();
    Err(Failure::Recorded { path: golden.path.clone(), at })
}

fn write(golden: &Recorded) -> Result<(), Failure> {
    let part = golden.path.with_extension("json.part");
    let written = fs::write(&part, &golden.bytes).and_then(|()| fs::rename(&part, &golden.path));
    written.map_err(|source| Failure::Write { path: golden.path.clone(), source })
}

/// The pins as the fixture has them, to be put in by hand: nothing here writes a fixture.
fn patch(recorded: &[Recorded]) -> Value {
    let entry = |golden: &Recorded| {
        let pin = ContentPin::of(&golden.bytes);
        json!({ "r2_path": golden.path.display().to_string(), "sha256": pin.sha256.to_string(), "bytes": pin.bytes })
    };
    let serial: Vec<Value> = recorded.iter().filter(|golden| golden.depth == 0).map(entry).collect();
    let depths = recorded.iter().filter(|golden| golden.depth > 0);
    let depths: Map<String, Value> = depths.map(|golden| (format!("mtp{}", golden.depth), entry(golden))).collect();
    json!({ "timed_prompt_pool": serial, "live_golden_speculative": depths })
}
