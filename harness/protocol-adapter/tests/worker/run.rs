//! What the worker demands of an engine before it repeats what the engine says (engine-protocol-v1.md 6, rule 10, and 6.1).

use cuda_engine::Error;
use cuda_engine::worker::{Backend, Depth, FreeRun, Identity, TokenId};
use proptest::prelude::*;

use crate::{OPENERS, Session};

/// An engine that says what it was told to, right or wrong.
#[derive(Debug, Clone, Default)]
struct Told {
    run: FreeRun,
    top: Vec<(TokenId, f32)>,
    stops: Vec<TokenId>,
    peak_ram_gb: f64,
    steps: u32,
}

impl Backend for Told {
    fn identity(&self) -> Identity {
        Identity::default()
    }
    fn why_serial_only(&self) -> Option<String> {
        None
    }
    fn mtp_depth(&self, requested: Option<u32>) -> Result<u32, Error> {
        match requested {
            Some(depth @ 4..) => Err(Error::Fault(format!("no rows for depth {depth}"))),
            other => Ok(other.unwrap_or(3)),
        }
    }
    fn open(&mut self) -> Result<u64, Error> {
        Ok(0)
    }
    fn close(&mut self) {}
    fn prefill(&mut self, prompt: &[TokenId]) -> Result<TokenId, Error> {
        prompt.last().copied().ok_or_else(|| Error::Fault("no tokens".to_owned()))
    }
    fn begin(&mut self, seed: &[TokenId], _: Depth) -> Result<TokenId, Error> {
        self.prefill(seed)
    }
    fn step(&mut self, token: TokenId) -> Result<TokenId, Error> {
        self.steps += 1;
        Ok(token + 1)
    }
    fn top_logits(&mut self, _: usize) -> Result<Vec<(TokenId, f32)>, Error> {
        Ok(self.top.clone())
    }
    fn free_run(&mut self, _: u32) -> Result<FreeRun, Error> {
        Ok(self.run.clone())
    }
    fn is_stop(&self, token: TokenId) -> bool {
        self.stops.contains(&token)
    }
    fn peak_ram_gb(&self) -> f64 {
        self.peak_ram_gb
    }
}

fn outcome(run: &FreeRun, count: u32) -> Result<(), String> {
    let mut session = Session::over(Told { run: run.clone(), ..Told::default() });
    session.carried_out(OPENERS[4].0);
    match session.ask(&format!(r#""kind":"free_decode_run","count":{count}"#)).error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Seven tokens in three rounds, as in engine-protocol-v1.md 11.3.
fn sound() -> FreeRun {
    FreeRun {
        tokens: (1..=7).collect(),
        acceptance_lengths: vec![3, 1, 3],
        drafted: 6,
        accepted: 4,
        committed: 7,
        disagreements: Some(2),
    }
}

#[test]
fn a_run_that_does_not_add_up_is_not_passed_on() {
    assert_eq!(outcome(&sound(), 7), Ok(()));
    let wrong = [
        (FreeRun { committed: 6, ..sound() }, "committed_total is 6, count 7"),
        (FreeRun { tokens: vec![1; 6], ..sound() }, "it has 6 tokens, count 7"),
        (FreeRun { tokens: vec![1; 8], ..sound() }, "it has 8 tokens, count 7"),
        (FreeRun { acceptance_lengths: vec![3, 1, 2], ..sound() }, "acceptance_lengths add up to 6, count 7"),
        (
            FreeRun { acceptance_lengths: vec![u32::MAX; 3], ..sound() },
            "acceptance_lengths add up to 12884901885, count 7",
        ),
        (FreeRun { accepted: 7, ..sound() }, "accepted_total 7 is above drafted_total 6"),
        (
            FreeRun { disagreements: Some(3), ..sound() },
            "verify_replay_disagreements 3 is above the 2 drafts that were not accepted",
        ),
    ];
    for (run, why) in wrong {
        assert_eq!(outcome(&run, 7), Err(format!("free_decode_run refuses its own answer: {why}")));
    }
}

#[test]
fn a_round_that_committed_nothing_and_absent_disagreements_are_no_error() {
    assert_eq!(outcome(&FreeRun { acceptance_lengths: vec![3, 0, 1, 3], ..sound() }, 7), Ok(()));
    assert_eq!(outcome(&FreeRun { disagreements: None, ..sound() }, 7), Ok(()));
    assert_eq!(outcome(&FreeRun { drafted: 4, accepted: 4, disagreements: Some(0), ..sound() }, 7), Ok(()));
}

#[test]
fn another_number_of_logits_than_eight_is_a_fault() {
    for found in [0, 1, 7, 9] {
        let mut session = Session::over(Told { top: vec![(1, 0.5); found], ..Told::default() });
        let wanted = format!("engine fault: engine returned {found} top logits, the protocol has exactly 8");
        assert_eq!(session.refused(OPENERS[3].0), wanted);
        assert!(session.has_no_phase());
    }
}

#[test]
fn a_number_that_json_has_not_is_a_fault_and_not_null() {
    for logit in [f32::NAN, f32::INFINITY] {
        let mut session = Session::over(Told { top: vec![(1, logit); 8], ..Told::default() });
        assert!(session.refused(OPENERS[3].0).starts_with("engine fault: "));
    }
    let mut session = Session::over(Told { peak_ram_gb: f64::NAN, ..Told::default() });
    assert!(session.refused(OPENERS[2].0).starts_with("engine fault: "));
    assert!(session.has_no_phase());
}

/// A correctness run ends behind a stop id, which it shows, or after its steps.
#[test]
fn a_correctness_run_stops_behind_a_stop_id() {
    let run = |stops: &[TokenId], steps: u32| {
        let mut session = Session::over(Told { stops: stops.to_vec(), ..Told::default() });
        let tokens =
            session.carried_out(&format!(r#""kind":"correctness","prompt_tokens":[5],"steps":{steps}"#)).tokens;
        (tokens.unwrap(), session.worker.backend().steps)
    };
    assert_eq!(run(&[8], 6), (vec![5, 6, 7, 8], 3));
    assert_eq!(run(&[5], 6), (vec![5], 0));
    assert_eq!(run(&[], 3), (vec![5, 6, 7], 2));
    assert_eq!(run(&[], 1), (vec![5], 0));
}

#[test]
fn the_engine_decides_a_depth_that_was_not_asked_for_and_may_refuse_one_that_was() {
    let begin = |spec: &str| {
        let mut session = Session::over(Told::default());
        session.ask(&format!(r#""kind":"free_decode_begin","seed_tokens":[1],"spec":{spec}"#))
    };
    let own = begin(r#"{"mode":"mtp"}"#);
    assert_eq!(own.effective_spec, Some(bench_protocol::SpecConfig::mtp(Some(3))));
    assert_eq!(
        begin(r#"{"mode":"mtp","mtp":{"depth":4}}"#).error.as_deref(),
        Some("engine fault: no rows for depth 4")
    );
}

proptest! {
    /// The worker and the benchmarker hold a run against the same sums (engine-protocol-v1.md 7, "Free-run close").
    #[test]
    fn a_run_is_passed_on_exactly_when_its_sums_hold(
        tokens in prop::collection::vec(0..9, 0..5),
        lengths in prop::collection::vec(0u32..4, 0..5),
        (drafted, accepted, committed) in (0u64..6, 0u64..6, 0u64..5),
        disagreements in prop::option::of(0u64..4),
        count in 1u32..5,
    ) {
        let wanted = u64::from(count);
        let holds = tokens.len() as u64 == wanted
            && committed == wanted
            && lengths.iter().sum::<u32>() == count
            && drafted >= accepted
            && disagreements.is_none_or(|found| accepted + found <= drafted);
        let run = FreeRun { tokens, acceptance_lengths: lengths, drafted, accepted, committed, disagreements };
        prop_assert_eq!(outcome(&run, count).is_ok(), holds);
    }
}
