//! The worker's side of the socket.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench_protocol::{Line, LineReader, MAX_LINE_BYTES};

use crate::target::{Counters, Cycle, Facts, Target, TargetError, Token};

use super::wire::{Answer, Hello, Op, Reply, read_answer, write_op};

/// How long a reply may take, and the resident may take to read a request (engine-protocol-v1.md 10).
pub const PATIENCE: Duration = Duration::from_secs(1800);

/// An engine in another process. Nothing is loaded here.
///
/// After a failure of the connection (its end, a reply that is none, silence) the state on the other side is not known, and
/// every later call fails with the same words. A refusal in the resident's own words leaves it usable; where the call could
/// not return it, the next one that can does.
#[derive(Debug)]
pub struct Resident {
    link: Link,
    socket: PathBuf,
    facts: Facts,
    load_epoch: u32,
    /// The frontier argmax: replies that move the state carry it, so that asking costs no round trip.
    frontier: Option<Token>,
    /// Why the connection is past use.
    broken: Option<String>,
    /// A refusal nobody has heard of yet.
    kept: Option<TargetError>,
}

/// A request out, a reply in.
#[derive(Debug)]
struct Link {
    stream: UnixStream,
    replies: LineReader<BufReader<UnixStream>>,
    patience: Duration,
}

impl Link {
    fn open(socket: &Path, patience: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let replies = LineReader::new(BufReader::new(stream.try_clone()?));
        Ok(Self { stream, replies, patience })
    }

    /// The outer error ends the connection.
    fn ask(&mut self, op: &Op) -> Result<Answer, String> {
        let (name, patience) = (op.name(), self.patience);
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no reply to {name} within {} s", patience.as_secs_f32())
            }
            _ => format!("the connection broke at {name}: {error}"),
        };
        self.stream.write_all(&write_op(op)).map_err(lost)?;
        match self.replies.read().map_err(lost)? {
            Line::Text(line) => read_answer(op, line),
            Line::TooLong => Err(format!("its reply to {name} is longer than {MAX_LINE_BYTES} bytes")),
            Line::End => Err(format!("it closed the connection at {name}")),
        }
    }
}

impl Resident {
    /// Connects and asks what is loaded. `patience` bounds each wait.
    pub fn attach(socket: &Path, patience: Duration) -> Result<Self, TargetError> {
        let mut link = Link::open(socket, patience)
            .map_err(|source| TargetError::Connect { socket: socket.to_owned(), source })?;
        let socket = socket.to_owned();
        let op = Op::Hello;
        match link.ask(&op) {
            Ok(Ok(Reply::Hello(hello))) => Ok(Self::of(link, socket, hello)),
            Ok(Ok(_)) => Err(TargetError::Resident { socket, what: "its reply to hello is another's".into() }),
            Ok(Err(why)) => Err(TargetError::Refused { op: op.name(), why }),
            Err(what) => Err(TargetError::Resident { socket, what }),
        }
    }

    fn of(link: Link, socket: PathBuf, hello: Hello) -> Self {
        let load_epoch = hello.load_epoch;
        Self { link, socket, facts: hello.into_facts(), load_epoch, frontier: None, broken: None, kept: None }
    }

    /// The resident's process id, which one load has for all its workers.
    pub fn load_epoch(&self) -> u32 {
        self.load_epoch
    }

    /// What a worker says on stderr once it is attached (engine-protocol-v1.md 10); `took` is how long that was.
    pub fn announcement(&self, took: Duration) -> String {
        format!(
            "attached to the resident engine {}: load epoch {}, nothing loaded in this process, in {:.3} ms",
            self.socket.display(),
            self.load_epoch,
            took.as_secs_f64() * 1e3
        )
    }

    fn ask(&mut self, op: &Op) -> Result<Reply, TargetError> {
        let lost = |what| TargetError::Resident { socket: self.socket.clone(), what };
        if let Some(what) = &self.broken {
            return Err(lost(what.clone()));
        }
        match self.link.ask(op) {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(why)) => Err(TargetError::Refused { op: op.name(), why }),
            Err(what) => {
                self.broken = Some(what.clone());
                Err(lost(what))
            }
        }
    }

    /// For operations that can return an error: an earlier one that could not be returned comes first.
    fn request(&mut self, op: &Op) -> Result<Reply, TargetError> {
        self.fault()?;
        self.frontier = None;
        self.ask(op)
    }

    /// For operations that cannot: what goes wrong is kept, unless something is kept already.
    fn query(&mut self, op: &Op) -> Option<Reply> {
        if self.kept.is_some() {
            return None;
        }
        match self.ask(op) {
            Ok(reply) => Some(reply),
            Err(error) => {
                self.kept = Some(error);
                None
            }
        }
    }

    fn moved_to(&mut self, reply: Reply, op: &Op) -> Result<Token, TargetError> {
        match reply {
            Reply::Token(token) => {
                self.frontier = Some(token);
                Ok(token)
            }
            _ => Err(self.mixed_up(op)),
        }
    }

    /// [`read_answer`] reads a reply by its request, so that this is not seen.
    fn mixed_up(&mut self, op: &Op) -> TargetError {
        let what = format!("its reply to {} is another's", op.name());
        self.broken = Some(what.clone());
        TargetError::Resident { socket: self.socket.clone(), what }
    }
}

impl Target for Resident {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn invalidate(&mut self) {
        self.frontier = None;
        self.query(&Op::Invalidate);
    }

    fn sync(&mut self, tokens: &[Token]) -> Result<Token, TargetError> {
        let op = Op::Sync { tokens: tokens.to_vec() };
        let reply = self.request(&op)?;
        self.moved_to(reply, &op)
    }

    fn eval(&mut self, token: Token) -> Result<Token, TargetError> {
        let op = Op::Eval { token };
        let reply = self.request(&op)?;
        self.moved_to(reply, &op)
    }

    fn argmax(&mut self) -> Option<Token> {
        if self.frontier.is_none()
            && let Some(Reply::Token(token)) = self.query(&Op::Argmax)
        {
            self.frontier = Some(token);
        }
        self.frontier
    }

    fn top_logits(&mut self, k: usize) -> Vec<(Token, f32)> {
        match self.query(&Op::TopLogits { k }) {
            Some(Reply::TopLogits(top)) => top,
            _ => Vec::new(),
        }
    }

    fn arm(&mut self, depth: u32) -> Result<(), TargetError> {
        self.facts.drafting.check(depth)
    }

    fn eval_speculative(&mut self, first: Token, budget: u32) -> Result<Cycle, TargetError> {
        let op = Op::EvalSpeculative { first_token: first, budget };
        match self.request(&op)? {
            Reply::Cycle { tokens, token } => {
                self.frontier = Some(token);
                Ok(Cycle { committed: tokens, next: token })
            }
            _ => Err(self.mixed_up(&op)),
        }
    }

    fn counters(&mut self) -> Counters {
        match self.query(&Op::SpecCounters) {
            Some(Reply::Counters(counters)) => counters,
            _ => Counters::default(),
        }
    }

    fn fault(&mut self) -> Result<(), TargetError> {
        self.kept.take().map_or(Ok(()), Err)
    }
}
