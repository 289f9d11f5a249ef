//! The transcripts of engine-protocol-v1.md 11, byte for byte.

use crate::{NONCE, mock, process};

const TRANSCRIPT: &str = include_str!("../../../../testdata/track/protocol-transcript.ndjson");

/// Requests and what is written, without 11.4: its engine is one with ties.
pub(crate) fn of_the_mock() -> (String, String) {
    let of_another_engine = [r#"{"id":9,"#, r#"{"id":10,"#, r#"{"id":11,"#];
    let (mut requests, mut responses) = (String::new(), String::new());
    for line in TRANSCRIPT.lines().filter(|line| !of_another_engine.iter().any(|id| line.starts_with(id))) {
        let side = if line.contains(r#""kind":"#) { &mut requests } else { &mut responses };
        side.push_str(line);
        side.push('\n');
    }
    (requests, responses)
}

#[test]
fn the_mock_answers_the_transcripts_to_the_byte() {
    let (requests, wanted) = of_the_mock();
    assert_eq!(requests.lines().count(), 11);
    let mut written = Vec::new();
    mock().worker.serve(requests.as_bytes(), &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), wanted);
}

#[test]
fn the_program_answers_the_transcripts_to_the_byte() {
    let (requests, wanted) = of_the_mock();
    let output = process::converse(&["--mock", "--nonce", NONCE], requests.as_bytes());
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
}

/// 11.4 with the mock's own numbers: the benchmarker's token is fed, whatever the engine would have chosen.
#[test]
fn a_correctness_step_evaluates_the_token_it_is_given() {
    let mut session = mock();
    let begin = session.carried_out(r#""kind":"correctness_begin","prompt_tokens":[1,2,3]"#);
    assert_eq!(begin.token, Some(100_003));
    let step = session.carried_out(r#""kind":"correctness_step","token":501"#);
    assert_eq!(step.token, Some(502));
    let top = step.top_logits.unwrap();
    let wanted: Vec<_> = (0..8).map(|i| (502 + i, 10.0 - i as f64)).collect();
    assert_eq!(top.iter().map(|top| (top.token, top.logit)).collect::<Vec<_>>(), wanted);
    assert_eq!(session.close(), 2);
}
