//! Refusals of the request itself, in their exact words (engine-protocol-v1.md 3 and 6, rules 5 and 6).

use cuda_engine::mock::{Event, Knobs};

use crate::{OPENERS, mock, told};

#[test]
fn a_request_that_reads_but_asks_for_nothing_possible_is_malformed_under_its_own_id() {
    let cases = [
        (r#""kind":"prefill""#, "prefill missing prompt_tokens"),
        (r#""kind":"decode_begin""#, "decode_begin missing seed_tokens"),
        (r#""kind":"decode_step""#, "decode_step missing token"),
        (r#""kind":"correctness","steps":1"#, "correctness missing prompt_tokens"),
        (r#""kind":"correctness","prompt_tokens":[1]"#, "correctness missing steps"),
        (r#""kind":"correctness_begin""#, "correctness_begin missing prompt_tokens"),
        (r#""kind":"correctness_step""#, "correctness_step missing token"),
        (r#""kind":"free_decode_begin""#, "free_decode_begin missing seed_tokens"),
        (r#""kind":"free_decode_run""#, "free_decode_run missing count"),
        (r#""kind":"free_decode_run","count":0"#, "free_decode_run count must be positive, got 0"),
        (r#""kind":"free_decode_run","count":1537"#, "free_decode_run count 1537 is above the bound 1536"),
        (r#""kind":"free_decode_run","count":4294967295"#, "free_decode_run count 4294967295 is above the bound 1536"),
        (r#""kind":"correctness","prompt_tokens":[1],"steps":0"#, "correctness steps must be in 1...1536, got 0"),
        (r#""kind":"correctness","prompt_tokens":[1],"steps":-9"#, "correctness steps must be in 1...1536, got -9"),
        (r#""kind":"x""#, r#"unknown request kind "x""#),
        (r#""kind":"""#, r#"unknown request kind """#),
        (r#""kind":"hello""#, r#"unknown request kind "hello""#),
        (r#""kind":"cohort_reference_replay""#, r#"unknown request kind "cohort_reference_replay""#),
    ];
    for (fields, wanted) in cases {
        assert_eq!(mock().refused(fields), format!("malformed request: {wanted}"));
    }
}

#[test]
fn a_field_that_the_verb_has_no_use_for_is_refused() {
    assert_eq!(
        mock().refused(r#""kind":"prefill","prompt_tokens":[1],"token":2"#),
        "malformed request: prefill takes no token"
    );
    let spec = r#","spec":{"mode":"serial"}"#;
    let verbs = [
        r#""kind":"prefill","prompt_tokens":[1]"#,
        r#""kind":"decode_step","token":1"#,
        r#""kind":"correctness","prompt_tokens":[1],"steps":1"#,
        r#""kind":"correctness_begin","prompt_tokens":[1]"#,
        r#""kind":"correctness_step","token":1"#,
        r#""kind":"free_decode_run","count":1"#,
        r#""kind":"phase_diagnostics""#,
    ];
    for verb in verbs {
        let error = mock().refused(&format!("{verb}{spec}"));
        assert!(error.starts_with("malformed request: "), "{error}");
        assert!(error.ends_with("takes no spec; spec belongs on decode_begin and free_decode_begin"), "{error}");
    }
}

/// The order of the checks: what the request says, then the phase, then the engine.
#[test]
fn a_malformed_request_is_named_before_the_phase_is() {
    assert_eq!(
        mock().refused(r#""kind":"free_decode_run","count":2000"#),
        "malformed request: free_decode_run count 2000 is above the bound 1536"
    );
}

#[test]
fn a_line_that_is_no_request_is_answered_under_id_minus_one_and_ends_the_phase() {
    let lines = [
        "{",
        "nonsense",
        "[]",
        "null",
        r#"{"id":1}"#,
        r#"{"kind":"prefill"}"#,
        r#"{"id":"1","kind":"prefill","prompt_tokens":[1]}"#,
        r#"{"id":1.5,"kind":"prefill","prompt_tokens":[1]}"#,
        r#"{"id":1,"kind":"prefill","prompt_tokens":[1],"bogus":true}"#,
        r#"{"id":1,"kind":"prefill","prompt_tokens":null}"#,
        r#"{"id":1,"kind":"prefill","prompt_tokens":[1.5]}"#,
        r#"{"id":1,"kind":"prefill","prompt_tokens":"1"}"#,
        r#"{"id":1,"kind":"free_decode_run","count":-1}"#,
        r#"{"id":1,"kind":"free_decode_begin","seed_tokens":[1],"batch_size":2}"#,
        r#"{"id":1,"kind":"free_decode_begin","seed_tokens":[1],"spec":{"mode":"mtp","mtp":{"depth":2,"x":1}}}"#,
        r#"{"id":1,"kind":"free_decode_begin","seed_tokens":[1],"spec":{}}"#,
        r#"{"id":1,"id":2,"kind":"phase_diagnostics"}"#,
        r#"{"id":1,"kind":"phase_diagnostics"} {"id":2,"kind":"phase_diagnostics"}"#,
    ];
    for line in lines {
        let (mut session, log) = told(Knobs::default());
        session.carried_out(OPENERS[1].0);
        let response = session.line(line);
        assert_eq!(response.id, -1, "{line}");
        let error = response.error.unwrap();
        assert!(error.starts_with("request line was not a valid WorkerRequest: "), "{error}");
        assert_eq!(log.events().last(), Some(&Event::Dropped), "{line}");
        assert!(session.has_no_phase());
    }
    let bogus = mock().line(r#"{"id":14,"kind":"prefill","prompt_tokens":[1],"bogus":true}"#).error.unwrap();
    assert!(bogus.starts_with("request line was not a valid WorkerRequest: unknown field `bogus`"), "{bogus}");
}

#[test]
fn a_refusal_quotes_only_the_beginning_of_a_long_request() {
    let long = "\u{1f98a}\u{7}".repeat(100_000);
    let kind = mock().refused(&format!(r#""kind":"{}""#, long.replace('\u{7}', r"\u0007")));
    assert!(kind.starts_with("malformed request: unknown request kind \"\u{1f98a}") && kind.len() < 3000);
    let key = mock().line(&format!(r#"{{"id":1,"kind":"prefill","{}":1}}"#, "k".repeat(1_000_000))).error.unwrap();
    assert!(key.contains("unknown field `kkkk") && key.len() < 3000);
}

/// engine-protocol-v1.md 6, rule 13: 64 bits on the wire, 32 in the engine.
#[test]
fn an_id_that_the_engine_has_no_type_for_is_a_fault_of_the_engine() {
    for token in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, i64::MAX, i64::MIN] {
        let wanted = format!("engine fault: token id {token} does not fit the engine's 32-bit ids");
        assert_eq!(mock().refused(&format!(r#""kind":"prefill","prompt_tokens":[1,{token}]"#)), wanted);
        let mut session = mock();
        session.carried_out(OPENERS[1].0);
        assert_eq!(session.refused(&format!(r#""kind":"decode_step","token":{token}"#)), wanted);
    }
    // The largest the engine has; the token behind it is one it has not.
    let mut session = mock();
    session.carried_out(OPENERS[1].0);
    let error = session.refused(&format!(r#""kind":"decode_step","token":{}"#, i32::MAX));
    assert!(error.starts_with("engine fault: "), "{error}");
}

#[test]
fn an_id_is_echoed_whatever_it_is() {
    for id in [0, -1, -7, i64::MAX, i64::MIN] {
        assert_eq!(mock().line(&format!(r#"{{"id":{id},"kind":"prefill","prompt_tokens":[1]}}"#)).id, id);
    }
}
