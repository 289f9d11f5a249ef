//! `iterate`: one candidate leg and the correctness gate (benchd.md 2.1). Local modes give real times and no score.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bench_core::contract::{Contract, Platform};
use bench_core::correctness::{Conformance, ConformanceError, run_conformance};
use bench_core::engine::Engine as _;
use bench_core::fidelity::{Divergence, TimedError, judge_timed, replay};
use bench_core::golden::{Demands, Golden};
use bench_core::mode::Mode;
use bench_core::timed::{TimedOracle, expect_no_stored_baseline};
use bench_core::{ContentPin, Refusal};
use bench_runner::{Interrupt, Launch};
use serde_json::{Map, Value, json};

use crate::args::IterateArgs;
use crate::checkout::Checkout;
use crate::command::{tree, weights};
use crate::failure::Failure;
use crate::leg::{self, Leg};
use crate::resident::{Plan, Resident};
use crate::{documents, engine, environment, output, signals};

/// Said beside every local figure.
const UNSCORED: &str = "none (local mode: unscored)";

pub(crate) fn run(args: &IterateArgs) -> Result<(), Failure> {
    let interrupt = &signals::listen()?;
    let begun = Instant::now();
    let mode = args.mode.mode();
    if mode == Mode::Official {
        return Err(Failure::NoOfficial);
    }
    let depth = args.mtp_depth.unwrap_or(if args.mtp { 2 } else { 0 });
    let contract = args.track.contract()?;
    let window = contract.window().map_err(Failure::Track)?;
    contract.depth(depth).map_err(Failure::Track)?;
    let golden = load(args, &contract, mode)?;
    expect_no_stored_baseline(&golden)?;
    let oracle = TimedOracle::of_golden(&golden, mode.decode_steps(&window) as usize)?;
    let identities = Identities::of(args)?;

    let mut launch = args.engine.launch(interrupt.clone())?;
    let resident = args.resident.then(|| boot(args, &contract, depth, interrupt)).transpose()?;
    launch.resident_socket = resident.as_ref().map(Resident::socket);
    if resident.is_some() {
        output::say("the resident has loaded the weights");
    }
    let spec = engine::spec(depth);
    let leg = leg::run(&launch, &oracle, spec.as_ref(), &window)?;
    let judged = judge(&launch, &contract, &oracle, &leg)?;
    let timed_seconds = begun.elapsed().as_secs_f64();
    let conformance = correctness(args, &launch, &contract, &golden, mode)?;
    drop(resident);

    let error = judged.error.clone().or_else(|| conformance.failure.as_ref().map(|failure| failure.kind.to_string()));
    let run = Run {
        args,
        mode,
        contract: &contract,
        golden: &golden,
        leg: &leg,
        judged: &judged,
        conformance: &conformance,
        identities: &identities,
    };
    let mut metrics = run.metrics(depth);
    metrics.insert("error".into(), json!(error));
    metrics.insert("timed_benchmark_seconds".into(), json!(rounded(timed_seconds)));
    metrics.insert("benchmark_wall_seconds".into(), json!(rounded(begun.elapsed().as_secs_f64())));
    let result = json!({ "score": Value::Null, "passed": error.is_none(), "metrics": metrics });
    seal(args, mode, &result)?;
    run.summary(depth);
    match error {
        None => Ok(()),
        Some(error) => Err(Failure::NotPassed { error }),
    }
}

fn load(args: &IterateArgs, contract: &Contract, mode: Mode) -> Result<Golden, Failure> {
    let demands = contract.demands(mode).map_err(Failure::Track)?;
    let demands = Demands { pin: args.pin.pin(), ..demands };
    let golden = Golden::load(&documents::read(&args.golden)?, &demands);
    golden.map_err(|source| Failure::Golden { path: args.golden.clone(), source })
}

fn boot(args: &IterateArgs, contract: &Contract, depth: u32, interrupt: &Interrupt) -> Result<Resident, Failure> {
    let stop_ids = contract.target.as_ref().map(|target| target.stop_ids.clone()).unwrap_or_default();
    Resident::boot(&Plan {
        engine: &args.engine.engine,
        weights: &args.engine.weights,
        draft_tokens: depth + 1,
        ctx_tokens: contract.serve.ctx_tokens,
        stop_ids: &stop_ids,
        environment: &environment::of_workers(),
        interrupt,
    })
}

/// What the tokens of the leg are worth.
struct Judged {
    divergence: Divergence,
    error: Option<String>,
}

/// A local run has no reference engine: the candidate replays its own stream, one row at a time.
fn judge(launch: &Launch, contract: &Contract, oracle: &TimedOracle, leg: &Leg) -> Result<Judged, Failure> {
    let vocab_size = contract.shape().map_err(Failure::Track)?.vocab_size;
    let replayed = || {
        engine::in_fresh_worker(launch, "replay", |session| {
            let choices = replay(session, &oracle.seed_tokens, &leg.stream, vocab_size);
            let choices = choices.map_err(Failure::session("replay"))?;
            session.next_phase().map_err(Failure::session("replay"))?;
            Ok(choices)
        })
    };
    let judged = judge_timed(&leg.stream, &oracle.stream, &contract.timed_tokens, replayed);
    let (divergence, refusal) = judged.map_err(|error| match error {
        TimedError::Replay(failure) => failure,
        TimedError::Streams(error) => Failure::Correctness { verdict: error.to_string() },
    })?;
    let refusal = refusal.map(|refusal: Refusal| refusal.name().to_owned());
    let prefill = oracle.prefill_mismatch(leg.prefill_token).map(|wrong| wrong.to_string());
    Ok(Judged { divergence, error: prefill.or(refusal) })
}

fn correctness(
    args: &IterateArgs,
    launch: &Launch,
    contract: &Contract,
    golden: &Golden,
    mode: Mode,
) -> Result<Conformance, Failure> {
    let steps = contract.window().map_err(Failure::Track)?.correctness_steps as usize;
    let vocab_size = contract.shape().map_err(Failure::Track)?.vocab_size;
    engine::in_fresh_worker(launch, "correctness", |session| {
        let found = run_conformance(session, golden, steps, mode.scope(args.strict), vocab_size);
        let found = found.map_err(|error| match error {
            ConformanceError::Engine(error) => Failure::session("correctness")(error),
            other => Failure::Correctness { verdict: other.to_string() },
        })?;
        session.next_phase().map_err(Failure::session("correctness"))?;
        Ok(found)
    })
}

/// What was measured, by its bytes.
struct Identities {
    harness: Option<String>,
    weights: bench_core::digests::FolderIdentity,
    engine: ContentPin,
    commit: Option<String>,
}

impl Identities {
    fn of(args: &IterateArgs) -> Result<Self, Failure> {
        let root = Path::new(".");
        let asked = || {
            let head = Checkout::at(root).git("rev-parse", &["--short", "HEAD"]).ok()?;
            Some(String::from_utf8_lossy(&head).trim().to_owned())
        };
        let hex = |text: &str| {
            (7..=40).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if let Some(commit) = args.commit.as_deref().filter(|commit| !hex(commit)) {
            return Err(Failure::Flag {
                flag: "--commit",
                what: format!("{commit:?} is not 7 to 40 lower-case digits"),
            });
        }
        if !args.engine.engine.is_file() {
            return Err(Failure::NoEngine { path: args.engine.engine.clone() });
        }
        Ok(Self {
            // Outside a checkout a local run goes on without; an official one may not.
            harness: tree::harness_identity(root).ok().map(|digest| digest.to_string()),
            weights: weights::identity(&args.engine.weights)?,
            engine: ContentPin::of(&documents::read(&args.engine.engine)?),
            commit: args.commit.clone().or_else(asked),
        })
    }
}

/// A finished run.
struct Run<'a> {
    args: &'a IterateArgs,
    mode: Mode,
    contract: &'a Contract,
    golden: &'a Golden,
    leg: &'a Leg,
    judged: &'a Judged,
    conformance: &'a Conformance,
    identities: &'a Identities,
}

impl Run<'_> {
    /// Keys of benchd.md 15 that a local run has something to say about.
    fn metrics(&self, depth: u32) -> Map<String, Value> {
        let (leg, found, run) = (self.leg, self.conformance, &self.leg.run);
        let failure = found.failure.as_ref();
        let effective = leg.effective_spec.as_ref();
        let echoed_depth = effective.and_then(|spec| spec.mtp.as_ref()).and_then(|mtp| mtp.depth);
        let weights = self.identities.weights;
        let divergence = &self.judged.divergence;
        let mut metrics = json!({
            "decode_seconds_per_token": leg.decode_seconds_per_token(self.contract.decode_figure),
            "prefill_seconds_per_token": leg.prefill_seconds_per_token(),
            "candidate_leg_seed_prefill_window_seconds_per_token": leg.seed_seconds / leg.prefill_tokens as f64,
            "candidate_leg_decode_window_seconds_per_token": leg.run_seconds / run.tokens.len() as f64,
            "peak_ram_gb": rounded(leg.peak_ram_gb),
            "passed_correctness": found.passed(),
            "checked_steps": found.checked_steps,
            "case_count": found.case_count,
            "first_failing_layer": Value::Null,
            "first_failing_case": failure.map(|failure| &failure.case),
            "first_failing_step": failure.map(|failure| failure.step),
            "expected_token": Value::Null,
            "actual_token": Value::Null,
            "num_layers": self.contract.shape().map(|shape| shape.layers).ok(),
            "golden_hash": self.golden.pin().sha256.to_string(),
            "contract_sha256": self.contract.pin.sha256.to_string(),
            "weights_hash": weights.sha256.to_string(),
            "weights_byte_count": weights.bytes,
            "weights_file_count": weights.files,
            "runner_build": self.identities.engine.sha256.to_string(),
            "harness_hash": self.identities.harness,
            "commit": self.identities.commit,
            "timestamp": jiff::Timestamp::now().to_string(),
            "runtime": self.mode.runtime(),
            "baseline_source": UNSCORED,
            "partial_result": false,
            "sandbox": leg.sandbox,
            "engine_backend": leg.hello.backend,
            "engine_device": leg.hello.device,
            "requested_depth": depth,
            "effective_spec_mode": effective.map_or("serial", |spec| spec.mode.name()),
            "effective_spec_depth": echoed_depth.unwrap_or(0),
            "spec_rounds": run.rounds(),
            "spec_drafted_total": run.drafted_total,
            "spec_accepted_total": run.accepted_total,
            "acceptance_lengths": run.acceptance_lengths,
            "effective_mean_draft_len": leg.mean_draft_len(),
            "token_mismatch_count": divergence.mismatches.count,
            "token_mismatch_first_step": divergence.mismatches.first,
            "token_mismatch_reference": "the candidate itself, serial",
        });
        let optional = [
            ("spec_acceptance_rate", leg.acceptance_rate().map(|rate| json!(rate))),
            ("spec_verify_replay_disagreements", run.verify_replay_disagreements.map(|count| json!(count))),
        ];
        let metrics = metrics.as_object_mut().map(std::mem::take).unwrap_or_default();
        metrics
            .into_iter()
            .chain(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))))
            .collect()
    }

    /// For people.
    fn summary(&self, depth: u32) {
        let (leg, run) = (self.leg, &self.leg.run);
        let spec = if depth == 0 { "serial".to_owned() } else { format!("mtp{depth}") };
        output::say(&format!("track {}, {}, {spec}, {}", self.contract.track_id, self.mode.name(), leg.hello.backend));
        output::say(&format!(
            "prefill     {:9.3} ms/token over {} tokens",
            1e3 * leg.prefill_seconds_per_token(),
            leg.prefill_tokens
        ));
        let decode = leg.decode_seconds_per_token(self.contract.decode_figure);
        output::say(&format!(
            "decode      {:9.3} ms/token over {} tokens in {} rounds",
            1e3 * decode,
            run.tokens.len(),
            run.rounds()
        ));
        match leg.acceptance_rate() {
            Some(rate) => output::say(&format!(
                "acceptance  {:9.3}, {} of {} drafts, {:.2} tokens a round",
                rate,
                run.accepted_total,
                run.drafted_total,
                leg.mean_draft_len()
            )),
            None => output::say("acceptance  nothing was drafted"),
        }
        if self.contract.track_id.platform() == Platform::Cpu {
            output::say(
                "            (the embedded model was trained on windows of 512 tokens; behind 1024 its text, and so this figure, is no model for others)",
            );
        }
        let verdict = match &self.judged.error {
            None => format!(
                "{} of {} tokens are not the oracle's",
                self.judged.divergence.mismatches.count,
                leg.stream.len()
            ),
            Some(error) => error.clone(),
        };
        output::say(&format!("timed tokens: {verdict}; judged by {}", "the candidate itself, serial"));
        let gate = self.conformance.failure.as_ref().map_or("passed".to_owned(), ToString::to_string);
        output::say(&format!(
            "correctness: {gate}, {} steps of {} cases",
            self.conformance.checked_steps, self.conformance.case_count
        ));
        output::say(&format!("score: null, {UNSCORED}; written to {}", score_path(self.args, self.mode).display()));
    }
}

fn score_path(args: &IterateArgs, mode: Mode) -> PathBuf {
    let default = if mode == Mode::LocalIterate { "score.local-iterate.json" } else { "score.json" };
    args.score_path.clone().unwrap_or_else(|| default.into())
}

/// Result and digest, whole or not at all; the same bytes on standard output.
fn seal(args: &IterateArgs, mode: Mode, result: &Value) -> Result<(), Failure> {
    let path = score_path(args, mode);
    let text = serde_json::to_string_pretty(result).map_err(|source| Failure::Json { source })?;
    let mut sidecar = path.clone().into_os_string();
    sidecar.push(".sha256");
    let digest = format!("{}\n", bench_core::sha256(text.as_bytes()));
    for (path, bytes) in [(&path, &text), (&PathBuf::from(sidecar), &digest)] {
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
        written.map_err(|source| Failure::Write { path: path.clone(), source })?;
    }
    output::line(&text)
}

/// Two significant figures, for what is diagnosis and not measurement (benchd.md 15).
fn rounded(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn diagnostics_have_two_figures() {
        assert_eq!([0.0, 1.0, 18.55, 0.012_345, 987.0].map(rounded), [0.0, 1.0, 19.0, 0.012, 990.0]);
    }
}
