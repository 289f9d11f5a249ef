use std::time::Duration;

use bench_core::contract::{Calibration, DecodeFigure, Limits, Range};
use bench_core::timed::{TimedOracle, TokenMismatch};
use bench_protocol::{ResidentIdentity, SpecConfig};
use bench_runner::{CoolError, CoolState, Launch, LegError, LegPhase, LegPlan, LegReport, Verify, run_leg};

use crate::worker::{follows, launch, with};

const STEPS: usize = 12;

/// Ascending ids: by these the workers that remember know the prompt.
fn oracle() -> TimedOracle {
    let seed: Vec<i64> = (1..=64).collect();
    let mut stream = vec![follows(&seed)];
    while stream.len() < STEPS + 1 {
        stream.push(follows(&stream[stream.len() - 1..]));
    }
    TimedOracle { prefill_prompt: seed.clone(), prefill_token: stream[0], seed_tokens: seed, stream }
}

/// As the specification has them, or so wide that no busy machine is refused.
fn limits(strict: bool) -> Limits {
    let range = Range { low: 0.95, high: 1.05 };
    Limits {
        cool_gate_celsius: None,
        quiescence_max_load: 2.0,
        quiescence_max_gpu_percent: None,
        prefill_window_tolerance: 0.5,
        prefill_window_min_ratio: if strict { 0.7 } else { 0.001 },
        fresh_prompt_max_ratio: if strict { 1.5 } else { 1000.0 },
        calibration: Calibration { max_cv: 0.01, prefill: range, decode: range },
        memory_plan: None,
    }
}

fn leg(cheat: &str, strict: bool, change: impl FnOnce(&mut LegPlan<'_>)) -> Result<LegReport, LegError> {
    // Long, so that what is left out is far more than a busy machine adds.
    let launch = with(with(launch(cheat), "--prefill-us", 200_000), "--round-us", 20_000);
    let (oracle, limits) = (oracle(), limits(strict));
    let mut plan = LegPlan {
        launch: &launch,
        oracle: &oracle,
        spec: Some(SpecConfig::mtp(Some(2))),
        verify: Verify::Collect,
        warm_up: false,
        prefill_timed_runs: 1,
        limits: &limits,
        resident: None,
        fresh_probe: true,
    };
    change(&mut plan);
    run_leg(&plan, &mut |_| Ok(CoolState::Fired))
}

pub(crate) fn an_honest_leg_is_measured_by_our_clock_and_passes_its_gates() {
    let report = leg("", false, |plan| {
        plan.warm_up = true;
        plan.verify = Verify::Exact;
        plan.prefill_timed_runs = 2;
    });
    let report = report.unwrap();
    assert_eq!((report.mismatch, report.stream.clone()), (None, oracle().stream));
    assert_eq!(report.effective_spec, Some(SpecConfig::mtp(Some(2))));
    assert_eq!(report.cool, [(LegPhase::Prefill, CoolState::Fired), (LegPhase::Decode, CoolState::Fired)]);
    // What the worker slept is the least that our clock can have seen.
    assert!(report.prefill_seconds_per_token() >= 0.2 / 64.0 && report.prefill.seconds.len() == 2);
    let (run, whole) = (DecodeFigure::DecodeWindow, DecodeFigure::WholeWindow);
    assert!(report.decode_seconds_per_token(run) >= 4.0 * 0.02 / STEPS as f64);
    assert!(report.decode_seconds_per_token(whole) >= report.decode_seconds_per_token(run) + 0.2 / STEPS as f64);
    assert_eq!((report.run.rounds(), report.effective_mean_draft_len()), (4, 3.0));
    assert_eq!(report.acceptance_rate(), Some(1.0));
    let fresh = report.fresh.unwrap();
    assert_eq!((fresh.stream.len(), fresh.stream[0]), (33, follows(&fresh.prompt)));
    assert!(fresh.prompt != oracle().seed_tokens);
}

pub(crate) fn each_way_to_cheat_a_leg_is_refused_by_its_name() {
    let table = [
        ("defer-prefill", "PREFILL-WINDOW-DISAGREES"),
        ("cached-prefill", "FRESH-PROMPT-SLOWER"),
        ("cached-decode", "FRESH-PROMPT-SLOWER"),
        ("wrong-prefill", "TokenMismatch"),
        ("wrong-depth", "SpecEchoDivergence"),
        ("forged-time", "Json"),
        ("two-answers", "RESPONSE-BEFORE-REQUEST"),
        ("more-work", "CompletedWorkMismatch"),
        ("new-resident", "resident_identity_changed_within_window"),
    ];
    for (cheat, name) in table {
        let error = leg(cheat, true, |_| ()).map(drop).unwrap_err();
        assert_eq!(error.name(), name, "{cheat}: {error}");
    }
    let another = leg("new-resident", true, |plan| {
        plan.resident = Some(ResidentIdentity { pid: 1, load_epoch: 1 });
    });
    assert!(matches!(another, Err(LegError::ResidentChanged { phase: LegPhase::Prefill })));
}

pub(crate) fn a_stream_of_a_candidate_is_collected_and_of_a_control_leg_refused() {
    let report = leg("wrong-tokens", false, |plan| plan.fresh_probe = false).unwrap();
    assert_eq!(report.mismatch, Some(TokenMismatch::Step(0)));
    let error = leg("wrong-tokens", false, |plan| plan.verify = Verify::Exact).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "benchmark free-run decode token mismatch at step 0");
}

/// A control leg.
fn serial<'a>(launch: &'a Launch, oracle: &'a TimedOracle, limits: &'a Limits) -> LegPlan<'a> {
    LegPlan {
        launch,
        oracle,
        spec: None,
        verify: Verify::Exact,
        warm_up: false,
        prefill_timed_runs: 1,
        limits,
        resident: None,
        fresh_probe: false,
    }
}

pub(crate) fn a_gate_that_rejects_ends_the_leg() {
    let (launch, oracle, limits) = (launch(""), oracle(), limits(false));
    let plan = LegPlan { warm_up: true, ..serial(&launch, &oracle, &limits) };
    for rejected in [LegPhase::Prefill, LegPhase::Decode] {
        let mut gate = |phase| if phase == rejected { Err(CoolError::NoReader) } else { Ok(CoolState::Fired) };
        let error = run_leg(&plan, &mut gate).map(drop).unwrap_err();
        assert_eq!(error.name(), "GateRejected");
    }
}

pub(crate) fn a_worker_that_dies_at_any_step_of_a_leg_ends_it_by_name() {
    for step in ["hello", "prefill", "phase_diagnostics", "free_decode_begin", "free_decode_run", "end"] {
        let error = leg(&format!("die-{step}"), false, |_| ()).map(drop).unwrap_err();
        assert_eq!(error.name(), "WORKER-DIED", "{step}: {error}");
    }
    let mut hanging = launch("hang-free_decode_run");
    hanging.deadlines.run = Duration::from_millis(200);
    let (oracle, limits) = (oracle(), limits(false));
    let error = run_leg(&serial(&hanging, &oracle, &limits), &mut |_| Ok(CoolState::Fired));
    assert_eq!(error.map(drop).unwrap_err().name(), "RunTimeout");
}
