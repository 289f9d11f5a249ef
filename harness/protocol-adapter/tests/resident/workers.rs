//! Workers attached to a resident, as a window has them: one after the other.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::attached::Worker;
use crate::booted::{Booted, Raw};

fn free_run(worker: &mut Worker, spec: &Value, count: u32) -> (Value, Value) {
    let begun = worker.ask(json!({"kind": "free_decode_begin", "seed_tokens": [11, 12, 13], "spec": spec}));
    (begun, worker.ask(json!({"kind": "free_decode_run", "count": count})))
}

/// engine-protocol-v1.md 10.1, through worker and socket.
#[test]
fn the_vectors_of_the_stub_come_through_worker_and_socket() {
    let booted = Booted::stub("2");
    let (mut worker, _) = Worker::attached(&booted.socket());
    let stream = json!([11, 555, 921, 735, 1021, 467]);
    let (begun, run) = free_run(&mut worker, &json!({"mode": "serial"}), 6);
    assert_eq!((&begun["seed_token"], &run["tokens"]), (&json!(653), &stream));
    assert_eq!(run["acceptance_lengths"], json!([1, 1, 1, 1, 1, 1]));
    assert_eq!(worker.ask(json!({"kind": "phase_diagnostics"}))["completed_work"], 7);

    let (begun, run) = free_run(&mut worker, &json!({"mode": "mtp", "mtp": {"depth": 1}}), 6);
    assert_eq!((&begun["seed_token"], &run["tokens"]), (&json!(653), &stream));
    assert_eq!(run["acceptance_lengths"], json!([2, 2, 2]));
    assert_eq!((&run["drafted_total"], &run["accepted_total"]), (&json!(3), &json!(3)));
    assert_eq!(run["verify_replay_disagreements"], 0);
    assert_eq!(worker.ask(json!({"kind": "phase_diagnostics"}))["completed_work"], 4);

    assert_eq!(worker.ask(json!({"kind": "correctness_begin", "prompt_tokens": [11, 12, 13]}))["token"], 653);
    let step = worker.ask(json!({"kind": "correctness_step", "token": 50}));
    assert_eq!((&step["token"], &step["top_logits"][7]), (&json!(836), &json!({"token": 843, "logit": 1.5})));
}

/// track-contract.md 7.10, the resident test.
#[test]
fn four_fresh_workers_find_one_load_and_a_state_without_tokens_each() {
    let mut booted = Booted::with(&["--stub", "--ident", "box"]);
    for _ in 0..4 {
        let (mut worker, hello) = Worker::attached(&booted.socket());
        assert_eq!(hello["backend"], format!("cudafast-resident load_epoch={} stub box", booted.pid()));
        assert_eq!(hello["device"], "none");
        assert_eq!(hello["resident"], json!({"pid": booted.pid(), "load_epoch": booted.pid()}));
        for _ in 0..2 {
            let prefill = worker.ask(json!({"kind": "prefill", "prompt_tokens": [11, 12, 13]}));
            assert_eq!(prefill["token"], 653, "in each phase the same");
            assert_eq!(worker.ask(json!({"kind": "phase_diagnostics"}))["ok"], true);
        }
        let (status, said) = worker.end();
        assert!(status.success());
        let attached = said.lines().find(|line| line.contains("attached to the resident engine")).unwrap();
        assert!(attached.contains(&format!("load epoch {}", booted.pid())), "{attached}");
        assert!(attached.contains("nothing loaded in this process") && attached.contains(" in "), "{attached}");
        assert!(attached.ends_with(" ms"), "{attached}");
    }
    assert_eq!(booted.said("OPEN #"), 1);
    assert_eq!(booted.said("INVALIDATE"), 4 * 3, "one a connection, one a phase");
    booted.signal(Signal::TERM);
    assert_eq!(booted.wait().code(), Some(0));
    assert!(!booted.socket().exists() && !booted.ready_file().exists());
}

#[test]
fn a_worker_without_its_resident_ends_before_hello() {
    let mut booted = Booted::stub("1");
    booted.signal(Signal::KILL);
    booted.wait();
    assert!(booted.socket().exists(), "a killed resident leaves its socket");
    for socket in [booted.socket(), booted.folder().join("never")] {
        let mut worker = Worker::spawn(Some(&socket));
        assert_eq!(worker.response(), None);
        let (status, said) = worker.end();
        assert_eq!(status.code(), Some(1));
        assert!(said.contains("cannot be reached") && said.contains(socket.to_str().unwrap()), "{said}");
    }
}

#[test]
fn a_resident_killed_inside_a_phase_is_a_fault_in_every_phase_from_then_on() {
    let mut booted = Booted::stub("1");
    let (mut worker, _) = Worker::attached(&booted.socket());
    let seed = json!({"kind": "decode_begin", "seed_tokens": [11, 12, 13]});
    assert_eq!(worker.ask(seed.clone())["seed_token"], 653);
    booted.signal(Signal::KILL);
    booted.wait();
    for request in [json!({"kind": "decode_step", "token": 5}), seed.clone(), seed] {
        let response = worker.ask(request);
        let error = response["error"].as_str().unwrap();
        assert!(error.starts_with("engine fault: resident engine "), "{error}");
        assert!(error.contains("start a fresh worker"), "{error}");
    }
    assert!(worker.end().0.success(), "a fault is an answer; the worker ends when its requests do");
}

#[test]
fn a_worker_killed_inside_a_phase_leaves_nothing_to_the_next() {
    let booted = Booted::stub("2");
    for _ in 0..3 {
        let (mut worker, _) = Worker::attached(&booted.socket());
        let begun = worker.ask(json!({"kind": "decode_begin", "seed_tokens": [1, 2, 3, 4]}));
        assert_eq!(begun["seed_token"], 588);
        worker.kill();
    }
    let mut raw = Raw::connect(&booted.socket());
    assert_eq!(raw.ask(r#"{"op":"argmax"}"#)["token"], 40, "the argmax of a fresh state");
}

#[test]
fn a_depth_the_resident_was_not_booted_with_is_refused_and_none_asked_for_is_its_own() {
    let begin = |spec: Value| json!({"kind": "free_decode_begin", "seed_tokens": [11], "spec": spec});
    let booted = Booted::stub("3");
    let (mut worker, hello) = Worker::attached(&booted.socket());
    assert_eq!(hello["spec_modes"], json!(["serial", "mtp"]));
    for depth in [1, 3, 6] {
        let refused = worker.ask(begin(json!({"mode": "mtp", "mtp": {"depth": depth}})));
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("opened with 3 draft tokens, which is depth 2"), "{error}");
    }
    let mtp2 = json!({"mode": "mtp", "mtp": {"depth": 2}});
    for spec in [json!({"mode": "mtp"}), json!({"mode": "mtp", "mtp": {}}), mtp2.clone()] {
        assert_eq!(worker.ask(begin(spec))["effective_spec"], mtp2);
        assert_eq!(worker.ask(json!({"kind": "phase_diagnostics"}))["ok"], true);
    }

    let booted = Booted::stub("1");
    let (mut worker, hello) = Worker::attached(&booted.socket());
    assert_eq!(hello["spec_modes"], json!(["serial"]));
    let refused = worker.ask(begin(mtp2));
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.starts_with("spec mode \"mtp\" is not runnable on this engine; runnable modes are serial ("),
        "{error}"
    );
}
