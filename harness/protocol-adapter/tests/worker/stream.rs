//! Whatever comes in: one response a line, in order, and no phase left open (engine-protocol-v1.md 2 and 3).

use bench_protocol::{LenientSpec, Request, Response, is_blank};
use cuda_engine::mock::{Event, Knobs, Mock};
use proptest::prelude::*;

use crate::{NONCE, Session};

fn exchange(requests: &[u8], knobs: Knobs) -> Vec<Response> {
    let mock = Mock::new(knobs);
    let log = mock.lifecycle();
    let mut written = Vec::new();
    Session::over(mock).worker.serve(requests, &mut written).unwrap();
    let count = |event| log.events().iter().filter(|&&logged| logged == event).count();
    assert_eq!(count(Event::Created), count(Event::Dropped), "every phase has ended");
    written.split_inclusive(|&byte| byte == b'\n').map(|line| Response::parse(line).unwrap()).collect()
}

/// One response to each line that is not blank, with its id where it can be read.
fn check(requests: &[u8], knobs: Knobs) {
    let responses = exchange(requests, knobs);
    let ids = requests
        .split(|&byte| byte == b'\n')
        .filter(|line| !is_blank(line))
        .map(|line| Request::<LenientSpec>::parse(line).map_or(-1, |request| request.id));
    let wanted: Vec<_> = std::iter::once(0).chain(ids).collect();
    assert_eq!(responses.iter().map(|response| response.id).collect::<Vec<_>>(), wanted);
    for response in &responses {
        assert_eq!(response.nonce.as_deref(), Some(NONCE));
        assert_eq!(response.ok, response.error.is_none());
    }
}

#[test]
fn blank_lines_are_skipped_and_a_carriage_return_is_white_space() {
    let requests = b"\n  \t\r\n\r\n{\"id\":7,\"kind\":\"prefill\",\"prompt_tokens\":[1]}\r\n \n{\"id\":8,\"kind\":\"phase_diagnostics\"}";
    let ids: Vec<_> = exchange(requests, Knobs::default()).iter().map(|response| (response.id, response.ok)).collect();
    assert_eq!(ids, [(0, true), (7, true), (8, true)]);
}

#[test]
fn a_stream_without_requests_is_a_hello_alone() {
    assert_eq!(exchange(b"", Knobs::default()).len(), 1);
    assert_eq!(exchange(b" \n\n", Knobs::default()).len(), 1);
}

/// Some of a valid session, some almost, some not at all.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![
        "prefill",
        "decode_begin",
        "decode_step",
        "correctness",
        "correctness_begin",
        "correctness_step",
        "free_decode_begin",
        "free_decode_run",
        "phase_diagnostics",
        "hello",
    ]);
    let token = || prop_oneof![4 => 0i64..20, 1 => any::<i64>()];
    let tokens = || prop::collection::vec(token(), 0..4);
    let spec = prop::sample::select(vec![
        r#"{"mode":"serial"}"#,
        r#"{"mode":"mtp"}"#,
        r#"{"mode":"mtp","mtp":{"depth":6}}"#,
        r#"{"mode":"mtp","mtp":{"depth":7}}"#,
        r#"{"mode":"dflash","dflash":{}}"#,
        "{}",
    ]);
    let field = prop_oneof![
        tokens().prop_map(|tokens| format!(r#""prompt_tokens":{tokens:?}"#)),
        tokens().prop_map(|tokens| format!(r#""seed_tokens":{tokens:?}"#)),
        token().prop_map(|token| format!(r#""token":{token}"#)),
        (-1i64..9).prop_map(|steps| format!(r#""steps":{steps}"#)),
        (-1i64..20).prop_map(|count| format!(r#""count":{count}"#)),
        spec.prop_map(|spec| format!(r#""spec":{spec}"#)),
    ];
    let request = (any::<i64>(), kind, prop::collection::vec(field, 0..3)).prop_map(|(id, kind, fields)| {
        let fields: String = fields.iter().map(|field| format!(",{field}")).collect();
        format!(r#"{{"id":{id},"kind":"{kind}"{fields}}}"#).into_bytes()
    });
    prop_oneof![8 => request, 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

proptest! {
    #[test]
    fn any_stream_has_one_response_a_line_and_leaves_no_phase(
        lines in prop::collection::vec(line(), 0..20),
        serial_only: bool,
        fault_on in prop::option::of(0i32..20),
        residual_bytes in prop_oneof![9 => Just(0u64), 1 => Just(1)],
    ) {
        check(&lines.join(&b'\n'), Knobs { residual_bytes, fault_on, serial_only });
    }

    #[test]
    fn any_bytes_have_one_response_a_line_and_leave_no_phase(bytes: Vec<u8>) {
        check(&bytes, Knobs::default());
    }
}
