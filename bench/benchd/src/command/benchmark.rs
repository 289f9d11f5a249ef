//! `benchmark` and `local-baseline`: what the scripts of the contract's face run (track-contract.md 7.1, 7.2 and 12.6).

use std::path::{Path, PathBuf};

use bench_core::contract::TrackId;

use crate::args::{
    BenchmarkArgs, BuildArgs, EngineArgs, FacadeArgs, IterateArgs, LocalBaselineArgs, ModeArg, PinArgs, STAGED,
    StageArgs, TrackArgs, TrackChoice,
};
use crate::checkout::Checkout;
use crate::command::{build, declaration, iterate};
use crate::failure::Failure;
use crate::{documents, output};

const TINY_FIXTURE: &str = "fixtures/tiny_story_track.json";
const TINY_WEIGHTS: &str = "models/tiny";
/// Where setup puts the real track's files (track-contract.md 5).
const SNAPSHOT: &str = "reference_weights/Qwen3.8-Flash-Next-GGUF";

pub(crate) fn run(args: &BenchmarkArgs) -> Result<(), Failure> {
    if args.official {
        return Err(Failure::NoOfficial);
    }
    let mode = if args.local_submit { ModeArg::LocalSubmit } else { ModeArg::LocalIterate };
    if !args.local_iterate && !args.local_submit {
        output::say("no mode given: --local-iterate");
    }
    let track = track(&args.run);
    if !args.no_build && args.run.engine == Path::new(STAGED) {
        let stage =
            StageArgs { engine: None, profile: "release".into(), target_dir: cargo_target(), to: STAGED.into() };
        build::build(&BuildArgs { cpu_check: false, stage })?;
    }
    measure(&args.run, track, mode)
}

pub(crate) fn local_baseline(args: &LocalBaselineArgs) -> Result<(), Failure> {
    measure(&args.run, track(&args.run), ModeArg::LocalIterate)
}

/// Cargo's answer: a variable or a configuration may have moved it.
fn cargo_target() -> PathBuf {
    let output = std::process::Command::new("cargo").args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let value: Option<serde_json::Value> = output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok());
    let folder = value.and_then(|value| Some(PathBuf::from(value.get("target_directory")?.as_str()?)));
    folder.unwrap_or_else(|| "target".into())
}

/// Which track, told with its reason in the first line.
fn track(args: &FacadeArgs) -> TrackChoice {
    let snapshot = snapshot(args);
    let (track, why) = match (args.track, snapshot.is_dir()) {
        (Some(track), _) => (track, "as asked".to_owned()),
        (None, true) => (TrackChoice::Real, format!("{} is there", snapshot.display())),
        (None, false) => (TrackChoice::Tiny, format!("no weights of the real track at {}", snapshot.display())),
    };
    let name = match track {
        TrackChoice::Real => "real",
        TrackChoice::Tiny => "tiny",
    };
    output::say(&format!("track {name}: {why}"));
    track
}

fn snapshot(args: &FacadeArgs) -> PathBuf {
    args.snapshot.clone().unwrap_or_else(|| SNAPSHOT.into())
}

fn measure(args: &FacadeArgs, track: TrackChoice, mode: ModeArg) -> Result<(), Failure> {
    let (contract_path, weights) = match track {
        TrackChoice::Tiny => (PathBuf::from(TINY_FIXTURE), PathBuf::from(TINY_WEIGHTS)),
        TrackChoice::Real => {
            let manifest = Checkout::at(Path::new(".")).manifest()?;
            (manifest.contract_path.as_str().into(), snapshot(args))
        }
    };
    let contract = documents::contract(&contract_path)?;
    if let Some(id) = args.track_id.as_deref().filter(|id| !id.is_empty()) {
        let id = TrackId::parse(id).map_err(Failure::Track)?;
        contract.expect_track(&id).map_err(Failure::Track)?;
    }
    let declared = declaration::read(&args.declaration, contract.permitted_depths())?;
    let depth = contract.depth(declared.draft_len()).map_err(Failure::Track)?;
    let given = |sha256, bytes| PinArgs { golden_sha256: sha256, golden_bytes: bytes };
    let (golden, pin) = match (&args.golden, track) {
        (Some(path), _) if args.golden_sha256.is_some() != args.golden_bytes.is_some() => {
            let what = format!("{}: a pin is both of --golden-sha256 and --golden-bytes", path.display());
            return Err(Failure::Flag { flag: "--golden-file", what });
        }
        (Some(path), _) => (path.clone(), given(args.golden_sha256, args.golden_bytes)),
        (None, TrackChoice::Tiny) => {
            (depth.oracle.path.clone().into(), given(Some(depth.oracle.sha256), depth.oracle.bytes))
        }
        (None, TrackChoice::Real) => {
            let what = "a golden is required, there is no default on this track; set MLXFAST_CORRECTNESS_GOLDEN_PATH";
            return Err(Failure::Flag { flag: "--golden-file", what: what.into() });
        }
    };
    iterate::run(&IterateArgs {
        engine: EngineArgs {
            engine: args.engine.clone(),
            weights: args.weights.clone().unwrap_or(weights),
            resources: Vec::new(),
            no_sandbox: false,
        },
        golden,
        track: TrackArgs { track: None, contract: Some(contract_path) },
        pin,
        mode,
        score_path: args.score_path.clone(),
        mtp_depth: Some(declared.draft_len()).filter(|depth| *depth > 0),
        mtp: false,
        strict: false,
        resident: true,
        commit: None,
    })
}
