//! The 172 verdicts of an independent golden loader (benchd.md 4): one valid document and a way to change it each. A
//! refusal must also have the reason that its name promises, or a test of one rule could pass by another.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

use std::error::Error;
use std::path::Path;

use bench_core::golden::{Demands, Golden, ModelShape};
use serde_json::{Value, json};

/// A mutation's name begins so; its refusal contains this. The first that fits.
const REASONS: &[(&str, &str)] = &[
    ("model_type_wrong", "the track's is `qwen4_exp_text`; record it"),
    ("model_type_empty", "is empty or has blanks"),
    ("model_type_leading", "is empty or has blanks"),
    ("model_type_trailing", "is empty or has blanks"),
    ("model_type_missing", "has no `model_type`"),
    ("version_wrong", "is not supported"),
    ("version_missing", "has no `version`"),
    ("valid_cases_only", "must contain a benchmark oracle"),
    ("cases_empty", "cases is empty"),
    ("case_name_null", "invalid type: null, expected a string"),
    ("case_name_number", "invalid type: integer `3`, expected a string"),
    ("case_name", "correctness golden case name"),
    ("case_duplicate_name", "duplicate correctness golden case name c1"),
    ("case_prompt_count", "c1.prompt_tokens has"),
    ("case_expected_count", "need at least 64"),
    ("case_token_oob", "c1.prompt_tokens[0] is outside configured vocab range 0..<248320"),
    ("gates_empty", "none of anchors, free_run, behavior"),
    ("gates_anchors_empty", "correctness_gates.anchors is empty"),
    ("gates_free_run_empty", "correctness_gates.free_run is empty"),
    ("gates_behavior_empty", "correctness_gates.behavior is empty"),
    ("layered_duplicate_name", "it stands under case and under anchor"),
    ("anchor_context", "length of a1.context_tokens is"),
    ("anchor_expected_oob", "a1.expected_token is outside"),
    ("anchor_expected_negative", "a1.expected_token is outside"),
    ("anchor_accepted_empty", "a1.accepted_tokens is empty"),
    ("anchor_accepted_oob", "a1.accepted_tokens[0] is outside"),
    ("anchor_rank", "a1.max_expected_rank is"),
    ("anchor_delta_negative", "must be finite and >= 0"),
    ("anchor_delta_without", "needs max_expected_rank"),
    ("free_run_prompt_count", "fr1.prompt_tokens has"),
    ("free_run_expected", "length of fr1.expected_tokens is"),
    ("free_run_prefix", "fr1.exact_prefix_tokens is"),
    ("behavior_prompt_empty", "length of b1.prompt_tokens is 0"),
    ("behavior_prompt_too_long", "length of b1.prompt_tokens is 2049"),
    ("behavior_prompt_oob", "b1.prompt_tokens[0] is outside"),
    ("behavior_max_new_bad", "b1.max_new_tokens is"),
    ("behavior_sequences_empty", "b1.accepted_token_sequences is empty"),
    ("behavior_sequence_elem_empty", "length of b1.accepted_token_sequences[0] is 0"),
    ("behavior_sequence_too_long", "length of b1.accepted_token_sequences[0] is 3"),
    ("behavior_sequence_oob", "b1.accepted_token_sequences[0][0] is outside"),
    ("benchmark_prefill_count", "benchmark.prefill_prompt_tokens has"),
    ("benchmark_decode_seed_count", "benchmark.decode_seed_tokens has"),
    ("benchmark_decode_steps_short", "benchmark.expected_decode_tokens has 127 tokens; need at least 128"),
    ("benchmark_prefill_oob", "benchmark.prefill_prompt_tokens[0] is outside"),
    ("benchmark_decode_token_oob", "benchmark.expected_decode_tokens[0] is outside"),
    ("benchmark_half_baseline", "give both or neither"),
    ("benchmark_baseline_bad", "must be finite and > 0"),
    ("provenance_short_rev", "40 lower-case"),
    ("provenance_upper_rev", "40 lower-case"),
    ("provenance_empty_repo", "a repository's name"),
    ("", "could not be decoded"),
];

fn read(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/track");
    std::fs::read(folder.join(name)).unwrap()
}

/// The list or object a pointer's last segment is in, and that segment.
fn parent<'a, 'b>(document: &'a mut Value, pointer: &'b str) -> (&'a mut Value, &'b str) {
    let (folder, last) = pointer.rsplit_once('/').unwrap();
    (document.pointer_mut(folder).unwrap(), last)
}

fn apply(document: &mut Value, op: &Value) {
    let path = op["path"].as_str().unwrap_or_default();
    let value = op["value"].clone();
    match op["op"].as_str().unwrap() {
        "none" => {}
        "set" => match parent(document, path) {
            (Value::Array(list), index) => list[index.parse::<usize>().unwrap()] = value,
            (object, key) => object[key] = value,
        },
        "remove" => {
            drop(parent(document, path).0.as_object_mut().unwrap().remove(path.rsplit('/').next().unwrap()).unwrap())
        }
        "remove-many" => {
            for path in op["path"].as_array().unwrap() {
                apply(document, &json!({ "op": "remove", "path": path }));
            }
        }
        "append" => {
            document.pointer_mut(path).unwrap().as_array_mut().unwrap().extend(value.as_array().unwrap().clone())
        }
        "resize" => {
            let length = value.as_u64().unwrap() as usize;
            document.pointer_mut(path).unwrap().as_array_mut().unwrap().resize(length, json!(1));
        }
        "duplicate" => {
            let copy = document.pointer(path).unwrap().clone();
            parent(document, path).0.as_array_mut().unwrap().push(copy);
        }
        other => panic!("unknown op {other}"),
    }
    if let Some(prompt) = document.pointer_mut("/correctness_gates/behavior/0/prompt_tokens")
        && *prompt == json!("<2049 tokens>")
    {
        *prompt = json!(vec![1; 2049]);
    }
    for further in op["also"].as_array().into_iter().flatten() {
        apply(document, further);
    }
}

fn mutated(base: &[u8], mutation: &Value) -> Vec<u8> {
    if mutation["op"] == "raw" {
        return match mutation["name"].as_str().unwrap() {
            "raw_truncated" => base[..base.len() / 2].to_vec(),
            "raw_trailing_garbage" => [base, b"x"].concat(),
            "raw_duplicate_key" => [b"{\"version\":1,", &base[1..]].concat(),
            "raw_empty" => Vec::new(),
            other => panic!("unknown byte edit {other}"),
        };
    }
    let mut document: Value = serde_json::from_slice(base).unwrap();
    apply(&mut document, mutation);
    serde_json::to_vec(&document).unwrap()
}

fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[test]
fn every_mutation_has_the_verdict_of_the_independent_loader_and_the_reason_of_its_name() {
    let base = read("golden.synthetic-valid.json");
    let list: Value = serde_json::from_slice(&read("golden-mutations.json")).unwrap();
    assert_eq!(bench_core::sha256(&base).to_string(), list["base_sha256"].as_str().unwrap());
    let loader = &list["loader"];
    let shape = ModelShape {
        model_type: loader["model_type"].as_str().unwrap().into(),
        vocab_size: loader["vocab_size"].as_i64().unwrap(),
        layers: 48,
        seed_tokens: loader["seed_tokens"].as_u64().unwrap() as usize,
    };
    let demands = Demands {
        expected_tokens: loader["required_steps"].as_u64().unwrap() as usize,
        benchmark: loader["require_benchmark"].as_bool().unwrap(),
        ..Demands::official(&shape)
    };
    let mutations = list["mutations"].as_array().unwrap();
    assert_eq!(mutations.len(), 172);

    let mut wrong = Vec::new();
    for mutation in mutations {
        let name = mutation["name"].as_str().unwrap();
        let found = Golden::load(&mutated(&base, mutation), &demands);
        match (mutation["verdict"].as_str().unwrap(), found) {
            ("ACCEPT", Ok(_)) => {}
            ("REJECT", Err(error)) => {
                let (_, reason) = REASONS.iter().find(|(prefix, _)| name.starts_with(prefix)).unwrap();
                let text = chain(&error);
                if !text.contains(reason) {
                    wrong.push(format!("{name}: refused for another reason: {text}"));
                }
            }
            (verdict, Ok(_)) => wrong.push(format!("{name}: {verdict}, but it loads")),
            (verdict, Err(error)) => wrong.push(format!("{name}: {verdict}, but {}", chain(&error))),
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn the_pin_is_checked_on_raw_bytes_before_decoding_and_the_count_before_the_digest() {
    let base = read("golden.synthetic-valid.json");
    let shape = ModelShape { model_type: "qwen4_exp_text".into(), vocab_size: 248_320, layers: 48, seed_tokens: 1024 };
    let pin = bench_core::ContentPin::of(&base);
    let load = |bytes: &[u8]| Golden::load(bytes, &Demands { pin: Some(pin), ..Demands::official(&shape) });
    assert_eq!(load(&base).unwrap().pin(), pin);
    assert_eq!(load(&base).unwrap().case_count(), 4);
    let longer = load(&[&base[..], b"x"].concat()).unwrap_err().to_string();
    let bytes = base.len();
    assert_eq!(longer, format!("correctness golden byte count mismatch: expected {bytes}, actual {}", bytes + 1));
    let mut junk = base.clone();
    junk[0] = b'[';
    let other = load(&junk).unwrap_err().to_string();
    let actual = bench_core::sha256(&junk);
    assert_eq!(other, format!("correctness golden sha256 mismatch: expected {}, actual {actual}", pin.sha256));
}

#[test]
fn an_array_is_no_object_and_a_blank_block_is_no_block_anywhere() {
    let base = read("golden.synthetic-valid.json");
    let shape = ModelShape { model_type: "qwen4_exp_text".into(), vocab_size: 248_320, layers: 48, seed_tokens: 1024 };
    for pointer in [
        "/cases/0",
        "/correctness_gates",
        "/correctness_gates/anchors/0",
        "/correctness_gates/free_run/0",
        "/benchmark",
    ] {
        let mut document: Value = serde_json::from_slice(&base).unwrap();
        let place = document.pointer_mut(pointer).unwrap();
        // The values alone, in declaration order: what serde's derive would take for the object.
        *place = Value::Array(place.as_object().unwrap().values().cloned().collect());
        let bytes = serde_json::to_vec(&document).unwrap();
        let text = chain(&Golden::load(&bytes, &Demands::official(&shape)).unwrap_err());
        assert!(text.contains("expected an object"), "{pointer}: {text}");
    }
}
