use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn track() -> Calibration {
    Calibration { max_cv: 0.01, prefill: Range { low: 0.95, high: 1.05 }, decode: Range { low: 0.98, high: 1.02 } }
}

fn subject() -> Subject {
    Subject {
        track_id: "x-cpu-v1".into(),
        box_name: "box-1".into(),
        reference_commit: "a".repeat(40),
        prompt: "stories".into(),
        captured_at: "2026-09-08T00:00:00Z".into(),
        benchd_source_commit: "b".repeat(40),
    }
}

fn axes(prefill: f64, decode: f64) -> Axes {
    Axes { decode, prefill }
}

fn calibration() -> BoxCalibration {
    let passes = [axes(1.0, 10.0), axes(1.01, 10.0), axes(0.99, 10.1), axes(1.0, 9.9)];
    BoxCalibration::of_passes(subject(), &passes, &track()).unwrap()
}

#[test]
fn passes_become_means_and_spreads_and_the_file_reads_back() {
    let found = calibration();
    assert_eq!(found.means(), axes(1.0, 10.0));
    assert!((found.prefill_cv - (0.0002_f64 / 3.0).sqrt()).abs() < 1e-12, "{}", found.prefill_cv);
    let bytes = found.to_bytes().unwrap();
    assert!(bytes.ends_with(b"}\n"));
    assert_eq!(BoxCalibration::parse(&bytes, 0.01).unwrap(), found);
    let shipped = include_bytes!("../../../../fixtures/baseline-calibration.example.json");
    BoxCalibration::parse(shipped, 0.01).unwrap();
}

#[test]
fn passes_too_far_apart_too_few_or_no_times_are_refused() {
    let refused = |passes: &[Axes]| BoxCalibration::of_passes(subject(), passes, &track()).unwrap_err();
    let spread = refused(&[axes(1.0, 1.0), axes(1.0, 1.05)]);
    assert_eq!(spread.refusal(), Refusal::CalibrationCvExceeded);
    assert!(
        spread.to_string().starts_with("CALIBRATION-CV-EXCEEDED: decode varies by 0.0345 over 2 passes"),
        "{spread}"
    );
    assert!(refused(&[axes(1.0, 1.0)]).to_string().contains("`passes` is 1"));
    assert!(refused(&[]).to_string().contains("`passes` is 0"));
    for bad in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        let error = refused(&[axes(1.0, 1.0), axes(1.0, bad)]);
        assert_eq!(error.refusal(), Refusal::BaselineCalibrationInvalid, "{bad}");
    }
}

#[test]
fn each_defect_of_a_file_is_refused_at_its_key() {
    let good: Value = serde_json::from_slice(&calibration().to_bytes().unwrap()).unwrap();
    let refused = |value: &Value| BoxCalibration::parse(value.to_string().as_bytes(), 0.01).unwrap_err();
    for key in good.as_object().unwrap().keys() {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(key);
        assert_eq!(refused(&without).refusal(), Refusal::BaselineCalibrationInvalid, "{key} is required");
        let mut null = good.clone();
        null[key] = Value::Null;
        refused(&null);
    }
    for (key, value) in [
        ("version", json!(2)),
        ("box", json!(" ")),
        ("track_id", json!("a\nb")),
        ("reference_commit", json!("A".repeat(40))),
        ("benchd_source_commit", json!("abc")),
        ("passes", json!(1)),
        ("prefill_seconds_per_token_mean", json!(0)),
        ("decode_seconds_per_token_mean", json!(-1.0)),
        ("prefill_cv", json!(-0.001)),
        ("prefill_band_low", json!(1.01)),
        ("decode_band_high", json!(0.99)),
        ("decode_band_low", json!(0)),
        ("captured_at", json!("yesterday")),
        ("captured_at", json!("2026-09-08T00:00:00+02:00")),
        ("unknown", json!(1)),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        let error = refused(&bad);
        assert_eq!(error.refusal(), Refusal::BaselineCalibrationInvalid, "{key}: {error}");
        if key != "unknown" {
            assert!(error.to_string().contains(&format!("`{key}` is ")), "{error}");
        }
    }
    let mut wide = good;
    wide["decode_cv"] = json!(0.011);
    assert_eq!(refused(&wide).refusal(), Refusal::CalibrationCvExceeded);
}

#[test]
fn another_track_box_prompt_or_tree_is_refused_by_its_name() {
    let found = calibration();
    let commit = "a".repeat(40);
    found.expect("x-cpu-v1", "box-1", "stories", &commit).unwrap();
    for (arguments, name) in [
        (["y-cpu-v1", "box-2", "stories", &commit], "BASELINE-CALIBRATION-TRACK-MISMATCH"),
        (["x-cpu-v1", "box-2", "botany", &commit], "BASELINE-CALIBRATION-BOX-MISMATCH"),
        (["x-cpu-v1", "box-1", "botany", &commit], "BASELINE-CALIBRATION-PROMPT-MISMATCH"),
        (["x-cpu-v1", "box-1", "stories", "c"], "BASELINE-CALIBRATION-COMMIT-MISMATCH"),
    ] {
        let [track, box_name, prompt, commit] = arguments;
        let error = found.expect(track, box_name, prompt, commit).unwrap_err().to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn what_no_owner_would_sign_is_refused() {
    let (now, committed): (Timestamp, Timestamp) =
        ("2026-09-08T00:00:00Z".parse().unwrap(), "2026-09-07T23:59:59Z".parse().unwrap());
    let plain = calibration();
    plain.expect_plausible(now, committed).unwrap();
    let refused = |change: fn(&mut BoxCalibration)| {
        let mut changed = plain.clone();
        change(&mut changed);
        changed.expect_plausible(now, committed).unwrap_err().to_string()
    };
    assert!(refused(|file| file.prefill_seconds_per_token_mean = 60.0).contains("below 60 s"));
    assert!(refused(|file| file.decode_band_low = 0.5).contains("`decode_band_low`"));
    assert!(refused(|file| file.prefill_band_high = 2.0).contains("`prefill_band_high`"));
    assert!(refused(|file| file.captured_at = "2026-09-08T00:05:01Z".into()).contains("300 s"));
    assert!(refused(|file| file.captured_at = "2026-09-07T00:00:00Z".into()).contains("not before"));
    let mut edge = plain.clone();
    edge.captured_at = "2026-09-08T00:05:00Z".into();
    edge.expect_plausible(now, committed).unwrap();
}

#[test]
fn a_control_leg_outside_the_band_is_refused_on_either_side_and_no_time_is_outside() {
    let found = calibration();
    found.expect_in_band(axes(1.05, 10.2)).unwrap();
    found.expect_in_band(axes(0.95, 9.8)).unwrap();
    for (leg, axis) in [
        (axes(1.06, 10.0), "prefill"),
        (axes(0.94, 10.0), "prefill"),
        (axes(1.0, 10.21), "decode"),
        (axes(1.0, 9.79), "decode"),
        (axes(f64::NAN, 10.0), "prefill"),
        (axes(1.0, 0.0), "decode"),
        (axes(1.0, f64::INFINITY), "decode"),
    ] {
        let error = found.expect_in_band(leg).unwrap_err();
        assert_eq!(error.refusal(), Refusal::SerialControlLegOutsideBand);
        assert!(error.to_string().starts_with(&format!("SERIAL-CONTROL-LEG-OUTSIDE-BAND: {axis} took")), "{error}");
    }
}

proptest! {
    #[test]
    fn a_leg_is_in_band_exactly_between_its_limits(prefill in 0.9_f64..1.1, decode in 9.0_f64..11.0) {
        let inside = (0.95..=1.05).contains(&prefill) && (9.8..=10.2).contains(&decode);
        prop_assert_eq!(calibration().expect_in_band(axes(prefill, decode)).is_ok(), inside);
    }

    #[test]
    fn passes_in_another_order_are_the_same_calibration(
        (before, after) in prop::collection::vec((0.995_f64..1.005, 0.995_f64..1.005), 2..6)
            .prop_flat_map(|passes| (Just(passes.clone()), Just(passes).prop_shuffle())),
    ) {
        let of = |passes: &[(f64, f64)]| {
            let passes: Vec<Axes> = passes.iter().map(|(prefill, decode)| axes(*prefill, *decode)).collect();
            BoxCalibration::of_passes(subject(), &passes, &track()).unwrap()
        };
        prop_assert_eq!(of(&before), of(&after));
    }

    #[test]
    fn any_bytes_are_a_calibration_or_a_refusal_in_one_line(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let error = BoxCalibration::parse(&bytes, 0.01).unwrap_err();
        prop_assert!(!error.to_string().contains('\n'));
    }
}
