//! Small documents that tests start from, and an engine without a golden.

use crate::golden::author::Recording;
use bench_protocol::TopLogit;

use crate::engine::{Answer, Engine};
use crate::golden::{Case, ModelShape};
use crate::tape::Tape;

pub(crate) fn shape(seed_tokens: usize, vocab_size: i64) -> ModelShape {
    ModelShape { model_type: "m".into(), vocab_size, layers: 8, seed_tokens }
}

/// Counts from 0 in the case and down from the vocabulary's end in the timed block.
pub(crate) fn recording(shape: &ModelShape) -> Recording {
    let prompt: Vec<i64> = (1..=shape.seed_tokens as i64).collect();
    let tape = |decode_tokens| Tape { seed_tokens: prompt.clone(), seed_token: 0, decode_tokens };
    let up = |count: i64| (0..count).map(|token| token % shape.vocab_size).collect();
    let down = |count: i64| (0..count).map(|token| shape.vocab_size - 1 - token % shape.vocab_size).collect();
    Recording {
        provenance: None,
        cases: vec![Case { name: "story".into(), prompt_tokens: prompt.clone(), expected_tokens: up(129) }],
        benchmark: Some(tape(down(128)).into()),
    }
}

/// Chooses by the token before, second best the number after, and notes what it is asked.
pub(crate) struct Following {
    /// What follows a token; nothing does where the engine fails.
    pub(crate) next: fn(i64) -> Option<i64>,
    /// The last token of each prompt, and each step's.
    pub(crate) fed: Vec<i64>,
    pub(crate) phases: usize,
}

impl Following {
    pub(crate) fn new(next: fn(i64) -> Option<i64>) -> Self {
        Self { next, fed: Vec::new(), phases: 0 }
    }
}

impl Engine for Following {
    type Error = String;

    fn next_phase(&mut self) -> Result<(), String> {
        self.phases += 1;
        Ok(())
    }

    fn begin(&mut self, prompt: &[i64]) -> Result<Answer, String> {
        self.step(prompt[prompt.len() - 1])
    }

    fn step(&mut self, token: i64) -> Result<Answer, String> {
        self.fed.push(token);
        let token = (self.next)(token).ok_or("the engine is gone")?;
        let top_logits = [(token, 8.0), (token + 1, 6.0)].map(|(token, logit)| TopLogit { token, logit });
        Ok(Answer { token, top_logits: top_logits.into() })
    }

    fn free_run(&mut self, _: &[i64], _: usize) -> Result<Vec<i64>, String> {
        Err("asked to run free where it is to be stepped".into())
    }
}
