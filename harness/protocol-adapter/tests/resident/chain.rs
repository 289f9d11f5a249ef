//! The whole chain over the embedded model: what a worker answers is the same, whichever way the engine is attached.

use serde_json::{Value, json};

use crate::SEED;
use crate::attached::Worker;
use crate::booted::Booted;

const COUNT: u32 = 24;

fn booted(draft_tokens: u32) -> Booted {
    let draft_tokens = draft_tokens.to_string();
    Booted::with(&["--model", "embedded", "--draft-tokens", &draft_tokens, "--ctx-tokens", "512", "--threads", "1"])
}

/// What does not depend on where the weights are: all but the memory of a process.
fn asked(worker: &mut Worker, request: Value) -> Value {
    let mut response = worker.ask(request);
    response.as_object_mut().unwrap().remove("peak_ram_gb");
    assert_eq!(response["ok"], true, "{response}");
    response
}

/// A phase of each kind that computes: responses in order.
fn phases(worker: &mut Worker, spec: &Value) -> Vec<Value> {
    let requests = [
        json!({"kind": "prefill", "prompt_tokens": SEED}),
        json!({"kind": "phase_diagnostics"}),
        json!({"kind": "free_decode_begin", "seed_tokens": SEED, "spec": spec}),
        json!({"kind": "free_decode_run", "count": COUNT}),
        json!({"kind": "phase_diagnostics"}),
        json!({"kind": "correctness_begin", "prompt_tokens": SEED}),
        json!({"kind": "correctness_step", "token": 100}),
        json!({"kind": "correctness_step", "token": 258}),
        json!({"kind": "phase_diagnostics"}),
        json!({"kind": "correctness", "prompt_tokens": SEED, "steps": 8}),
        json!({"kind": "phase_diagnostics"}),
    ];
    requests.into_iter().map(|request| asked(worker, request)).collect()
}

#[test]
fn tokens_and_logits_are_those_of_the_engine_in_process_at_every_depth() {
    let (mut in_process, _) = Worker::in_process();
    let mut serial_tokens = Value::Null;
    for depth in 0..=6 {
        let spec = if depth == 0 { json!({"mode": "serial"}) } else { json!({"mode": "mtp", "mtp": {"depth": depth}}) };
        let wanted = phases(&mut in_process, &spec);
        let booted = booted(depth + 1);
        let (mut attached, _) = Worker::attached(&booted.socket());
        let found = phases(&mut attached, &spec);
        assert_eq!(found, wanted, "depth {depth}");

        let (begun, run) = (&found[2], &found[3]);
        assert_eq!(begun["effective_spec"], spec);
        if depth == 0 {
            serial_tokens = run["tokens"].clone();
        }
        assert_eq!(run["tokens"], serial_tokens, "depth {depth}: drafting changes no token");
        assert_eq!(run["drafted_total"] != 0, depth > 0, "depth {depth}: {run}");
        assert_eq!(found[6]["top_logits"].as_array().unwrap().len(), 8);
    }
}

#[test]
fn a_resident_of_the_embedded_model_says_what_it_is() {
    let booted = booted(7);
    let (_worker, hello) = Worker::attached(&booted.socket());
    let backend = hello["backend"].as_str().unwrap();
    assert!(backend.starts_with(&format!("cudafast-resident load_epoch={} ", booted.pid())), "{backend}");
    assert!(hello["device"].as_str().unwrap().starts_with("cpu "), "{hello}");
    assert_eq!(hello["spec_modes"], json!(["serial", "mtp"]));

    let (mut worker, hello) = Worker::in_process();
    let backend = hello["backend"].as_str().unwrap();
    assert!(backend.starts_with("cudafast ") && hello.get("resident").is_none(), "{hello}");
    // Where no depth is asked for, the engine's own is the deepest of the track.
    let begun = asked(&mut worker, json!({"kind": "free_decode_begin", "seed_tokens": SEED, "spec": {"mode": "mtp"}}));
    assert_eq!(begun["effective_spec"], json!({"mode": "mtp", "mtp": {"depth": 6}}));
}

#[test]
fn a_model_that_does_not_load_leaves_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let cases: [&[&str]; 3] = [&["--draft-tokens", "9"], &["--ctx-tokens", "1000000"], &["--stop-ids", "4096"]];
    for flags in cases {
        let mut command = crate::booted::binary();
        command.args(["resident", "--model", "embedded", "--socket"]).arg(&socket).args(flags);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {stderr}");
        assert!(stderr.contains(flags[0]), "{flags:?}: {stderr}");
        assert!(!socket.exists(), "{flags:?}");
    }
}
