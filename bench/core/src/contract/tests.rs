//! The real fixture with the newer groups, a fixture of the embedded track, and one defect at a time.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn data(name: &str) -> Value {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/track");
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// The track's fixture as track-contract.md 12.2 has it: both documents in one.
fn real() -> Value {
    let mut fixture = data("qwen3_8_125b_a6b_track.json");
    for (key, value) in data("contract-addendum-newer-benchd.json").as_object().unwrap() {
        fixture[key] = value.clone();
    }
    fixture["platform"] = json!("cuda");
    fixture["decode_gain_ceiling"] = json!(5.0);
    fixture
}

/// The embedded track (track-contract.md 12.5).
fn tiny() -> Value {
    let golden =
        json!({ "r2_path": "correctness_prompts/story.golden.json", "sha256": "a".repeat(64), "bytes": 40_000 });
    json!({
        "schema_version": 1, "track_id": "qwen4exp-tiny-story-cpu-v1", "platform": "cpu",
        "official_scoring_enabled": true, "official_pairs": 2, "allowed_modes": ["serial", "mtp"],
        "decode_speedup_floor": 0.8, "prefill_speedup_floor": 0.8,
        "score_decode_weight": 0.75, "score_prefill_weight": 0.25,
        "scores_against_live_control_leg": true, "paired_flow_retired": true,
        "vocab_size": 4096, "num_hidden_layers": 8, "seed_tokens": 1024, "golden_model_type": "qwen4_exp_text",
        "correctness_steps": 64, "benchmark_decode_steps": 128, "local_submit_benchmark_decode_steps": 1023,
        "official_prefill_warmup_runs": 0,
        "calibration_max_cv": 0.10,
        "calibration_prefill_band_low": 0.75, "calibration_prefill_band_high": 1.33,
        "calibration_decode_band_low": 0.75, "calibration_decode_band_high": 1.33,
        "quiescence_max_load": 8.0,
        "memory_plan": { "session_bytes": 67_108_864, "headroom_bytes": 536_870_912 },
        "baseline_reference_commit": "head", "live_golden": "story", "timed_prompt_pool": [golden],
        "live_golden_speculative": { "mtp1": golden },
        "serve_configuration": { "engine": "cudafast", "ctx_tokens": 4096 },
        "mtp_head": { "permitted_draft_depths": [1, 2, 3, 4, 5, 6] },
    })
}

fn parse(fixture: &Value) -> Result<Contract, ContractError> {
    Contract::parse(&serde_json::to_vec(fixture).unwrap())
}

fn refused(fixture: &Value) -> String {
    parse(fixture).unwrap_err().to_string()
}

#[test]
fn the_real_fixture_with_the_newer_groups_is_read_whole() {
    let contract = parse(&real()).unwrap();
    contract.expect_armed().unwrap();
    contract.expect_track(&TrackId::parse("qwen3.8-125b-a6b-cuda-v1").unwrap()).unwrap();
    assert_eq!((contract.official_pairs, contract.pool.len()), (2, 8));
    assert_eq!(contract.floors, Axes { decode: 0.95, prefill: 0.95 });
    assert_eq!(contract.weights, Axes { decode: 0.75, prefill: 0.25 });
    assert_eq!(contract.decode_gain_ceiling, Some(5.0));
    assert_eq!((contract.combine, contract.decode_figure), (PairCombine::RatioOfSums, DecodeFigure::DecodeWindow));
    assert_eq!((contract.timed_tokens.budget.per_thousand(), contract.timed_tokens.near_tie_gap), (100, None));
    assert_eq!(contract.regime().unwrap(), Regime::LiveControlLeg);
    assert!(!contract.bands().unwrap().decode_down_enabled);
    assert_eq!((contract.bands().unwrap().prefill_up, contract.bands().unwrap().decode_up), (0.05, 0.02));
    let window = contract.window().unwrap();
    assert_eq!([window.correctness_steps, window.decode_steps, window.local_submit_decode_steps], [64, 128, 1023]);
    assert_eq!((window.prefill_warmup_runs, window.prefill_timed_runs), (0, 1));
    let shape = contract.shape().unwrap();
    assert_eq!((shape.vocab_size, shape.layers, shape.seed_tokens), (248_320, 48, 1024));
    assert_eq!(shape.model_type, "qwen4_exp_text");
    let demands = contract.demands(Mode::LocalIterate).unwrap();
    assert_eq!((demands.shape, demands.expected_tokens, demands.decode_tokens), (shape, 129, 128));
    assert_eq!(demands.provenance, contract.target.as_ref().map(|target| &target.provenance));
    assert_eq!(contract.demands(Mode::Official).unwrap().expected_tokens, 64);
    let limits = contract.limits;
    assert_eq!((limits.cool_gate_celsius, limits.quiescence_max_load), (Some(60.0), 2.0));
    assert_eq!((limits.prefill_window_min_ratio, limits.fresh_prompt_max_ratio), (0.7, 1.5));
    assert_eq!((limits.calibration.max_cv, limits.calibration.decode), (0.01, Range { low: 0.98, high: 1.02 }));
    let baseline = BaselineCommit::Commit("72641070cbc0e3c520f1561b542cb3b3ee1d7ad9".into());
    assert_eq!(contract.baseline, Some(baseline));
    let target = contract.target.as_ref().unwrap();
    let shards: u64 = target.files[..4].iter().map(|file| file.pin.bytes).sum();
    assert_eq!((shards, target.files[4].pin.bytes), (111_334_654_784, 2_786_568_256));
    assert_eq!((target.stop_ids.as_slice(), target.ple_table.as_deref()), (&[248_046, 248_044][..], Some("IQ4_NL")));
    let toolchain = contract.serve.toolchain.as_ref().unwrap();
    assert_eq!((toolchain.nvcc_version.as_str(), toolchain.cuda_arch.as_str()), ("V13.0.88", "sm_121"));
}

#[test]
fn every_depth_of_the_real_track_has_its_oracle_and_all_are_the_live_golden() {
    let contract = parse(&real()).unwrap();
    let live = contract.live_golden().unwrap();
    assert_eq!(live.file_name(), "botany.golden.json");
    let pin = contract.hidden_golden().unwrap();
    assert_eq!(contract.timed_golden(pin).unwrap(), live);
    for depth in 0..=6 {
        let found = contract.depth(depth).unwrap();
        assert_eq!((found.num_speculative_tokens, found.draft_tokens), (depth, depth + 1));
        assert!(found.oracle.matches(pin));
    }
    let error = contract.depth(7).unwrap_err().to_string();
    assert!(error.contains("7 is not one of mtp_head.permitted_draft_depths: 1, 2, 3, 4, 5, 6"), "{error}");
    let mut without = real();
    without["live_golden_speculative"].as_object_mut().unwrap().remove("mtp5");
    let error = parse(&without).unwrap().depth(5).unwrap_err().to_string();
    assert!(error.contains("live_golden_speculative has no `mtp5`"), "{error}");
}

#[test]
fn the_embedded_tracks_fixture_relaxes_what_a_shared_machine_cannot_hold() {
    let contract = parse(&tiny()).unwrap();
    assert_eq!(contract.track_id.platform(), Platform::Cpu);
    assert_eq!(contract.baseline, Some(BaselineCommit::Head));
    assert_eq!((contract.limits.cool_gate_celsius, contract.limits.quiescence_max_gpu_percent), (None, None));
    assert_eq!(contract.limits.quiescence_max_load, 8.0);
    assert_eq!(contract.limits.calibration.prefill, Range { low: 0.75, high: 1.33 });
    let plan = MemoryPlan { session_bytes: 64 << 20, headroom_bytes: 512 << 20 };
    assert_eq!(contract.limits.memory_plan, Some(plan));
    assert_eq!((contract.serve.ctx_tokens, contract.shape().unwrap().vocab_size), (Some(4096), 4096));
    let mut other = real();
    other["baseline_reference_commit"] = json!("head");
    assert!(refused(&other).contains("`baseline_reference_commit` is \"head\""));
    other["baseline_reference_commit"] = json!("PENDING-ORGANIZER");
    assert_eq!(parse(&other).unwrap().baseline, Some(BaselineCommit::PendingOrganizer));
}

#[test]
fn the_arm_gate_tells_false_from_absent() {
    let mut fixture = tiny();
    fixture["official_scoring_enabled"] = json!(false);
    let off = parse(&fixture).unwrap().expect_armed().unwrap_err().to_string();
    fixture.as_object_mut().unwrap().remove("official_scoring_enabled");
    let absent = parse(&fixture).unwrap().expect_armed().unwrap_err().to_string();
    assert_ne!(off, absent);
    for text in [off, absent] {
        assert!(text.contains("does not declare official_scoring_enabled: true"), "{text}");
    }
    parse(&fixture).unwrap().expect_unarmed().unwrap();
    let armed = parse(&tiny()).unwrap().expect_unarmed().unwrap_err();
    assert_eq!(armed.refusal(), Some(Refusal::OfficialScoringArmed));
    fixture["official_scoring_enabled"] = json!("true");
    assert!(refused(&fixture).contains("`official_scoring_enabled` is \"true\"; must be true or false"));
}

/// A group's keys, the refusal of a run that needs it, and how it asks.
type Group = (&'static [&'static str], Refusal, fn(&Contract) -> Result<(), ContractError>);

const GROUPS: [Group; 4] = [
    (&read::REGIME, Refusal::ScoredRegimePendingDeclaration, |contract| contract.regime().map(drop)),
    (&read::BANDS, Refusal::AcceptanceBandsUndeclaredForTrack, |contract| contract.bands().map(drop)),
    (&read::WINDOW, Refusal::WindowShapeUndeclaredForTrack, |contract| contract.window().map(drop)),
    (&read::SHAPE, Refusal::ModelIdentityUndeclaredForTrack, |contract| contract.shape().map(drop)),
];

#[test]
fn a_group_stands_whole_or_not_at_all() {
    for (keys, refusal, ask) in GROUPS {
        let mut without = real();
        for key in keys {
            let mut partial = real();
            partial.as_object_mut().unwrap().remove(*key);
            let want = format!("`{key}` is absent; must be declared, since others of its group are");
            assert!(refused(&partial).contains(&want), "{key}");
            partial[*key] = Value::Null;
            assert!(refused(&partial).contains(&format!("`{key}` is null")), "{key}: null is not absence");
            without.as_object_mut().unwrap().remove(*key);
        }
        // The file is read; the run that needs the group is refused, by name.
        let error = ask(&parse(&without).unwrap()).unwrap_err();
        assert_eq!(error.refusal(), Some(refusal));
        assert!(error.to_string().starts_with(refusal.name()), "{error}");
    }
}

#[test]
fn a_stored_pair_beside_a_control_leg_is_refused_and_neither_is_pending() {
    let mut both = real();
    both["baseline_prefill_seconds_per_token"] = json!(0.002);
    assert!(refused(&both).contains("`baseline_decode_seconds_per_token` is absent"));
    both["baseline_decode_seconds_per_token"] = json!(0.067);
    assert!(refused(&both).contains("a stored baseline pair and a live control leg"));
    both["scores_against_live_control_leg"] = json!(false);
    assert_eq!(parse(&both).unwrap().regime().unwrap(), Regime::StoredPair);
    let mut neither = real();
    neither["scores_against_live_control_leg"] = json!(false);
    let error = parse(&neither).unwrap().regime().unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::OfficialBaselinePendingCapture));
}

#[test]
fn each_defect_is_refused_at_its_key() {
    let sha = "b".repeat(64);
    for (pointer, value, want) in [
        ("/schema_version", json!(2), "`schema_version` is 2"),
        ("/schema_version", json!(1.0), "`schema_version` is 1.0"),
        ("/track_id", json!("x"), "not of the form"),
        ("/platform", json!("cpu"), "`platform` is `cpu` and `track_id`"),
        ("/platform", json!("rocm"), "one of `mlx`, `cuda`, `cpu`"),
        ("/kv_backend", json!("paged"), "`contiguous`"),
        ("/scored_batch_size", json!(2), "`scored_batch_size` is 2"),
        ("/allowed_modes", json!([]), "`allowed_modes` is a list of 0"),
        ("/allowed_modes", json!(["serial", "dflash"]), "`allowed_modes`"),
        ("/allowed_modes", json!(["serial", "serial"]), "`allowed_modes`"),
        ("/official_pairs", json!(0), "`official_pairs` is 0"),
        ("/official_pairs", json!(2.0), "`official_pairs` is 2.0"),
        ("/decode_speedup_floor", json!(0), "`decode_speedup_floor` is 0"),
        ("/prefill_speedup_floor", json!("0.95"), "`prefill_speedup_floor` is"),
        ("/score_decode_weight", json!(0.5), "score weights and `scored_exponents` differ"),
        ("/scored_exponents/decode_gain_exponent", json!(-1), "`scored_exponents.decode_gain_exponent` is -1"),
        ("/decode_gain_ceiling", json!(0), "`decode_gain_ceiling` is 0"),
        ("/official_pair_combine", json!("median"), "`official_pair_combine`"),
        ("/decode_figure", json!("run"), "`decode_figure`"),
        ("/timed_token_tolerance_per_thousand", json!(1001), "an integer 0..=1000"),
        ("/timed_token_near_tie_relative_gap", json!(0.1), "`timed_token_tolerance_per_thousand` is absent"),
        ("/timed_prompt_pool/3/sha256", json!("B".repeat(64)), "`timed_prompt_pool[3].sha256`"),
        ("/timed_prompt_pool/3/bytes", json!(0), "`timed_prompt_pool[3].bytes` is 0"),
        ("/timed_prompt_pool/3/r2_path", json!("a/"), "`timed_prompt_pool[3].r2_path`"),
        ("/timed_prompt_pool/3/r2_path", real()["timed_prompt_pool"][0]["r2_path"].clone(), "twice"),
        ("/live_golden", json!("rose"), "has 0 entries named `rose.golden.json`"),
        ("/hidden_correctness_golden", Value::Null, "`hidden_correctness_golden` is null"),
        ("/hidden_correctness_golden", json!({}), "`hidden_correctness_golden.bytes` is absent"),
        ("/hidden_correctness_golden/sha256", json!(sha), "is not the live golden"),
        ("/live_golden_speculative/mtp03", json!({}), "`live_golden_speculative.mtp03`"),
        ("/live_golden_speculative/mtp3", json!(1), "`live_golden_speculative.mtp3` is 1"),
        ("/mtp_head/permitted_draft_depths", json!([0]), "a list of positive integers"),
        ("/mtp_head/permitted_draft_depths", json!([2, 2]), "lists 2 twice"),
        ("/baseline_reference_commit", json!("7264"), "`baseline_reference_commit`"),
        ("/serve_configuration/engine_env", json!({ "A": 1 }), "`serve_configuration.engine_env.A` is 1"),
        ("/serve_configuration/toolchain/driver_min", json!("580.x"), "numbers between dots"),
        ("/serve_configuration/depths/mtp2/num_speculative_tokens", json!(3), "the number in its key"),
        ("/serve_configuration/depths/mtp2/ds4_mtp_draft_tokens", json!(2), "one more than"),
        (
            "/serve_configuration/depths/mtp2/timed_oracle",
            json!("live_golden_speculative.mtp9"),
            "of a golden that is there",
        ),
        ("/target/upstream_revision", json!("main"), "`target.upstream_revision`"),
        ("/target/files/1/path", real()["target"]["files"][0]["path"].clone(), "target.files lists"),
        ("/target/vocab_size", json!(4096), "`target.vocab_size` is not the model shape's"),
        ("/calibration_decode_band_low", json!(0.9), "`calibration_prefill_band_low` is absent"),
        ("/calibration_max_cv", json!(0), "`calibration_max_cv` is 0"),
        ("/fresh_prompt_max_ratio", json!(0.5), "`fresh_prompt_max_ratio` is 0.5"),
        ("/memory_plan", json!({ "session_bytes": 1 }), "`memory_plan.headroom_bytes` is absent"),
    ] {
        let mut fixture = real();
        let (folder, key) = pointer.rsplit_once('/').unwrap();
        match fixture.pointer_mut(folder).unwrap() {
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
            object => object[key] = value,
        }
        let text = refused(&fixture);
        assert!(text.contains(want), "{pointer}: {text}");
    }
    for key in ["schema_version", "track_id", "official_pairs", "decode_speedup_floor", "allowed_modes"] {
        let mut fixture = real();
        fixture.as_object_mut().unwrap().remove(key);
        assert!(refused(&fixture).contains(&format!("`{key}` is absent")), "{key} has no default");
    }
    let mut target = real();
    target["target"] = json!({});
    assert!(refused(&target).contains("`target.upstream_model_id` is absent"));
    assert!(matches!(Contract::parse(br#"{"a":1,"a":1}"#), Err(ContractError::Json(_))));
    assert!(matches!(Contract::parse(b"[]"), Err(ContractError::NotAnObject)));
}

#[test]
fn a_run_that_the_contract_does_not_cover_is_refused() {
    let contract = parse(&tiny()).unwrap();
    contract.expect_goldens(1).unwrap();
    contract.expect_goldens(2).unwrap();
    assert!(matches!(contract.expect_goldens(3), Err(ContractError::Pairs { pairs: 2, goldens: 3 })));
    assert!(contract.expect_goldens(0).is_err());
    let mode = contract.expect_mode(SpecMode::Dspark).unwrap_err().to_string();
    assert!(mode.contains("mode `dspark` is not one of allowed_modes: serial, mtp"), "{mode}");
    let other = contract.expect_track(&TrackId::parse("x-cpu-v1").unwrap()).unwrap_err().to_string();
    assert!(other.contains("the run's track is `x-cpu-v1`"), "{other}");
    let unknown = contract.timed_golden(ContentPin::of(b"")).unwrap_err();
    assert!(matches!(unknown, ContractError::NotInPool { found: 0, .. }));
    // Two entries with one digest: which prompt was timed could not be said.
    let mut twice = tiny();
    let mut copy = twice["timed_prompt_pool"][0].clone();
    copy["r2_path"] = json!("other.golden.json");
    twice["timed_prompt_pool"].as_array_mut().unwrap().push(copy);
    let pin = ContentPin { bytes: 40_000, sha256: "a".repeat(64).parse().unwrap() };
    assert!(matches!(parse(&twice).unwrap().timed_golden(pin), Err(ContractError::NotInPool { found: 2, .. })));
    assert_eq!(contract.timed_golden(pin).unwrap().file_name(), "story.golden.json");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn keys_that_are_not_ours_change_nothing_but_the_pin(key in "x_[a-z]{1,8}", number in any::<i64>()) {
        let mut fixture = tiny();
        let plain = parse(&fixture).unwrap();
        fixture[&key] = json!({ "deep": [number] });
        let mut read = parse(&fixture).unwrap();
        prop_assert_ne!(read.pin, plain.pin);
        read.pin = plain.pin;
        prop_assert_eq!(read, plain);
    }

    #[test]
    fn any_value_at_any_key_is_read_or_refused_in_one_line(
        key in prop::sample::select(tiny().as_object().unwrap().keys().cloned().collect::<Vec<_>>()),
        value in prop::sample::select(vec![
            Value::Null, json!(-1), json!(0), json!(1), json!(1.5), json!(u64::MAX), json!(""), json!("x"), json!(true),
            json!([]), json!([1]), json!([{}]), json!({}), json!({ "mtp1": {} }),
        ]),
    ) {
        let mut fixture = tiny();
        fixture[&key] = value;
        if let Err(error) = parse(&fixture) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
