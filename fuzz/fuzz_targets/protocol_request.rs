//! Any bytes as the requests of a benchmarker, to a worker over a mock and to one over a mock that fails where it can.
#![no_main]

use bench_protocol::{LenientSpec, Request, Response, is_blank};
use cuda_engine::mock::{Event, Knobs, Mock};
use cuda_engine::worker::Worker;
use libfuzzer_sys::fuzz_target;

const NONCE: &str = "5f1c0e77a2b94d10";

fuzz_target!(|requests: &[u8]| {
    check(requests, Knobs::default());
    check(requests, Knobs { fault_on: Some(13), serial_only: true, ..Knobs::default() });
});

/// Hello, then one response a line, each with the nonce and the request's id; no phase is left, whatever happened in it.
fn check(requests: &[u8], knobs: Knobs) {
    let mock = Mock::new(knobs);
    let log = mock.lifecycle();
    let mut written = Vec::new();
    Worker::new(mock, NONCE.to_owned()).serve(requests, &mut written).unwrap();

    let mut responses = written.split_inclusive(|&byte| byte == b'\n');
    assert_eq!(read(responses.next().unwrap()).id, 0);
    for request in requests.split(|&byte| byte == b'\n').filter(|line| !is_blank(line)) {
        let id = Request::<LenientSpec>::parse(request).map_or(-1, |request| request.id);
        assert_eq!(read(responses.next().unwrap()).id, id);
    }
    assert!(responses.next().is_none());

    let count = |event| log.events().iter().filter(|&&logged| logged == event).count();
    assert_eq!(count(Event::Created), count(Event::Dropped));
}

fn read(line: &[u8]) -> Response {
    let response = Response::parse(line).unwrap();
    assert_eq!(response.to_line().unwrap(), line);
    assert_eq!(response.nonce.as_deref(), Some(NONCE));
    assert_eq!(response.ok, response.error.is_none());
    response
}
