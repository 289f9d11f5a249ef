//! The worker, request by request over a mock in this process, and as the program that a benchmarker spawns
//! (engine-protocol-v1.md 2, 3, 6, 9 and 11).
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod fields;
mod phases;
mod process;
mod refusals;
mod run;
mod spec;
mod stream;
mod transcript;

use bench_protocol::Response;
use cuda_engine::mock::{Knobs, Lifecycle, Mock};
use cuda_engine::worker::{Backend, Worker};

/// The nonce of the transcripts.
pub(crate) const NONCE: &str = "5f1c0e77a2b94d10";

/// A worker and the ids of a well-behaved benchmarker.
pub(crate) struct Session<B> {
    pub(crate) worker: Worker<B>,
    next_id: i64,
}

impl<B: Backend> Session<B> {
    pub(crate) fn over(backend: B) -> Self {
        Self { worker: Worker::new(backend, NONCE.to_owned()), next_id: 1 }
    }

    /// Sends a line as it is.
    pub(crate) fn line(&mut self, line: &str) -> Response {
        let written = self.worker.answer(line.as_bytes()).unwrap();
        let response = Response::parse(&written).unwrap();
        assert_eq!(response.to_line().unwrap(), written, "a response is canonical");
        assert_eq!(response.nonce.as_deref(), Some(NONCE));
        assert_eq!(response.ok, response.error.is_none());
        response
    }

    /// Sends the fields behind a fresh id, which the response must carry.
    pub(crate) fn ask(&mut self, fields: &str) -> Response {
        let id = self.next_id;
        self.next_id += 1;
        let response = self.line(&format!(r#"{{"id":{id},{fields}}}"#));
        assert_eq!(response.id, id, "{fields}: {:?}", response.error);
        response
    }

    pub(crate) fn carried_out(&mut self, fields: &str) -> Response {
        let response = self.ask(fields);
        assert!(response.ok, "{fields}: {:?}", response.error);
        response
    }

    pub(crate) fn refused(&mut self, fields: &str) -> String {
        self.ask(fields).error.unwrap_or_else(|| panic!("{fields} was carried out"))
    }

    /// `completed_work` of the barrier.
    pub(crate) fn close(&mut self) -> u64 {
        self.carried_out(CLOSE).completed_work.unwrap()
    }

    pub(crate) fn has_no_phase(&mut self) -> bool {
        self.refused(CLOSE) == "phase_diagnostics with no open phase to close"
    }
}

pub(crate) const CLOSE: &str = r#""kind":"phase_diagnostics""#;

/// Every opener, the name of its phase, and what is the phase's own.
pub(crate) const OPENERS: [(&str, &str); 5] = [
    (r#""kind":"prefill","prompt_tokens":[1,2]"#, "Prefill"),
    (r#""kind":"decode_begin","seed_tokens":[1,2]"#, "Decode"),
    (r#""kind":"correctness","prompt_tokens":[1,2],"steps":3"#, "CorrectnessFreeRun"),
    (r#""kind":"correctness_begin","prompt_tokens":[1,2]"#, "CorrectnessAnchor"),
    (r#""kind":"free_decode_begin","seed_tokens":[1,2]"#, "FreeRun"),
];

/// Every verb that needs a phase: its fields, its name, the phase.
pub(crate) const STEPS: [(&str, &str, &str); 3] = [
    (r#""kind":"decode_step","token":5"#, "decode_step", "Decode"),
    (r#""kind":"correctness_step","token":5"#, "correctness_step", "CorrectnessAnchor"),
    (r#""kind":"free_decode_run","count":4"#, "free_decode_run", "FreeRun"),
];

pub(crate) fn mock() -> Session<Mock> {
    Session::over(Mock::default())
}

/// A mock that misbehaves as told, and its log.
pub(crate) fn told(knobs: Knobs) -> (Session<Mock>, Lifecycle) {
    let mock = Mock::new(knobs);
    let log = mock.lifecycle();
    (Session::over(mock), log)
}
