use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Bench, CONTRACT, ENGINE, GOLDEN, code, json, root, said};

const ENGINE_LINE: [&str; 6] = ["--engine", ENGINE, "--weights", "models/tiny", "--contract", CONTRACT];
const PROMPT: [&str; 4] = ["--prompt-tokens", "correctness_prompts/stories.ids", "--case-name", "stories"];

#[test]
fn recording_again_gives_the_public_golden_and_all_its_oracles_byte_for_byte() {
    let bench = Bench::new();
    let rest = ["--benchmark-free-run", "--depths", "1,2,3,4,5,6", "--out", GOLDEN, "--compare"];
    let output = bench.run(&[&["record-golden"][..], &ENGINE_LINE, &PROMPT, &rest].concat());
    assert_eq!(code(&output), 0, "{}", said(&output));
    // The pins it prints are those of the fixture.
    let fixture: Value = serde_json::from_slice(&fs::read(root().join(CONTRACT)).unwrap()).unwrap();
    for key in ["timed_prompt_pool", "live_golden_speculative"] {
        assert_eq!(json(&output)[key], fixture[key], "{key}");
    }
}

#[test]
fn another_recording_than_the_file_is_told_by_its_first_byte() {
    let bench = Bench::new();
    let copy = bench.result("stories.golden.json");
    let text = fs::read_to_string(root().join(GOLDEN)).unwrap();
    fs::write(&copy, text.replacen("\"name\": \"stories\"", "\"name\": \"storiez\"", 1)).unwrap();
    let rest = ["--steps", "64", "--out", copy.to_str().unwrap(), "--compare"];
    let output = bench.run(&[&["record-golden"][..], &ENGINE_LINE, &PROMPT, &rest].concat());
    assert_eq!(code(&output), 1);
    assert!(said(&output).contains("is not what was recorded just now, first at byte "), "{}", said(&output));
}

#[test]
fn goldens_are_authored_on_an_unarmed_track_and_a_clean_engine_alone() {
    let bench = Bench::new();
    let out = bench.result("new.golden.json");
    let rest = ["--steps", "64", "--out", out.to_str().unwrap()];
    let output = bench.run(&[&["record-golden"][..], &ENGINE_LINE, &PROMPT, &rest].concat());
    assert_eq!(code(&output), 1);
    assert!(said(&output).contains("REFUSING -- official-scoring-armed: "), "{}", said(&output));

    // A checkout of its own, with the engine's folder in it.
    let tree = tempfile::tempdir().unwrap();
    let git =
        |args: &[&str]| assert!(Command::new("git").args(args).current_dir(tree.path()).status().unwrap().success());
    git(&["init", "--quiet"]);
    let unarmed = fs::read_to_string(root().join(CONTRACT)).unwrap();
    let unarmed = unarmed.replace("\"official_scoring_enabled\": true", "\"official_scoring_enabled\": false");
    let contract = bench.result("unarmed.json");
    fs::write(&contract, unarmed).unwrap();
    fs::create_dir(tree.path().join("engine")).unwrap();
    fs::write(tree.path().join("engine/changed.rs"), "").unwrap();
    let (weights, prompt) = (root().join("models/tiny"), root().join(PROMPT[1]));
    let record = || {
        let mut command =
            bench.command(&["record-golden", "--engine", ENGINE, "--case-name", "stories", "--steps", "64"]);
        command.current_dir(tree.path()).arg("--weights").arg(&weights).arg("--contract").arg(&contract);
        command.arg("--prompt-tokens").arg(&prompt).arg("--out").arg(&out).output().unwrap()
    };
    let output = record();
    assert_eq!(code(&output), 1);
    assert!(said(&output).contains("REFUSING -- engine-pin-mismatch: ?? engine/"), "{}", said(&output));
    assert!(!out.exists());
    fs::remove_file(tree.path().join("engine/changed.rs")).unwrap();
    assert_eq!(code(&record()), 0);
    let first = fs::read(&out).unwrap();
    assert_eq!(code(&record()), 0);
    assert_eq!(fs::read(&out).unwrap(), first);
    // What it records is the beginning of the public golden's case.
    let (new, public): (Value, Value) = (
        serde_json::from_slice(&first).unwrap(),
        serde_json::from_slice(&fs::read(root().join(GOLDEN)).unwrap()).unwrap(),
    );
    let expected = |golden: &Value| golden["cases"][0]["expected_tokens"].as_array().unwrap()[..64].to_vec();
    assert_eq!(expected(&new), expected(&public));
    assert_eq!(new["model_provenance"], public["model_provenance"]);
}

#[test]
fn prompts_without_a_name_or_with_one_twice_are_no_command_line() {
    let bench = Bench::new();
    for (names, want) in
        [(&["--case-name", "a"][..], "1 names for 2"), (&["--case-name", "a", "--case-name", "a"], "given twice")]
    {
        let prompts = ["--prompt-tokens", PROMPT[1], "--prompt-tokens", PROMPT[1], "--out", "nowhere"];
        let output = bench.run(&[&["record-golden"][..], &ENGINE_LINE, &prompts, names].concat());
        assert_eq!(code(&output), 2);
        assert!(said(&output).contains(want), "{}", said(&output));
    }
}

#[test]
fn drafting_is_exact_and_a_capture_is_the_goldens_continuation() {
    let bench = Bench::new();
    let rest = ["--golden-dir", "correctness_prompts", "--depth", "3"];
    let output = bench.run(&[&["exactness"][..], &ENGINE_LINE, &rest].concat());
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(
        text.lines().count() == 1 && text.starts_with("MATCH correctness_prompts/stories.golden.json: depth 3"),
        "{text}"
    );

    let golden: Value = serde_json::from_slice(&fs::read(root().join(GOLDEN)).unwrap()).unwrap();
    let output = bench.run(&[&["capture"][..], &ENGINE_LINE, &["--seed-from", GOLDEN, "--depth", "2"]].concat());
    let capture = json(&output);
    assert_eq!(capture["seed_token"], golden["benchmark"]["expected_decode_seed_token"]);
    assert_eq!(capture["tokens"], golden["benchmark"]["expected_decode_tokens"]);
    assert!(capture["drafted_total"].as_u64().unwrap() >= capture["accepted_total"].as_u64().unwrap());
}
