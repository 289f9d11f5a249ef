//! `cuda-engine resident`: load once, then serve (engine-protocol-v1.md 10, track-contract.md 12.3).

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::target::{Stub, Target, Token};

use super::error::ResidentError;
use super::server::{Server, ServerOptions};
use super::stop::Stop;
use super::wire::SOCKET_PATH_BYTES;

/// The flags of `cuda-engine resident`.
///
/// Numbers are read by [`run`](Self::run), not by clap: the socket and the model are looked at first.
#[derive(Debug, clap::Args)]
pub struct ResidentArgs {
    /// Path of the socket to listen at
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A .gguf file, a directory that holds one model, or `embedded`
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// The draft head; left out: the one beside the model. Loaded only with 2 draft tokens or more
    #[arg(long, value_name = "FILE")]
    mtp_model: Option<PathBuf>,
    /// Tokens of a cycle, 1 to 16: the depth of drafting and one more. 1 drafts nothing
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    draft_tokens: String,
    /// Most tokens of the timeline, 256 or more; left out: 8192, or the trained context where that is less
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    ctx_tokens: Option<String>,
    /// Ids that end a correctness run, besides the model's own, separated by commas
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    stop_ids: Option<String>,
    /// What the model runs on: cpu, cuda, or cuda:N for card N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Worker threads on the CPU; 0 = every core
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    threads: String,
    /// Seconds that a client may be silent
    #[arg(long, value_name = "S", default_value = "1800", allow_hyphen_values = true)]
    idle_timeout_s: String,
    /// Written once clients can connect; holds the socket's path
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// What to call this engine towards workers
    #[arg(long, value_name = "TEXT", default_value = env!("CARGO_PKG_VERSION"))]
    ident: String,
    /// Serve the engine of one number that tests use, and call it `stub`
    #[arg(long, hide = true)]
    stub: bool,
}

/// What was asked for, checked.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    socket: PathBuf,
    /// `None`: the stub.
    model: Option<PathBuf>,
    mtp_model: Option<PathBuf>,
    draft_tokens: u32,
    ctx_tokens: Option<usize>,
    stop_ids: Vec<Token>,
    threads: usize,
    device: String,
    idle: Duration,
    ready_file: Option<PathBuf>,
    ident: String,
}

/// Most worker threads: more than any machine has cores would only hang it.
const MAX_THREADS: u64 = 1024;

impl ResidentArgs {
    /// Loads, serves until a signal comes, and leaves neither socket nor ready file behind.
    pub fn run(self) -> Result<(), ResidentError> {
        serve(&self.plan()?)
    }

    /// The socket first, then the model, then the numbers: the order of engine-protocol-v1.md 10.
    fn plan(self) -> Result<Plan, ResidentError> {
        let socket = self.socket.filter(|path| !path.as_os_str().is_empty());
        let socket = socket.ok_or(ResidentError::Missing { flag: "socket" })?;
        let found = socket.as_os_str().len();
        if found > SOCKET_PATH_BYTES {
            return Err(ResidentError::SocketTooLong { path: socket, found });
        }
        let model = self.model.filter(|path| !path.as_os_str().is_empty());
        if model.is_none() && !self.stub {
            return Err(ResidentError::Missing { flag: "model" });
        }
        let draft_tokens = number("draft-tokens", &self.draft_tokens, 1..=16, "an integer from 1 to 16")?;
        let ctx_tokens = self.ctx_tokens.as_deref();
        let ctx_tokens = ctx_tokens
            .map(|text| number("ctx-tokens", text, 256..=u64::from(u32::MAX), "an integer, 256 or more"))
            .transpose()?;
        let stop_ids = match self.stop_ids.as_deref() {
            None | Some("") => Vec::new(),
            Some(text) => stop_ids(text)?,
        };
        let threads = number("threads", &self.threads, 0..=MAX_THREADS, "an integer from 0 to 1024, 0 = every core")?;
        let idle = number("idle-timeout-s", &self.idle_timeout_s, 1..=1_000_000, "an integer of seconds, 1 or more")?;
        Ok(Plan {
            socket,
            model: if self.stub { None } else { model },
            mtp_model: self.mtp_model,
            draft_tokens: draft_tokens as u32,
            ctx_tokens: ctx_tokens.map(|tokens| tokens as usize),
            stop_ids,
            threads: threads as usize,
            device: self.device,
            idle: Duration::from_secs(idle),
            ready_file: self.ready_file,
            ident: self.ident,
        })
    }
}

fn number(
    flag: &'static str,
    text: &str,
    range: std::ops::RangeInclusive<u64>,
    wanted: &'static str,
) -> Result<u64, ResidentError> {
    let refused = || ResidentError::Number { flag, found: text.to_owned(), wanted };
    text.trim().parse().ok().filter(|n| range.contains(n)).ok_or_else(refused)
}

fn stop_ids(text: &str) -> Result<Vec<Token>, ResidentError> {
    let id = |part: &str| part.trim().parse::<Token>().ok().filter(|id| *id >= 0);
    let refused =
        || ResidentError::Number { flag: "stop-ids", found: text.to_owned(), wanted: "token ids separated by commas" };
    text.split(',').map(|part| id(part).ok_or_else(refused)).collect()
}

fn serve(plan: &Plan) -> Result<(), ResidentError> {
    let stop = Stop::new().map_err(ResidentError::Signals)?;
    match &plan.model {
        None => {
            let ctx_tokens = plan.ctx_tokens.unwrap_or(8192);
            let mut stub = Stub::new(plan.draft_tokens, ctx_tokens, &plan.stop_ids, &plan.ident).announced();
            stop.on_signals(|| {}).map_err(ResidentError::Signals)?;
            serve_target(plan, &mut stub, &stop)
        }
        Some(model) => serve_model(plan, model, &stop),
    }
}

#[cfg(feature = "engine")]
fn serve_model(plan: &Plan, model: &std::path::Path, stop: &Stop) -> Result<(), ResidentError> {
    use crate::target::Drafting;
    use crate::target::engine::{Choice, InProcess};
    let choice = Choice {
        model: model.to_owned(),
        mtp_model: plan.mtp_model.clone(),
        drafting: Drafting::of_resident(plan.draft_tokens),
        ctx_tokens: plan.ctx_tokens,
        stop_ids: plan.stop_ids.clone(),
        threads: plan.threads,
        device: plan.device.parse()?,
    };
    let mut engine = InProcess::open(&choice, &plan.ident)?;
    // Only now: until here a signal ends the process at once, and there is nothing to take away.
    let cancel = engine.cancel_flag();
    stop.on_signals(move || cancel.raise()).map_err(ResidentError::Signals)?;
    serve_target(plan, &mut engine, stop)
}

#[cfg(not(feature = "engine"))]
fn serve_model(_: &Plan, model: &std::path::Path, _: &Stop) -> Result<(), ResidentError> {
    Err(ResidentError::NoEngine { model: model.to_owned() })
}

fn serve_target(plan: &Plan, target: &mut dyn Target, stop: &Stop) -> Result<(), ResidentError> {
    let options = ServerOptions { socket: plan.socket.clone(), ready_file: plan.ready_file.clone(), idle: plan.idle };
    let server = Server::start(options)?;
    // For people; that nobody reads it is no reason to end.
    let _ = writeln!(io::stderr(), "cuda-engine: {}", Started { plan, target });
    server.serve(target, stop)
}

/// The line that says what is served where.
struct Started<'a> {
    plan: &'a Plan,
    target: &'a dyn Target,
}

impl fmt::Display for Started<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (facts, socket) = (self.target.facts(), self.plan.socket.display());
        let (model, device, drafts) = (&facts.model_path, &facts.device, facts.drafting.draft_tokens());
        write!(
            f,
            "serving {model} on {device} with {drafts} draft tokens at {socket}, load epoch {}",
            std::process::id()
        )
    }
}
