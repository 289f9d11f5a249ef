//! What is said over the socket.

use serde_json::json;

use crate::booted::{Booted, Raw};

#[test]
fn every_op_has_the_reply_of_the_table() {
    let booted = Booted::with(&["--stub", "--draft-tokens", "2", "--ident", "box", "--ctx-tokens", "4096"]);
    let mut raw = Raw::connect(&booted.socket());
    assert_eq!(
        raw.ask(r#"{"op":"hello"}"#),
        json!({"ok": true, "vocab_size": 1024, "eos_token": 99, "mtp_armed": true, "draft_tokens": 2, "ctx_size": 4096,
            "load_epoch": booted.pid(), "ident": "stub box", "model_path": "stub", "mtp_head_path": "stub",
            "stop_ids": [99], "device": "none"})
    );
    assert_eq!(raw.ask(r#"{"op":"invalidate"}"#), json!({"ok": true}));
    assert_eq!(raw.ask(r#"{"op":"sync","tokens":[11,12,13]}"#), json!({"ok": true, "token": 653}));
    assert_eq!(raw.ask(r#"{"op":"argmax"}"#), json!({"ok": true, "token": 653}));
    assert_eq!(raw.ask(r#"{"op":"eval","token":50}"#), json!({"ok": true, "token": 836}));
    assert_eq!(
        raw.ask(r#"{"op":"top_logits","k":3}"#),
        json!({"ok": true, "ids": [836, 837, 838], "logits": [8.5, 7.5, 6.5]})
    );
    let cycle = raw.ask(r#"{"op":"eval_speculative","first_token":836,"budget":4}"#);
    assert_eq!((&cycle["ok"], &cycle["tokens"][0]), (&json!(true), &json!(836)));
    let counters = raw.ask(r#"{"op":"spec_counters"}"#);
    assert_eq!(counters["drafts"], 1);
    assert_eq!((&counters["quenches"], &counters["disagreements"]), (&json!(0), &json!(0)));
    assert_eq!(raw.ask(r#"{"op":"bye"}"#), json!({"ok": true}));
    assert_eq!(raw.reply(), None, "bye closes the connection");
}

#[test]
fn a_serial_resident_drafts_nothing_and_says_so() {
    let booted = Booted::stub("1");
    let mut raw = Raw::connect(&booted.socket());
    let hello = raw.ask(r#"{"op":"hello"}"#);
    assert_eq!((&hello["mtp_armed"], &hello["draft_tokens"]), (&json!(false), &json!(1)));
    assert_eq!(hello["mtp_head_path"], "");
    raw.ask(r#"{"op":"sync","tokens":[11,12,13]}"#);
    let cycle = raw.ask(r#"{"op":"eval_speculative","first_token":653,"budget":9}"#);
    assert_eq!(cycle, json!({"ok": true, "tokens": [653], "token": 11}));
    assert_eq!(raw.ask(r#"{"op":"spec_counters"}"#)["drafts"], 0);
}

#[test]
fn what_cannot_be_understood_is_refused_and_the_connection_stays_open() {
    let booted = Booted::stub("2");
    let mut raw = Raw::connect(&booted.socket());
    let no_op = "request carries no \"op\" string";
    let refusals = [
        ("{}", no_op),
        ("", no_op),
        ("not json", no_op),
        (r#"{"op":7}"#, no_op),
        (r#"["hello"]"#, no_op),
        (r#"{"op":"hello","op":"bye"}"#, no_op),
        (r#"{"op":"sync"}"#, "sync needs"),
        (r#"{"op":"sync","tokens":[1.5]}"#, "sync needs"),
        (r#"{"op":"sync","tokens":[4294967296]}"#, "sync needs"),
        (r#"{"op":"sync","tokens":[]}"#, "no tokens"),
        (r#"{"op":"eval"}"#, "eval needs"),
        (r#"{"op":"eval","token":"5"}"#, "eval needs"),
        (r#"{"op":"eval_speculative","first_token":1}"#, "eval_speculative needs"),
        (r#"{"op":"eval_speculative","first_token":1,"budget":0}"#, "budget is 0"),
        (r#"{"op":"eval_speculative","first_token":1,"budget":-1}"#, "eval_speculative needs"),
        (r#"{"op":"top_logits"}"#, "1 to 64"),
        (r#"{"op":"top_logits","k":0}"#, "1 to 64"),
        (r#"{"op":"top_logits","k":65}"#, "1 to 64"),
        (r#"{"op":"reload"}"#, "unknown op \"reload\""),
    ];
    for (request, why) in refusals {
        assert!(raw.is_refused(request, why), "{request}");
    }
    assert_eq!(raw.ask(r#"{"op":"sync","tokens":[11]}"#)["token"], 730);
}

#[test]
fn a_line_past_the_bound_is_refused_and_the_connection_stays_open() {
    let booted = Booted::stub("1");
    let mut raw = Raw::connect(&booted.socket());
    let mut flood = vec![b'1'; 20_000_000];
    flood.push(b'\n');
    raw.send(&flood);
    let reply = raw.reply().unwrap();
    assert!(reply["error"].as_str().unwrap().contains("longer than 16777216 bytes"), "{reply}");
    assert_eq!(raw.ask(r#"{"op":"sync","tokens":[11]}"#)["token"], 730);
}

#[test]
fn a_cycle_returns_at_most_17_tokens_whatever_the_budget() {
    let booted = Booted::stub("2");
    let mut raw = Raw::connect(&booted.socket());
    raw.ask(r#"{"op":"sync","tokens":[11,12,13]}"#);
    let cycle = raw.ask(r#"{"op":"eval_speculative","first_token":653,"budget":4000000000}"#);
    assert!((1..=17).contains(&cycle["tokens"].as_array().unwrap().len()), "{cycle}");
}
