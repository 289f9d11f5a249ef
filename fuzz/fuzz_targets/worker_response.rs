//! Any bytes as what a worker answers, checked as a session checks it.

#![no_main]

use bench_protocol::{Line, LineReader, Request, is_noise};
use bench_runner::check_response;
use libfuzzer_sys::fuzz_target;

const NONCE: &str = "n";

fuzz_target!(|data: &[u8]| {
    let mut lines = LineReader::new(data);
    let mut request = Request { id: 1, kind: "prefill".into(), ..Request::default() };
    while let Ok(Line::Text(line)) = lines.read() {
        if is_noise(line) {
            continue;
        }
        match check_response(line, &request, NONCE) {
            Ok(response) => {
                assert!(response.ok && response.id == request.id && response.nonce.as_deref() == Some(NONCE));
                request.id += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(!error.name().is_empty() && text.len() < 8192, "{text}");
            }
        }
    }
});
