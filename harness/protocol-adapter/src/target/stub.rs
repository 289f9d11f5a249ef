//! An engine of one number, for tests without a model (engine-protocol-v1.md 10.1).

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counters, Cycle, Drafting, Facts, Target, TargetError, Token};

const FRESH: u64 = 0x9e37_79b9_7f4a_7c15;
const VOCAB: u64 = 1024;
const EOS: Token = 99;

/// Stubs that were announced in this process.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// The state is a hash of the tokens, and everything follows from it. It calls itself `stub` on the device `none`, so that
/// nobody takes it for an engine.
#[derive(Debug)]
pub struct Stub {
    facts: Facts,
    state: u64,
    counters: Counters,
    announced: bool,
}

impl Stub {
    /// `draft_tokens` 2 or more arms its drafter, which proposes one token whatever the depth. `ident` is what was asked
    /// for; `stub` comes before it.
    pub fn new(draft_tokens: u32, ctx_tokens: usize, stop_ids: &[Token], ident: &str) -> Self {
        let ident = format!("stub {ident}").trim_end().to_owned();
        let mut stop_ids = stop_ids.to_vec();
        if !stop_ids.contains(&EOS) {
            stop_ids.push(EOS);
        }
        let facts = Facts {
            backend: ident.clone(),
            device: "none".into(),
            ident,
            vocab: VOCAB as usize,
            eos: Some(EOS),
            stop_ids,
            drafting: Drafting::of_resident(draft_tokens),
            ctx_tokens,
            model_path: "stub".into(),
            mtp_head_path: if draft_tokens >= 2 { "stub".into() } else { String::new() },
            resident_pid: None,
        };
        Self { facts, state: FRESH, counters: Counters::default(), announced: false }
    }

    /// Writes `OPEN #n`, and then `INVALIDATE` and `CLOSE`, to stderr for tests to count.
    pub fn announced(mut self) -> Self {
        self.announced = true;
        announce(&format!("OPEN #{}", OPENED.fetch_add(1, Ordering::Relaxed) + 1));
        self
    }

    /// `u32(t)` of the definition: the id's 32 bits.
    fn fold(&mut self, token: Token) {
        self.state =
            (self.state ^ u64::from(token.cast_unsigned())).wrapping_mul(1_099_511_628_211).wrapping_add(12_345);
    }

    fn frontier(&self) -> Token {
        (self.state % 1022 + 1) as Token // below 1023
    }
}

/// One line on stderr; that nobody listens is no reason to end.
fn announce(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

impl Drop for Stub {
    fn drop(&mut self) {
        if self.announced {
            announce("CLOSE");
        }
    }
}

impl Target for Stub {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn invalidate(&mut self) {
        if self.announced {
            announce("INVALIDATE");
        }
        self.state = FRESH;
    }

    fn sync(&mut self, tokens: &[Token]) -> Result<Token, TargetError> {
        if tokens.is_empty() {
            return Err(TargetError::EmptyPrompt);
        }
        self.state = FRESH;
        tokens.iter().for_each(|token| self.fold(*token));
        Ok(self.frontier())
    }

    fn eval(&mut self, token: Token) -> Result<Token, TargetError> {
        self.fold(token);
        Ok(self.frontier())
    }

    fn argmax(&mut self) -> Option<Token> {
        Some(self.frontier())
    }

    fn top_logits(&mut self, k: usize) -> Vec<(Token, f32)> {
        let first = self.frontier();
        let row = (0..VOCAB as Token).map(|i| ((first + i) % VOCAB as Token, 8.5 - i as f32));
        row.take(k).collect()
    }

    fn arm(&mut self, depth: u32) -> Result<(), TargetError> {
        self.facts.drafting.check(depth)
    }

    fn eval_speculative(&mut self, first: Token, budget: u32) -> Result<Cycle, TargetError> {
        if budget == 0 {
            return Err(TargetError::Budget);
        }
        self.fold(first);
        let mut committed = vec![first];
        if self.facts.drafting != Drafting::None {
            self.counters.drafts += 1;
            if budget >= 2 && self.state.is_multiple_of(2) {
                let draft = self.frontier();
                self.fold(draft);
                committed.push(draft);
                self.counters.hits += 1;
            }
        }
        Ok(Cycle { committed, next: self.frontier() })
    }

    fn counters(&mut self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stub(draft_tokens: u32) -> Stub {
        Stub::new(draft_tokens, 8192, &[], "")
    }

    #[test]
    fn states_have_the_argmax_of_the_vectors() {
        let mut stub = stub(1);
        assert_eq!(stub.argmax(), Some(40));
        let vectors: [(&[Token], Token); 3] = [(&[11], 730), (&[11, 12, 13], 653), (&[1, 2, 3, 4], 588)];
        for (prompt, argmax) in vectors {
            assert_eq!(stub.sync(prompt).unwrap(), argmax, "{prompt:?}");
            assert_eq!(stub.argmax(), Some(argmax));
        }
        stub.invalidate();
        assert_eq!(stub.argmax(), Some(40));
    }

    #[test]
    fn eval_and_top_logits_have_the_values_of_the_vectors() {
        let mut stub = stub(1);
        stub.sync(&[11, 12, 13]).unwrap();
        assert_eq!(stub.eval(50).unwrap(), 836);
        let wanted: Vec<(Token, f32)> = (0..8).map(|i| (836 + i, 8.5 - i as f32)).collect();
        assert_eq!(stub.top_logits(8), wanted);
    }

    #[test]
    fn an_empty_prompt_and_an_empty_budget_are_refused() {
        assert!(matches!(stub(1).sync(&[]), Err(TargetError::EmptyPrompt)));
        assert!(matches!(stub(2).eval_speculative(1, 0), Err(TargetError::Budget)));
    }

    #[test]
    fn cycles_commit_the_serial_stream_and_count_their_drafts() {
        let mut serial = stub(1);
        let mut pending = serial.sync(&[11, 12, 13]).unwrap();
        let mut stream = Vec::new();
        while stream.len() < 6 {
            pending = serial.eval(pending).unwrap();
            stream.push(pending);
        }
        assert_eq!(stream, [11, 555, 921, 735, 1021, 467]);

        let mut drafting = stub(2);
        let mut pending = drafting.sync(&[11, 12, 13]).unwrap();
        let (mut drafted, mut lengths) = (Vec::new(), Vec::new());
        while drafted.len() < 6 {
            let cycle = drafting.eval_speculative(pending, 6 - drafted.len() as u32).unwrap();
            assert_eq!(cycle.committed[0], pending);
            drafted.extend_from_slice(&cycle.committed[1..]);
            drafted.push(cycle.next);
            lengths.push(cycle.committed.len());
            pending = cycle.next;
        }
        assert_eq!(drafted, stream);
        assert_eq!(lengths, [2, 2, 2]);
        assert_eq!(drafting.counters(), Counters { drafts: 3, hits: 3, quenches: 0, disagreements: 0 });
    }

    #[test]
    fn a_stub_never_looks_like_an_engine() {
        let stub = Stub::new(2, 8192, &[], "cudafast cpu avx512");
        assert!(stub.facts().backend.starts_with("stub "));
        assert_eq!((stub.facts().device.as_str(), stub.facts().model_path.as_str()), ("none", "stub"));
    }
}
