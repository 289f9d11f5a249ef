//! One request of the resident wire and its answer, without a socket.

use bench_protocol::{Line, MAX_LINE_BYTES};

use crate::target::{MAX_CYCLE_TOKENS, Target, TargetError};

use super::wire::{Answer, Hello, Op, Reply, write_answer};

/// What follows an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next request.
    Go,
    /// The end of this connection: the client said `bye`.
    Close,
    /// The end of the process: the engine is past use.
    Die,
}

/// Answers one line of a client: the reply line, and what follows it. A request that cannot be understood, or that the
/// target refuses, is answered `ok:false` and changes nothing about the connection. The end of a stream has no answer.
pub fn answer(target: &mut dyn Target, load_epoch: u32, line: Line<'_>) -> Option<(Vec<u8>, Then)> {
    let parsed = match line {
        Line::Text(bytes) => Op::parse(bytes),
        Line::TooLong => Err(format!("request is longer than {} bytes", MAX_LINE_BYTES)),
        Line::End => return None,
    };
    let (answer, then): (Answer, Then) = match parsed {
        Err(why) => (Err(why), Then::Go),
        Ok(op) => {
            let then = if op == Op::Bye { Then::Close } else { Then::Go };
            match perform(target, load_epoch, op) {
                Ok(reply) => (Ok(reply), then),
                Err(error) => (Err(error.one_line()), if error.is_fatal() { Then::Die } else { Then::Go }),
            }
        }
    };
    Some((write_answer(&answer), then))
}

fn perform(target: &mut dyn Target, load_epoch: u32, op: Op) -> Result<Reply, TargetError> {
    let reply = match op {
        Op::Hello => Reply::Hello(Hello::of(target.facts(), load_epoch)),
        Op::Invalidate => {
            target.invalidate();
            Reply::Done
        }
        Op::Sync { tokens } => Reply::Token(target.sync(&tokens)?),
        Op::Eval { token } => Reply::Token(target.eval(token)?),
        Op::Argmax => Reply::Token(target.argmax().ok_or(TargetError::NoPrompt)?),
        Op::TopLogits { k } => {
            let top = target.top_logits(k);
            if top.is_empty() {
                return Err(TargetError::NoPrompt);
            }
            Reply::TopLogits(top)
        }
        Op::EvalSpeculative { first_token, budget } => {
            let budget = budget.min(MAX_CYCLE_TOKENS as u32);
            let cycle = target.eval_speculative(first_token, budget)?;
            Reply::Cycle { tokens: cycle.committed, token: cycle.next }
        }
        Op::SpecCounters => Reply::Counters(target.counters()),
        Op::Bye => Reply::Done,
    };
    target.fault()?;
    Ok(reply)
}
