//! What a timed leg is fed and what must come out of it (benchd.md 6).

use std::fmt;

use crate::golden::{Golden, prompt_name};
use crate::refusal::Refusal;
use crate::tape::Tape;

/// The prompts of a timed leg and the tokens that follow them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedOracle {
    /// Of the prefill phase.
    pub prefill_prompt: Vec<i64>,
    /// Follows it.
    pub prefill_token: i64,
    /// Of the decode phase.
    pub seed_tokens: Vec<i64>,
    /// The seed token and the timed steps behind it: what is emitted, one more than the steps.
    pub stream: Vec<i64>,
}

/// A golden, or a pair of them, that no leg can be timed against.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OracleError {
    /// The loader was not asked for one either.
    #[error("benchmark golden file must contain a benchmark oracle")]
    NoBenchmark,
    /// Nothing would be timed.
    #[error("a timed leg of no steps times nothing; ask for at least one")]
    NoSteps,
    /// Shorter than the leg.
    #[error("{need} steps are to be timed and the oracle has {found}; load the golden for the steps of the run")]
    Steps {
        /// Known tokens.
        found: usize,
        /// Wanted steps.
        need: usize,
    },
    /// Of a track that scores against a live control leg.
    #[error(
        "{}: benchmark has baseline_prefill_seconds_per_token; this track measures its baseline, record the golden again",
        Refusal::GoldenCarriesStoredBaseline
    )]
    StoredBaseline,
    /// The two legs would run different prompts.
    #[error(
        "{}: the candidate's golden is about {candidate}, the control leg's about {control}; pass the serial golden of that prompt",
        Refusal::ControlGoldenPromptMismatch
    )]
    ControlPrompt {
        /// Its prompt, or its prompt's first difference.
        candidate: String,
        /// The other's.
        control: String,
    },
}

impl OracleError {
    /// The refusal's name, if it has one.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::StoredBaseline => Some(Refusal::GoldenCarriesStoredBaseline),
            Self::ControlPrompt { .. } => Some(Refusal::ControlGoldenPromptMismatch),
            Self::NoBenchmark | Self::NoSteps | Self::Steps { .. } => None,
        }
    }
}

/// A token that is not the oracle's. Its text names no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenMismatch {
    /// Of the prefill phase.
    Prefill,
    /// What follows the decode phase's prompt.
    Seed,
    /// A timed step, from 0.
    Step(usize),
}

impl fmt::Display for TokenMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefill => f.write_str("benchmark prefill token mismatch"),
            Self::Seed => f.write_str("benchmark free-run decode seed token mismatch"),
            Self::Step(step) => write!(f, "benchmark free-run decode token mismatch at step {step}"),
        }
    }
}

impl TimedOracle {
    /// For `steps` timed steps: from the golden's timed block, or where that is shorter from its first case, which a local
    /// run of more steps than the block has is recorded with.
    pub fn of_golden(golden: &Golden, steps: usize) -> Result<Self, OracleError> {
        let block = golden.benchmark().ok_or(OracleError::NoBenchmark)?;
        let case = golden.cases().first().filter(|case| case.expected_tokens.len() > steps);
        match case {
            Some(case) if block.expected_decode_tokens.len() < steps => {
                let (prompt, expected) = (&case.prompt_tokens, &case.expected_tokens);
                let (&seed, decode) = expected.split_first().ok_or(OracleError::NoSteps)?;
                Self::new((prompt, seed), (prompt, seed, decode), steps)
            }
            _ => Self::new(
                (&block.prefill_prompt_tokens, block.expected_prefill_token),
                (&block.decode_seed_tokens, block.expected_decode_seed_token, &block.expected_decode_tokens),
                steps,
            ),
        }
    }

    /// For `steps` timed steps, from a tape: both phases run its prompt.
    pub fn of_tape(tape: &Tape, steps: usize) -> Result<Self, OracleError> {
        let (prompt, seed) = (&tape.seed_tokens, tape.seed_token);
        Self::new((prompt, seed), (prompt, seed, &tape.decode_tokens), steps)
    }

    fn new(prefill: (&[i64], i64), decode: (&[i64], i64, &[i64]), steps: usize) -> Result<Self, OracleError> {
        let ((prefill_prompt, prefill_token), (seed_tokens, seed, expected)) = (prefill, decode);
        if steps == 0 {
            return Err(OracleError::NoSteps);
        }
        let found = expected.len();
        let timed = expected.get(..steps).ok_or(OracleError::Steps { found, need: steps })?;
        Ok(Self {
            prefill_prompt: prefill_prompt.to_vec(),
            prefill_token,
            seed_tokens: seed_tokens.to_vec(),
            stream: [&[seed], timed].concat(),
        })
    }

    /// Timed steps.
    pub fn steps(&self) -> usize {
        self.stream.len() - 1
    }

    /// Whether the prefill phase's token is another.
    pub fn prefill_mismatch(&self, token: i64) -> Option<TokenMismatch> {
        (token != self.prefill_token).then_some(TokenMismatch::Prefill)
    }

    /// Where a stream, seed token first, leaves the oracle; a stream that ends early leaves it there. A control leg must not
    /// leave it at all (design 8); a candidate is then judged by [`crate::fidelity::judge_timed`].
    pub fn stream_mismatch(&self, stream: &[i64]) -> Option<TokenMismatch> {
        let at = (0..self.stream.len().max(stream.len())).find(|&at| self.stream.get(at) != stream.get(at))?;
        Some(at.checked_sub(1).map_or(TokenMismatch::Seed, TokenMismatch::Step))
    }
}

/// Refuses a golden that carries a baseline: a track with a live control leg measures its own (benchd.md 7).
pub fn expect_no_stored_baseline(golden: &Golden) -> Result<(), OracleError> {
    match golden.benchmark().is_some_and(|block| block.has_stored_baseline()) {
        true => Err(OracleError::StoredBaseline),
        false => Ok(()),
    }
}

/// Refuses a control leg's golden about another prompt than the candidate's: by file name, and by the prompts themselves
/// (benchd.md 4.2).
pub fn expect_same_prompt(
    (candidate_file, candidate): (&str, &TimedOracle),
    (control_file, control): (&str, &TimedOracle),
) -> Result<(), OracleError> {
    let (candidate_name, control_name) = (prompt_name(candidate_file), prompt_name(control_file));
    if candidate_name.is_none() || candidate_name != control_name {
        let shown =
            |file: &str, name: Option<&str>| name.map_or(format!("no prompt ({file:?})"), |name| format!("`{name}`"));
        let (candidate, control) = (shown(candidate_file, candidate_name), shown(control_file, control_name));
        return Err(OracleError::ControlPrompt { candidate, control });
    }
    for (key, a, b) in [
        ("prefill_prompt_tokens", &candidate.prefill_prompt, &control.prefill_prompt),
        ("decode_seed_tokens", &candidate.seed_tokens, &control.seed_tokens),
    ] {
        if a != b {
            let (candidate, control) = (format!("one {key}"), "another under the same name".into());
            return Err(OracleError::ControlPrompt { candidate, control });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden::Demands;
    use crate::testing::{recording, shape};

    fn golden() -> Golden {
        let shape = shape(3, 4096);
        let mut recording = recording(&shape);
        recording.cases[0].expected_tokens.extend(129..200);
        recording.author(&Demands::official(&shape)).unwrap().1
    }

    #[test]
    fn the_timed_block_is_the_oracle_and_the_first_case_where_it_is_too_short() {
        let golden = golden();
        let block = TimedOracle::of_golden(&golden, 128).unwrap();
        assert_eq!((block.steps(), block.stream[0], block.stream[1], block.stream[128]), (128, 0, 4095, 3968));
        assert_eq!((block.prefill_prompt.len(), block.prefill_token), (3, 0));
        let case = TimedOracle::of_golden(&golden, 199).unwrap();
        assert_eq!(case.stream, (0..200).collect::<Vec<i64>>());
        assert_eq!(TimedOracle::of_golden(&golden, 200), Err(OracleError::Steps { found: 128, need: 200 }));
        assert_eq!(TimedOracle::of_golden(&golden, 0), Err(OracleError::NoSteps));
        let tape = Tape { seed_tokens: vec![1, 2], seed_token: 3, decode_tokens: vec![4, 5] };
        assert_eq!(TimedOracle::of_tape(&tape, 2).unwrap().stream, [3, 4, 5]);
        assert_eq!(TimedOracle::of_tape(&tape, 3), Err(OracleError::Steps { found: 2, need: 3 }));
    }

    #[test]
    fn a_wrong_token_is_named_by_phase_and_step_alone() {
        let oracle = TimedOracle::of_golden(&golden(), 2).unwrap();
        assert_eq!(oracle.prefill_mismatch(0), None);
        let shown = |stream: &[i64]| oracle.stream_mismatch(stream).map(|wrong| wrong.to_string());
        assert_eq!(oracle.prefill_mismatch(7).unwrap().to_string(), "benchmark prefill token mismatch");
        assert_eq!(shown(&[0, 4095, 4094]), None);
        assert_eq!(shown(&[7, 4095, 9]).unwrap(), "benchmark free-run decode seed token mismatch");
        assert_eq!(shown(&[0, 4095, 9]).unwrap(), "benchmark free-run decode token mismatch at step 1");
        assert_eq!(shown(&[0]).unwrap(), "benchmark free-run decode token mismatch at step 0");
        assert_eq!(shown(&[0, 4095, 4094, 1]).unwrap(), "benchmark free-run decode token mismatch at step 2");
    }

    #[test]
    fn both_legs_run_one_prompt_by_name_and_by_tokens() {
        let oracle = TimedOracle::of_golden(&golden(), 2).unwrap();
        let check = |candidate: &str, control: &str, other: &TimedOracle| {
            expect_same_prompt((candidate, &oracle), (control, other)).map_err(|error| {
                assert_eq!(error.refusal(), Some(Refusal::ControlGoldenPromptMismatch));
                error.to_string()
            })
        };
        assert_eq!(check("botany.mtp2.golden.json", "botany.golden.json", &oracle), Ok(()));
        let refused = check("botany.mtp2.golden.json", "drama.golden.json", &oracle).unwrap_err();
        assert!(refused.starts_with("CONTROL-GOLDEN-PROMPT-MISMATCH: "), "{refused}");
        assert!(refused.contains("about `botany`, the control leg's about `drama`"), "{refused}");
        assert!(check(".golden.json", ".golden.json", &oracle).is_err());
        let mut other = oracle.clone();
        other.seed_tokens[1] += 1;
        let refused = check("botany.mtp2.golden.json", "botany.golden.json", &other).unwrap_err();
        assert!(refused.contains("about one decode_seed_tokens"), "{refused}");
    }

    #[test]
    fn a_stored_baseline_is_refused_by_name() {
        let shape = shape(3, 4096);
        let mut with = recording(&shape);
        let block = with.benchmark.as_mut().unwrap();
        block.baseline_prefill_seconds_per_token = Some(0.002);
        block.baseline_decode_seconds_per_token = Some(0.067);
        let with = with.author(&Demands::official(&shape)).unwrap().1;
        let error = expect_no_stored_baseline(&with).unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::GoldenCarriesStoredBaseline));
        assert!(error.to_string().starts_with("GOLDEN-CARRIES-STORED-BASELINE: "));
        expect_no_stored_baseline(&golden()).unwrap();
    }

    proptest! {
        #[test]
        fn a_stream_has_no_mismatch_exactly_when_it_is_the_oracles(stream in prop::collection::vec(0_i64..3, 0..6)) {
            let tape = Tape { seed_tokens: vec![1], seed_token: 0, decode_tokens: vec![1, 2, 1] };
            let oracle = TimedOracle::of_tape(&tape, 3).unwrap();
            prop_assert_eq!(oracle.stream_mismatch(&stream).is_none(), stream == oracle.stream);
        }
    }
}
