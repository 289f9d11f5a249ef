use std::fs;

use serde_json::{Value, json};

use crate::fixture::{Bench, CONTRACT, ENGINE, GOLDEN, code, json, root, said};

#[test]
fn a_local_iteration_boots_the_resident_passes_the_gates_and_gives_no_score() {
    let bench = Bench::new();
    let score = bench.result("score.json");
    let line = ["benchmark", "--local-iterate", "--track", "tiny", "--no-build", "--engine", ENGINE, "--result"];
    let output = bench.run(&[&line[..], &[score.to_str().unwrap()]].concat());
    assert_eq!(code(&output), 0, "{}", said(&output));
    let found = json(&output);
    assert_eq!((&found["score"], &found["passed"]), (&Value::Null, &json!(true)));
    let metrics = &found["metrics"];
    for key in ["prefill_seconds_per_token", "decode_seconds_per_token", "spec_acceptance_rate"] {
        assert!(metrics[key].as_f64().unwrap() > 0.0, "{key}");
    }
    for (key, want) in [
        ("passed_correctness", json!(true)),
        ("checked_steps", json!(64)),
        ("effective_spec_mode", json!("mtp")),
        ("effective_spec_depth", json!(3)),
        ("token_mismatch_count", json!(0)),
        ("expected_token", Value::Null),
        ("baseline_source", json!("none (local mode: unscored)")),
        ("runtime", json!("rust-local-iterate")),
    ] {
        assert_eq!(metrics[key], want, "{key}");
    }
    assert!(metrics["engine_backend"].as_str().unwrap().starts_with("cudafast-resident load_epoch="));
    let told = said(&output);
    assert!(told.starts_with("benchd: track tiny: as asked\n"), "{told}");
    for word in ["prefill ", "decode ", "acceptance ", "trained on windows of 512", "score: null"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    // The file is what was printed, without the line's end, and the digest beside it is its own.
    let text = fs::read_to_string(&score).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{text}\n"));
    let sidecar = fs::read_to_string(bench.result("score.json.sha256")).unwrap();
    assert_eq!(sidecar.trim(), bench_core::sha256(text.as_bytes()).to_string());
}

#[test]
fn serial_and_every_depth_run_the_timed_oracle_exactly() {
    let bench = Bench::new();
    for depth in 0..=6 {
        let text = depth.to_string();
        let more: &[&str] = if depth == 0 { &[] } else { &["--mtp-depth", &text] };
        let output = bench.iterate(&[&["--golden", GOLDEN][..], more].concat()).output().unwrap();
        assert_eq!(code(&output), 0, "{}", said(&output));
        let metrics = &json(&output)["metrics"];
        assert_eq!((&metrics["effective_spec_depth"], &metrics["token_mismatch_count"]), (&json!(depth), &json!(0)));
        let rounds = metrics["spec_rounds"].as_u64().unwrap();
        if depth == 0 {
            assert_eq!((rounds, metrics.get("spec_acceptance_rate")), (128, None));
        } else {
            assert!(rounds < 128 && metrics["spec_drafted_total"].as_u64().unwrap() >= rounds);
        }
    }
}

/// The serial golden with its first `wrong` expected tokens of the case, from the second on, being others.
fn golden_with_wrong_steps(bench: &Bench, wrong: usize) -> String {
    let mut document: Value = serde_json::from_slice(&fs::read(root().join(GOLDEN)).unwrap()).unwrap();
    for token in document["cases"][0]["expected_tokens"].as_array_mut().unwrap().iter_mut().skip(1).take(wrong) {
        *token = json!(4095 - token.as_i64().unwrap());
    }
    let path = bench.result("wrong.golden.json");
    fs::write(&path, document.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_engine_that_leaves_the_golden_too_often_fails_with_the_case_and_no_token() {
    let bench = Bench::new();
    let golden = golden_with_wrong_steps(&bench, 10);
    let output = bench.iterate(&["--golden", &golden]).output().unwrap();
    assert_eq!(code(&output), 1);
    let found = json(&output);
    assert_eq!((&found["score"], &found["passed"]), (&Value::Null, &json!(false)));
    let metrics = &found["metrics"];
    assert_eq!(metrics["error"], json!("teacher-forced token mismatch"));
    assert_eq!((&metrics["first_failing_case"], &metrics["expected_token"]), (&json!("stories"), &Value::Null));
    assert!(metrics["decode_seconds_per_token"].as_f64().unwrap() > 0.0);
    assert!(said(&output).contains("REFUSING -- the run did not pass: teacher-forced token mismatch"));

    let line = ["correctness", "--engine", ENGINE, "--weights", "models/tiny", "--contract", CONTRACT, "--golden"];
    let output = bench.run(&[&line[..], &[&golden]].concat());
    let found = json(&output);
    assert_eq!((code(&output), &found["passed"], &found["first_failing_case"]), (1, &json!(false), &json!("stories")));
    let output = bench.run(&[&line[..], &[GOLDEN]].concat());
    let want =
        json!({"passed": true, "case_count": 1, "first_failing_case": null, "first_failing_step": null, "error": null});
    assert_eq!((code(&output), json(&output)), (0, want));
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is_started() {
    let bench = Bench::new();
    let benchmark = ["benchmark", "--no-build", "--track", "tiny", "--engine", ENGINE];
    let with = |more: &[&str]| bench.run(&[&benchmark[..], more].concat());
    for (more, want) in [
        (&["--official"][..], "official scoring is not part of this build"),
        (&["--local-iterate", "--local-submit"], "cannot be used with"),
        (&["--weights", "x"], "unexpected argument"),
        (&["--golden", "x"], "unexpected argument"),
        (&["--score-path", "x"], "unexpected argument"),
        (&["--track-id", "qwen3.8-125b-a6b-cuda-v1"], "the run's track is `qwen3.8-125b-a6b-cuda-v1`"),
    ] {
        let output = with(more);
        // A script of the contract's face knows no exit code 2.
        assert_eq!(code(&output), 1, "{more:?}: {}", said(&output));
        assert!(said(&output).contains(want), "{more:?}: {}", said(&output));
    }
    let line = ["iterate", "--weights", "models/tiny", "--contract", CONTRACT, "--golden", GOLDEN];
    for (more, exit, want) in [
        (&["--engine", "no-such-engine"][..], 1, "no-such-engine: is not there"),
        (&["--engine", ENGINE, "--mode", "official"], 1, "official scoring is not part of this build"),
        (&["--engine", ENGINE, "--mtp-depth", "7"], 1, "7"),
        (&["--engine", ENGINE, "--mtp-depth", "33"], 2, "33"),
        (&["--engine", ENGINE, "--engine-resource", "a=x", "--engine-resource", "a=y"], 2, "`a` is given twice"),
        (&["--engine", ENGINE, "--engine-resource", "a/b=x"], 2, "NAME=PATH"),
        (&["--engine", ENGINE, "--commit", "HEAD"], 2, "is not 7 to 40"),
        (&["--engine", ENGINE, "--golden-sha256", &"0".repeat(64), "--golden-bytes", "51534"], 1, "sha256 mismatch"),
    ] {
        let output = bench.run(&[&line[..], more].concat());
        assert_eq!(code(&output), exit, "{more:?}: {}", said(&output));
        assert!(said(&output).contains(want), "{more:?}: {}", said(&output));
    }
}
