//! Which fields each response has, no more and no fewer (engine-protocol-v1.md 5 and 6).

use std::collections::BTreeSet;

use bench_protocol::Response;
use serde_json::Value;

use crate::{CLOSE, OPENERS, STEPS, Session, mock};

fn keys(response: &Response) -> BTreeSet<String> {
    let line: Value = serde_json::from_slice(&response.to_line().unwrap()).unwrap();
    line.as_object().unwrap().keys().filter(|key| !["id", "nonce", "ok"].contains(&key.as_str())).cloned().collect()
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

#[test]
fn each_verb_answers_with_its_fields_and_no_others() {
    let [prefill, decode, correctness, anchor, free] = OPENERS.map(|(opener, _)| opener);
    let [decode_step, anchor_step, run] = STEPS.map(|(step, ..)| step);
    let observed = ["token", "top_logits", "expert_stats", "peak_ram_gb"];
    let begun = ["seed_token", "effective_spec"];
    let ran = ["tokens", "acceptance_lengths", "drafted_total", "accepted_total", "committed_total"];
    let closed = ["expert_stats", "peak_ram_gb", "completed_work"];
    let phases: [(&[&str], &[&str]); 8] = [
        (&[prefill], &["token"]),
        (&[decode], &begun),
        (&[decode, decode_step], &["token"]),
        (&[correctness], &["tokens", "peak_ram_gb"]),
        (&[anchor], &observed),
        (&[anchor, anchor_step], &observed),
        (&[free], &begun),
        (&[free, run], &ran),
    ];
    for (verbs, wanted) in phases {
        let mut session = mock();
        let responses: Vec<_> = verbs.iter().map(|verb| session.carried_out(verb)).collect();
        assert_eq!(keys(responses.last().unwrap()), set(wanted), "{verbs:?}");
        assert_eq!(keys(&session.carried_out(CLOSE)), set(&closed));
    }
    assert_eq!(keys(&mock().ask(CLOSE)), set(&["error"]));
}

/// Rules 11 and 12, and the table: hello says who answers and what it can.
#[test]
fn hello_is_the_first_response_with_id_0_and_its_fields() {
    let session = mock();
    let hello = Response::parse(&session.worker.hello().unwrap()).unwrap();
    assert_eq!(hello.id, 0);
    let wanted = ["expert_stats", "protocol_version", "backend", "device", "capabilities", "spec_modes"];
    assert_eq!(keys(&hello), set(&wanted));
    assert_eq!((hello.backend.as_deref(), hello.device.as_deref()), (Some("mock"), Some("none")));
    assert_eq!(hello.capabilities, Some(vec!["free_run_decode".to_owned()]));
    assert_eq!(hello.spec_modes, Some(vec!["serial".to_owned(), "mtp".to_owned()]));
    bench_protocol::Hello::from_response(hello).unwrap();
}

#[test]
fn the_mock_computes_what_is_written_down_for_it() {
    let mut session = mock();
    let mut tokens = |verbs: &[&str]| {
        let last = verbs.iter().map(|verb| session.carried_out(verb)).last().unwrap();
        session.close();
        last
    };
    assert_eq!(tokens(&[r#""kind":"prefill","prompt_tokens":[9,9,9,9]"#]).token, Some(100_004));
    assert_eq!(tokens(&[r#""kind":"decode_begin","seed_tokens":[9,9]"#]).seed_token, Some(200_002));
    let steps = [OPENERS[1].0, r#""kind":"decode_step","token":41"#];
    assert_eq!(tokens(&steps).token, Some(42));
    let free = [OPENERS[4].0, r#""kind":"free_decode_run","count":2"#, r#""kind":"free_decode_run","count":1"#];
    assert_eq!(tokens(&free).tokens, Some(vec![200_005]));
    // No end token, and one step is one token.
    for steps in [1, 3, 1536] {
        let run = tokens(&[&format!(r#""kind":"correctness","prompt_tokens":[1],"steps":{steps}"#)]);
        assert_eq!(run.tokens, Some((100_000..100_000 + steps).collect()));
    }
}

#[test]
fn the_worker_runs_the_largest_count_and_an_empty_prompt_of_the_mock() {
    let mut session: Session<_> = mock();
    session.carried_out(r#""kind":"free_decode_begin","seed_tokens":[]"#);
    let run = session.carried_out(r#""kind":"free_decode_run","count":1536"#);
    assert_eq!(run.tokens.map(|tokens| tokens.len()), Some(1536));
    assert_eq!(session.close(), 1537);
}
