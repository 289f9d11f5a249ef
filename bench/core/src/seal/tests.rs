use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::calibration::Subject;
use crate::contract::{Calibration, Range};
use crate::fidelity::Mismatches;

fn axes(prefill: f64, decode: f64) -> Axes {
    Axes { decode, prefill }
}

fn rule() -> Rule {
    Rule {
        combine: PairCombine::RatioOfSums,
        weights: axes(0.25, 0.75),
        floors: axes(0.95, 0.95),
        decode_ceiling: Some(5.0),
        bands: Bands {
            prefill_up: 0.05,
            prefill_down: 0.05,
            prefill_down_enabled: false,
            decode_up: 0.02,
            decode_down: 0.02,
            decode_down_enabled: false,
        },
    }
}

fn calibration() -> BoxCalibration {
    let subject = Subject {
        track_id: "x-cpu-v1".into(),
        box_name: "box-1".into(),
        reference_commit: "a".repeat(40),
        prompt: "stories".into(),
        captured_at: "2026-09-08T00:00:00Z".into(),
        benchd_source_commit: "b".repeat(40),
    };
    let range = Range { low: 0.9, high: 1.1 };
    let track = Calibration { max_cv: 0.01, prefill: range, decode: range };
    BoxCalibration::of_passes(subject, &[axes(0.0023, 0.0675); 2], &track).unwrap()
}

fn records(mismatches: usize) -> [PairRecord; 2] {
    let record = |control, candidate| PairRecord {
        pair: Pair { control, candidate },
        divergence: Divergence {
            mismatches: Mismatches { count: mismatches, first: (mismatches > 0).then_some(4) },
            ..Divergence::default()
        },
    };
    [record(axes(0.0023, 0.068), axes(0.0023, 0.045)), record(axes(0.00232, 0.067), axes(0.00229, 0.044))]
}

fn seal(records: &[PairRecord]) -> Seal {
    let rule = rule();
    let pairs: Vec<Pair> = records.iter().map(|record| record.pair).collect();
    let score = crate::score::aggregate(&pairs, rule.combine, rule.weights).unwrap();
    let calibration = calibration();
    let scored = Scored {
        rule: &rule,
        decode_figure: DecodeFigure::DecodeWindow,
        score: &score,
        legs: records,
        calibration: &calibration,
        max_cv: 0.01,
        tolerance_per_thousand: 100,
        stream_tokens: 129,
    };
    let metrics = json!({
        "passed_correctness": true,
        "commit": "c".repeat(40),
        "golden_hash": "d".repeat(64),
        "contract_sha256": sha256(b"contract").to_string(),
        "harness_hash": sha256(b"harness").to_string(),
        "weights_hash": sha256(b"weights").to_string(),
        "timestamp": "2026-09-08T00:00:00Z",
        "benchmark_wall_seconds": 12.34,
        "timed_benchmark_seconds": 12.34,
        "peak_ram_gb": 18.55,
    });
    Seal::new(&scored, metrics.as_object().unwrap().clone()).unwrap()
}

fn artifact() -> Vec<u8> {
    seal(&records(3)).to_bytes().unwrap()
}

/// The artifact with one change, sealed anew: what only an honest reader can see.
fn resealed(change: impl FnOnce(&mut Seal)) -> Vec<u8> {
    let mut seal = seal(&records(3));
    change(&mut seal);
    seal.to_bytes().unwrap()
}

#[test]
fn a_seal_is_verified_from_its_bytes_alone_and_written_again_the_same() {
    let bytes = artifact();
    let seal = Seal::verify(&bytes).unwrap();
    assert!((seal.score.unwrap() - 1.369036868322).abs() < 1e-12);
    assert_eq!(seal.to_bytes().unwrap(), bytes);
    assert_ne!(bytes.last(), Some(&b'\n'));
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    for key in always_present().keys() {
        assert!(value["metrics"].get(key).is_some(), "{key}");
    }
    let text = String::from_utf8(bytes).unwrap();
    let order: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    \"")?.split('"').next()).collect();
    assert!(order.is_sorted(), "{order:?}");
    // Diagnostics have two figures and the wall is no shorter than what was timed; what is ranked has all of them.
    assert_eq!(
        (&value["metrics"]["peak_ram_gb"], &value["metrics"]["benchmark_wall_seconds"]),
        (&json!(19.0), &json!(12.0))
    );
    assert_eq!(value["metrics"]["baseline_leg_decode_seconds_per_token"], json!(0.0675));
}

#[test]
fn another_spelling_of_the_same_values_is_not_the_sealed_file() {
    let bytes = artifact();
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    let newline = [&bytes[..], b"\n"].concat();
    for other in [value.to_string().into_bytes(), newline, b"[]".to_vec(), b"{}".to_vec(), Vec::new()] {
        let error = Seal::verify(&other).unwrap_err().to_string();
        assert!(error.starts_with("SEAL-TAMPERED: "), "{error}");
    }
}

type Change = Box<dyn FnOnce(&mut Seal)>;

#[test]
fn figures_that_do_not_follow_from_the_pairs_are_found_though_the_digest_is_right() {
    let metric = |key: &'static str, value: Value| move |seal: &mut Seal| drop(seal.metrics.insert(key.into(), value));
    let pair = |key: &'static str, value: Value| move |seal: &mut Seal| seal.metrics["paired_legs"][1][key] = value;
    let changes: Vec<(&str, Change)> = vec![
        ("`score` is 2", Box::new(|seal| seal.score = Some(2.0))),
        ("no score", Box::new(|seal| seal.score = None)),
        ("did not pass", Box::new(|seal| seal.passed = false)),
        ("did not pass", Box::new(metric("error", json!("x")))),
        ("`decode_speedup`", Box::new(metric("decode_speedup", json!(1.6)))),
        ("`baseline_prefill_seconds_per_token`", Box::new(metric("baseline_prefill_seconds_per_token", json!(1)))),
        ("`passed_correctness` is false", Box::new(metric("passed_correctness", json!(false)))),
        ("`partial_result` is true", Box::new(metric("partial_result", json!(true)))),
        ("`official_pair_combine`", Box::new(metric("official_pair_combine", json!("best")))),
        ("performance floor failed", Box::new(metric("decode_speedup_floor", json!(1.6)))),
        ("DECODE-GAIN-ABOVE-CEILING", Box::new(metric("decode_gain_ceiling", json!(1.5)))),
        ("`paired_legs[1].token_mismatch_count` is 13", Box::new(pair("token_mismatch_count", json!(13)))),
        ("`paired_legs[1].pair` is 7", Box::new(pair("pair", json!(7)))),
        (
            "SERIAL-CONTROL-LEG-OUTSIDE-BAND",
            Box::new(|seal: &mut Seal| {
                let mut far = records(0);
                // The sums stay, so the score does.
                far[0].pair.control.decode += 0.02;
                far[1].pair.control.decode -= 0.02;
                seal.metrics.insert("paired_legs".into(), json!([pair_value(1, &far[0]), pair_value(2, &far[1])]));
            }),
        ),
        ("`baseline_box`", Box::new(metric("baseline_box", json!("box-2")))),
        ("BASELINE-CALIBRATION-INVALID", Box::new(metric("baseline_calibration", json!({})))),
        ("`metrics.paired_legs`", Box::new(|seal: &mut Seal| drop(seal.metrics.remove("paired_legs")))),
    ];
    for (want, change) in changes {
        let error = Seal::verify(&resealed(change)).unwrap_err().to_string();
        assert!(error.starts_with("SEAL-TAMPERED: "), "{want}: {error}");
        let want = want.replace("metrics.", "");
        assert!(error.contains(&want), "{want}: {error}");
    }
}

#[test]
fn only_measurements_may_differ_between_two_runs_of_one_candidate() {
    let first = seal(&records(3));
    let mut second = first.clone();
    second.score = Some(1.1);
    for key in
        ["timestamp", "decode_seconds_per_token", "decode_speedup", "engine_backend", "resident_pid", "peak_ram_gb"]
    {
        second.metrics.insert(key.into(), json!("another"));
    }
    second.metrics["paired_legs"][0]["control_decode_seconds_per_token"] = json!(9.0);
    assert_eq!(first.differences(&second), [""; 0]);
    second.metrics.insert("golden_hash".into(), json!("e".repeat(64)));
    second.metrics["paired_legs"][1]["token_mismatch_count"] = json!(0);
    second.metrics.insert("decode_speedup_floor".into(), json!(0.5));
    second.passed = false;
    assert_eq!(first.differences(&second), ["decode_speedup_floor", "golden_hash", "paired_legs", "passed"]);
}

#[test]
fn an_integrity_record_is_of_one_artifact() {
    let bytes = artifact();
    let pin = ContentPin { bytes: 1, sha256: "d".repeat(64).parse().unwrap() };
    let of = Integrity {
        artifact: &bytes,
        commit: &"c".repeat(40),
        golden_path: "[private]",
        golden: pin,
        contract: ContentPin::of(b"contract"),
        harness: sha256(b"harness"),
        weights: sha256(b"weights"),
        engine: sha256(b"engine"),
        benchd: sha256(b"benchd"),
        sandbox: "none (linux)",
    };
    let record = integrity(&of).unwrap();
    verify_integrity(&record, &bytes).unwrap();
    let refused = |record: &[u8], artifact: &[u8]| verify_integrity(record, artifact).unwrap_err().to_string();
    assert!(refused(&record, &resealed(|seal| seal.score = Some(2.0))).contains("another artifact"));
    let other = integrity(&Integrity { commit: "another", ..of }).unwrap();
    assert!(refused(&other, &bytes).contains("another `commit`"));
    assert!(refused(b"{", &bytes).starts_with("SEAL-TAMPERED"));
    assert_eq!(sidecar(&bytes).len(), 65);
}

#[test]
fn diagnostics_have_two_figures() {
    assert_eq!([0.0, 1.0, 18.55, 0.012_345, 987.0].map(rounded), [0.0, 1.0, 19.0, 0.012, 990.0]);
}

proptest! {
    #[test]
    fn no_byte_of_a_seal_can_be_another(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = artifact();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        prop_assert!(Seal::verify(&bytes).is_err());
    }
}
