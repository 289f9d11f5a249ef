use std::io::{BufRead, Write};

use bench_protocol::{
    FREE_RUN_DECODE, Hello, LenientSpec, Line, LineReader, MAX_LINE_BYTES, Request, Response, SpecMode, UNREADABLE_ID,
    UNREADABLE_PREFIX, is_blank,
};

use crate::Error;
use crate::worker::backend::Backend;
use crate::worker::fields;
use crate::worker::phase::Phase;

/// Longest refusal in bytes. It may quote the request, which may be as long as a line.
const MAX_ERROR_BYTES: usize = 2048;

/// The engine's end of one session.
pub struct Worker<B> {
    pub(super) backend: B,
    pub(super) phase: Option<Phase>,
    nonce: String,
}

/// 16 hexadecimal digits that nobody can have foreseen (engine-protocol-v1.md 6, rule 12).
pub fn make_nonce() -> Result<String, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::Stream(error.into()))?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

impl<B: Backend> Worker<B> {
    /// A worker over an engine that is ready. Tests pin the nonce; see [`make_nonce`].
    pub fn new(backend: B, nonce: String) -> Self {
        Self { backend, phase: None, nonce }
    }

    /// The engine.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The first line.
    pub fn hello(&self) -> Result<Vec<u8>, Error> {
        let identity = self.backend.identity();
        let mut modes = vec![SpecMode::Serial];
        if self.backend.why_serial_only().is_none() {
            modes.push(SpecMode::Mtp);
        }
        let hello = Hello {
            nonce: self.nonce.clone(),
            backend: identity.backend,
            device: identity.device,
            capabilities: vec![FREE_RUN_DECODE.to_owned()],
            spec_modes: modes.into_iter().map(|mode| mode.name().to_owned()).collect(),
            head_provenance: identity.head_provenance,
            runner: identity.runner,
            resident: identity.resident,
        };
        hello.into_response().to_line().map_err(Error::Unwritable)
    }

    /// Hello, then an answer to each line until the stream ends; what is open then is discarded and nothing more is said.
    /// Errors: those of the streams alone.
    pub fn serve(&mut self, requests: impl BufRead, mut responses: impl Write) -> Result<(), Error> {
        let done = self.exchange(&mut LineReader::new(requests), &mut responses);
        self.discard();
        done
    }

    fn exchange(&mut self, requests: &mut LineReader<impl BufRead>, responses: &mut impl Write) -> Result<(), Error> {
        let mut line = self.hello()?;
        loop {
            responses.write_all(&line)?;
            responses.flush()?;
            line = loop {
                match requests.read()? {
                    Line::End => return Ok(()),
                    Line::Text(text) if is_blank(text) => {}
                    Line::Text(text) => break self.answer(text)?,
                    Line::TooLong => break self.answer_to_a_line_too_long()?,
                }
            };
        }
    }

    /// The response line to a request line that is not blank.
    pub fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let request = match Request::<LenientSpec>::parse(request) {
            Ok(request) => request,
            Err(error) => return self.unreadable(&error.to_string()),
        };
        let id = request.id;
        let response = Response::ok(id, &self.nonce);
        let carried_out = fields::read(request).and_then(|(verb, asked)| self.carry_out(verb, asked, response));
        match carried_out.and_then(|response| response.to_line().map_err(Error::Unwritable)) {
            Ok(line) => Ok(line),
            Err(error) => self.refuse(id, error.to_string()),
        }
    }

    fn answer_to_a_line_too_long(&mut self) -> Result<Vec<u8>, Error> {
        self.unreadable(&format!("it is longer than {MAX_LINE_BYTES} bytes"))
    }

    fn unreadable(&mut self, why: &str) -> Result<Vec<u8>, Error> {
        self.refuse(UNREADABLE_ID, format!("{UNREADABLE_PREFIX}{why}"))
    }

    /// Any error ends the phase and only that (engine-protocol-v1.md 6, rules 4 and 5).
    fn refuse(&mut self, id: i64, error: String) -> Result<Vec<u8>, Error> {
        self.discard();
        Response::failed(id, &self.nonce, clip(error)).to_line().map_err(Error::Unwritable)
    }

    /// Ends the phase, if there is one.
    pub(super) fn discard(&mut self) {
        if self.phase.take().is_some() {
            self.backend.close();
        }
    }
}

fn clip(mut text: String) -> String {
    if text.len() > MAX_ERROR_BYTES {
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
        text.push_str("...");
    }
    text
}
