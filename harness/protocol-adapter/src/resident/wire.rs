//! What crosses the socket: one JSON object a line, in each direction (engine-protocol-v1.md 10).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::target::{Counters, Drafting, Facts, Token, nine_digits};

/// Bytes of a Unix socket's path, the closing zero left out (`sun_path`).
pub const SOCKET_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Most logits one request may ask for.
pub const MAX_TOP_LOGITS: usize = 64;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// What was loaded.
    Hello,
    /// Forget the tokens.
    Invalidate,
    /// Run a prompt.
    Sync {
        /// Its tokens.
        tokens: Vec<Token>,
    },
    /// Run one token.
    Eval {
        /// It.
        token: Token,
    },
    /// The greedy choice.
    Argmax,
    /// The largest logits.
    TopLogits {
        /// How many, 1 to 64.
        k: usize,
    },
    /// Run one speculative cycle.
    EvalSpeculative {
        /// The token to feed.
        first_token: Token,
        /// Most tokens to commit.
        budget: u32,
    },
    /// Counts so far.
    SpecCounters,
    /// Close the connection.
    Bye,
}

/// A request line, its values not looked at yet: a list of ids may have megabytes. Keys that no operation has are ignored.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    op: Option<&'a RawValue>,
    #[serde(borrow)]
    tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    token: Option<&'a RawValue>,
    #[serde(borrow)]
    k: Option<&'a RawValue>,
    #[serde(borrow)]
    first_token: Option<&'a RawValue>,
    #[serde(borrow)]
    budget: Option<&'a RawValue>,
}

/// Reads an object: what is derived would take an array of values for one as well.
fn object<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, serde_json::Error> {
    match line.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(line),
        _ => Err(serde::de::Error::custom("not a JSON object")),
    }
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl Op {
    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Invalidate => "invalidate",
            Self::Sync { .. } => "sync",
            Self::Eval { .. } => "eval",
            Self::Argmax => "argmax",
            Self::TopLogits { .. } => "top_logits",
            Self::EvalSpeculative { .. } => "eval_speculative",
            Self::SpecCounters => "spec_counters",
            Self::Bye => "bye",
        }
    }

    /// A request line; the error is the text of the refusal.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let none = |why: &dyn fmt::Display| format!("request carries no \"op\" string: {why}");
        let fields: Fields<'_> = object(line).map_err(|error| none(&error))?;
        let op: String = read(fields.op).ok_or("request carries no \"op\" string")?;
        Ok(match op.as_str() {
            "hello" => Self::Hello,
            "invalidate" => Self::Invalidate,
            "sync" => {
                Self::Sync { tokens: read(fields.tokens).ok_or("sync needs \"tokens\", an array of 32-bit integers")? }
            }
            "eval" => Self::Eval { token: read(fields.token).ok_or("eval needs \"token\", a 32-bit integer")? },
            "argmax" => Self::Argmax,
            "top_logits" => {
                let k = read(fields.k).filter(|k| (1..=MAX_TOP_LOGITS).contains(k));
                Self::TopLogits { k: k.ok_or("top_logits needs \"k\", an integer from 1 to 64")? }
            }
            "eval_speculative" => match (read(fields.first_token), read(fields.budget)) {
                (Some(first_token), Some(budget)) => Self::EvalSpeculative { first_token, budget },
                _ => return Err("eval_speculative needs \"first_token\" and \"budget\", integers".into()),
            },
            "spec_counters" => Self::SpecCounters,
            "bye" => Self::Bye,
            other => return Err(format!("unknown op {:?}", other.chars().take(64).collect::<String>())),
        })
    }
}

/// What `hello` tells. `stop_ids` and `device` are ours: a worker that loads nothing has them from nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Ids are below this.
    pub vocab_size: usize,
    /// The model's end token, -1 where it has none.
    pub eos_token: Token,
    /// Whether cycles draft: `draft_tokens >= 2`.
    pub mtp_armed: bool,
    /// Tokens of a cycle, the fed one included.
    pub draft_tokens: u32,
    /// Most tokens of the timeline.
    pub ctx_size: usize,
    /// The resident's process id: one load has one.
    pub load_epoch: u32,
    /// What was loaded, in words.
    pub ident: String,
    /// The model's file or name.
    pub model_path: String,
    /// The draft head's; empty where none is loaded.
    pub mtp_head_path: String,
    /// Ids that end a correctness run.
    pub stop_ids: Vec<Token>,
    /// `cpu <isa>`, `cuda sm_NN`, `none`.
    pub device: String,
}

impl Hello {
    /// Of a target that process `load_epoch` owns.
    pub fn of(facts: &Facts, load_epoch: u32) -> Self {
        let draft_tokens = facts.drafting.draft_tokens();
        Self {
            vocab_size: facts.vocab,
            eos_token: facts.eos.unwrap_or(-1),
            mtp_armed: draft_tokens >= 2,
            draft_tokens,
            ctx_size: facts.ctx_tokens,
            load_epoch,
            ident: facts.ident.clone(),
            model_path: facts.model_path.clone(),
            mtp_head_path: facts.mtp_head_path.clone(),
            stop_ids: facts.stop_ids.clone(),
            device: facts.device.clone(),
        }
    }

    /// The facts of a target that is reached through the resident.
    pub fn into_facts(self) -> Facts {
        Facts {
            backend: format!("cudafast-resident load_epoch={} {}", self.load_epoch, self.ident),
            device: self.device,
            ident: self.ident,
            vocab: self.vocab_size,
            eos: (self.eos_token >= 0).then_some(self.eos_token),
            stop_ids: self.stop_ids,
            drafting: Drafting::of_resident(self.draft_tokens),
            ctx_tokens: self.ctx_size,
            model_path: self.model_path,
            mtp_head_path: self.mtp_head_path,
            resident_pid: Some(self.load_epoch),
        }
    }
}

/// One reply that is `ok`.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To `hello`.
    Hello(Hello),
    /// To `invalidate` and `bye`.
    Done,
    /// To `sync`, `eval` and `argmax`: the frontier argmax.
    Token(Token),
    /// To `top_logits`.
    TopLogits(Vec<(Token, f32)>),
    /// To `eval_speculative`.
    Cycle {
        /// What was committed.
        tokens: Vec<Token>,
        /// The frontier argmax.
        token: Token,
    },
    /// To `spec_counters`.
    Counters(Counters),
}

/// Every reply there is, as it is written: the keys of the one that is meant.
#[derive(Serialize)]
struct Written<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    hello: Option<&'a Hello>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<Token>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<Vec<Box<RawValue>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<&'a [Token]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    counters: Option<WireCounters>,
}

#[derive(Serialize, Deserialize)]
struct WireCounters {
    drafts: u64,
    hits: u64,
    quenches: u64,
    disagreements: u64,
}

/// A reply line before it is known what it answers.
#[derive(Deserialize)]
struct Outcome {
    ok: bool,
    error: Option<String>,
}

#[derive(Deserialize)]
struct WireToken {
    token: Token,
}

#[derive(Deserialize)]
struct WireTop {
    ids: Vec<Token>,
    logits: Vec<f64>,
}

#[derive(Deserialize)]
struct WireCycle {
    tokens: Vec<Token>,
    token: Token,
}

/// What a reply line says: the reply, or the other side's refusal in its own words.
pub type Answer = Result<Reply, String>;

/// The line of an answer, with its end.
pub fn write_answer(answer: &Answer) -> Vec<u8> {
    let mut written = Written {
        ok: answer.is_ok(),
        error: answer.as_ref().err().map(String::as_str),
        hello: None,
        ids: None,
        logits: None,
        tokens: None,
        token: None,
        counters: None,
    };
    match answer {
        Err(_) | Ok(Reply::Done) => {}
        Ok(Reply::Hello(hello)) => written.hello = Some(hello),
        Ok(Reply::Token(token)) => written.token = Some(*token),
        Ok(Reply::TopLogits(top)) => {
            written.ids = Some(top.iter().map(|(id, _)| *id).collect());
            // A value that is no number has no JSON; null is refused by the reader.
            let number = |(_, logit): &(Token, f32)| RawValue::from_string(nine_digits(*logit)).unwrap_or_default();
            written.logits = Some(top.iter().map(number).collect());
        }
        Ok(Reply::Cycle { tokens, token }) => {
            (written.tokens, written.token) = (Some(tokens.as_slice()), Some(*token));
        }
        Ok(Reply::Counters(Counters { drafts, hits, quenches, disagreements })) => {
            let (drafts, hits, quenches, disagreements) = (*drafts, *hits, *quenches, *disagreements);
            written.counters = Some(WireCounters { drafts, hits, quenches, disagreements });
        }
    }
    // Strings, integers and checked numbers: nothing here that JSON cannot say.
    let mut line = serde_json::to_vec(&written).unwrap_or_else(|_| br#"{"ok":false}"#.to_vec());
    line.push(b'\n');
    line
}

/// Reads the reply to `op`. The outer error says how the line is no reply to it.
pub fn read_answer(op: &Op, line: &[u8]) -> Result<Answer, String> {
    let wrong = |error: serde_json::Error| format!("its reply to {} cannot be read: {error}", op.name());
    let outcome: Outcome = object(line).map_err(wrong)?;
    if !outcome.ok {
        return Ok(Err(outcome.error.unwrap_or_else(|| "no reason given".into())));
    }
    let reply = match op {
        Op::Hello => Reply::Hello(object(line).map_err(wrong)?),
        Op::Invalidate | Op::Bye => Reply::Done,
        Op::Sync { .. } | Op::Eval { .. } | Op::Argmax => Reply::Token(object::<WireToken>(line).map_err(wrong)?.token),
        Op::TopLogits { .. } => {
            let WireTop { ids, logits } = object(line).map_err(wrong)?;
            if ids.len() != logits.len() {
                return Err(format!("its reply to top_logits has {} ids and {} logits", ids.len(), logits.len()));
            }
            // The decimal names an f32: narrowing gives that one back (see `nine_digits`).
            Reply::TopLogits(ids.into_iter().zip(logits.into_iter().map(|logit| logit as f32)).collect())
        }
        Op::EvalSpeculative { .. } => {
            let WireCycle { tokens, token } = object(line).map_err(wrong)?;
            Reply::Cycle { tokens, token }
        }
        Op::SpecCounters => {
            let WireCounters { drafts, hits, quenches, disagreements } = object(line).map_err(wrong)?;
            Reply::Counters(Counters { drafts, hits, quenches, disagreements })
        }
    };
    Ok(Ok(reply))
}

/// The line of a request, with its end.
pub fn write_op(op: &Op) -> Vec<u8> {
    let mut line = serde_json::to_vec(op).unwrap_or_default();
    line.push(b'\n');
    line
}
