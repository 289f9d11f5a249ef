//! The gate against a scripted engine.

use bench_protocol::TopLogit;
use proptest::prelude::*;

use super::*;
use crate::golden::{Demands, ModelShape};
use crate::testing::shape;

const VOCAB: i64 = 1000;

/// Answers the golden's tokens, save where the script says otherwise, and notes what it was asked.
struct Scripted<'a> {
    golden: &'a Golden,
    /// Step of a case to another answer.
    wrong: &'a dyn Fn(&str, usize) -> Option<Answer>,
    case: usize,
    at: usize,
    free_run: Vec<i64>,
    anchor: Option<Answer>,
    log: Vec<String>,
}

/// 8 candidates, the token first.
fn answer(token: i64) -> Answer {
    let candidates = (0..8).map(|place| TopLogit { token: (token + place) % VOCAB, logit: 9.0 - place as f64 });
    Answer { token, top_logits: candidates.collect() }
}

impl Scripted<'_> {
    fn reply(&mut self) -> Result<Answer, String> {
        let case = &self.golden.cases()[self.case];
        let step = self.at;
        self.at += 1;
        Ok((self.wrong)(&case.name, step).unwrap_or_else(|| answer(case.expected_tokens[step])))
    }
}

impl Engine for Scripted<'_> {
    type Error = String;

    fn next_phase(&mut self) -> Result<(), String> {
        self.log.push("phase".into());
        Ok(())
    }

    fn begin(&mut self, prompt: &[i64]) -> Result<Answer, String> {
        self.log.push(format!("begin {}", prompt.len()));
        if let Some(index) = self.golden.cases().iter().position(|case| case.prompt_tokens == prompt) {
            (self.case, self.at) = (index, 0);
            return self.reply();
        }
        self.anchor.clone().ok_or("the engine is gone".into())
    }

    fn step(&mut self, token: i64) -> Result<Answer, String> {
        assert_eq!(token, self.golden.cases()[self.case].expected_tokens[self.at - 1], "the golden's token is fed");
        self.reply()
    }

    fn free_run(&mut self, _: &[i64], steps: usize) -> Result<Vec<i64>, String> {
        self.log.push(format!("free run {steps}"));
        Ok(self.free_run.clone())
    }
}

/// Two cases, one anchor and one free run, as a document. `anchor` is the anchor's body.
fn golden(anchor: &str) -> (Golden, ModelShape) {
    let shape = shape(3, VOCAB);
    let expected: Vec<i64> = (0..64).map(|step| step * 7 % VOCAB).collect();
    let text = format!(
        r#"{{"version":1,"model_type":"m","cases":[
            {{"name":"one","prompt_tokens":[1,2,3],"expected_tokens":{expected:?}}},
            {{"name":"two","prompt_tokens":[4,5,6],"expected_tokens":{expected:?}}}],
            "correctness_gates":{{"anchors":[{{"name":"anchor","context_tokens":[9],{anchor}}}],
            "free_run":[{{"name":"run","prompt_tokens":[7,8,9],"expected_tokens":[11,12,13],"exact_prefix_tokens":2}}]}}}}"#
    );
    let demands = Demands { benchmark: false, ..Demands::official(&shape) };
    (Golden::load(text.as_bytes(), &demands).unwrap(), shape)
}

fn scripted<'a>(golden: &'a Golden, wrong: &'a dyn Fn(&str, usize) -> Option<Answer>) -> Scripted<'a> {
    let (case, at) = (0, 0);
    Scripted { golden, wrong, case, at, free_run: vec![11, 12, 13], anchor: Some(answer(500)), log: Vec::new() }
}

fn run(engine: &mut Scripted<'_>, scope: Scope) -> Conformance {
    run_conformance(engine, engine.golden, 64, scope, VOCAB).unwrap()
}

#[test]
fn a_right_engine_passes_and_every_sequence_begins_in_a_phase_of_its_own() {
    let (golden, _) = golden(r#""expected_token":500"#);
    let right = |_: &str, _: usize| None;
    let mut engine = scripted(&golden, &right);
    let found = run(&mut engine, Scope::Full);
    assert_eq!(found, Conformance { case_count: 4, checked_steps: 64 + 64 + 1 + 2, tolerated: 0, failure: None });
    let log = ["phase", "begin 3", "phase", "begin 3", "phase", "begin 1", "phase", "free run 3"];
    assert_eq!(engine.log, log);
    let mut engine = scripted(&golden, &right);
    let cases = run(&mut engine, Scope::Cases);
    assert_eq!((cases.passed(), cases.checked_steps, engine.log.len()), (true, 128, 4));
}

#[test]
fn six_wrong_steps_pass_and_seven_fail_at_the_first_of_them() {
    let (golden, _) = golden(r#""expected_token":500"#);
    let wrong = |most: usize| {
        move |case: &str, step: usize| (case == "two" && (9..9 + most).contains(&step)).then(|| answer(999))
    };
    let found = run(&mut scripted(&golden, &wrong(6)), Scope::Full);
    assert_eq!((found.passed(), found.tolerated), (true, 6));
    let seven = wrong(7);
    let mut engine = scripted(&golden, &seven);
    let found = run(&mut engine, Scope::Full);
    let failure = Failure { kind: Kind::TeacherForced, case: "two".into(), step: 9 };
    assert_eq!(found, Conformance { case_count: 4, checked_steps: 64 + 10, tolerated: 0, failure: Some(failure) });
    // All steps of the failing case are walked, nothing behind it.
    assert_eq!((engine.at, engine.log.len()), (64, 4));
}

#[test]
fn a_failure_names_the_case_and_the_step_and_no_token() {
    let (golden, _) = golden(r#""expected_token":500"#);
    let wrong = |_: &str, step: usize| (step > 40).then(|| answer(999));
    let failure = run(&mut scripted(&golden, &wrong), Scope::Full).failure.unwrap();
    assert_eq!(failure.to_string(), "teacher-forced token mismatch in `one` at step 41");
    assert_eq!(
        [Kind::Anchor, Kind::FreeRun].map(|kind| kind.to_string()),
        ["anchor token mismatch", "free-run token mismatch"]
    );
}

#[test]
fn a_near_tie_is_no_mismatch_and_an_untrustworthy_list_excuses_nothing() {
    // engine-protocol-v1.md 11.4.
    let list =
        |logits: &[(i64, f64)]| logits.iter().map(|&(token, logit)| TopLogit { token, logit }).collect::<Vec<_>>();
    let agrees = |token, logits: &[(i64, f64)]| Answer { token, top_logits: list(logits) }.agrees_with(501, 1000);
    assert!(agrees(777, &[(777, 12.5), (501, 12.4999999), (9, 3.0)]));
    assert!(agrees(501, &[]));
    assert!(agrees(501, &[(777, f64::NAN)]));
    for (token, logits) in [
        (777, &[(777, 12.5), (501, 12.4999)][..]),
        (777, &[]),
        (777, &[(777, 12.5)]),
        (778, &[(777, 12.5), (501, 12.5)]),
        (777, &[(777, 12.5), (501, 12.5)]),
        (400, &[(400, 12.5), (501, 12.5), (501, 12.5)]),
        (400, &[(400, 12.5), (501, 12.5), (1000, 3.0)]),
        (400, &[(400, 12.5), (501, 12.5), (-1, 3.0)]),
        (400, &[(400, 12.5), (501, 12.5), (9, f64::NAN)]),
        (400, &[(400, 12.5), (501, 12.5), (9, f64::NEG_INFINITY)]),
        (400, &[(400, 12.4999999), (501, 12.5)]),
        (
            400,
            &[
                (400, 9.0),
                (501, 9.0),
                (502, 8.0),
                (503, 7.0),
                (504, 6.0),
                (505, 5.0),
                (506, 4.0),
                (507, 3.0),
                (508, 2.0),
            ],
        ),
    ] {
        assert!(!agrees(token, logits), "{token} {logits:?}");
    }
    assert!(agrees(400, &[(400, 12.5), (501, 12.5)]), "of equal logits the lower id leads");
}

#[test]
fn an_anchor_passes_by_argmax_tie_or_rank() {
    let verdict = |body: &str, token: i64, logits: &[(i64, f64)]| {
        let (golden, _) = golden(body);
        let right = |_: &str, _: usize| None;
        let mut engine = scripted(&golden, &right);
        let top_logits = logits.iter().map(|&(token, logit)| TopLogit { token, logit }).collect();
        engine.anchor = Some(Answer { token, top_logits });
        let found = run(&mut engine, Scope::Full);
        let want = Failure { kind: Kind::Anchor, case: "anchor".into(), step: 0 };
        assert!(found.failure.iter().all(|failure| *failure == want));
        assert_eq!(found.checked_steps, if found.passed() { 131 } else { 129 });
        found.passed()
    };
    let plain = r#""expected_token":20"#;
    let accepting = r#""expected_token":20,"accepted_tokens":[30]"#;
    let ranked = r#""expected_token":20,"max_expected_rank":2"#;
    let ranked_wide = r#""expected_token":20,"max_expected_rank":2,"max_top_logit_delta":0.5"#;
    assert!(verdict(plain, 20, &[(20, 5.0), (30, 4.0)]));
    // The candidates decide, not what the engine says, and the lowest id of equal ones.
    assert!(verdict(plain, 30, &[(20, 5.0), (30, 4.0)]));
    assert!(!verdict(plain, 20, &[(30, 5.0), (20, 4.0)]));
    assert!(verdict(plain, 99, &[(30, 5.0), (20, 5.0)]));
    assert!(verdict(plain, 10, &[(10, 5.0), (20, 5.0)]), "a tie with the expected");
    assert!(!verdict(plain, 11, &[(10, 5.0), (20, 5.0)]), "a tie in an untrustworthy list");
    assert!(verdict(accepting, 30, &[(30, 5.0), (20, 1.0)]));
    assert!(verdict(accepting, 10, &[(10, 5.0), (30, 5.0)]));
    assert!(!verdict(ranked, 10, &[(10, 5.0), (20, 4.9)]));
    assert!(verdict(ranked_wide, 10, &[(10, 5.0), (20, 4.5)]));
    assert!(!verdict(ranked_wide, 10, &[(10, 5.0), (20, 4.4)]));
    assert!(!verdict(ranked_wide, 10, &[(10, 5.0), (11, 4.9), (20, 4.8)]));
    assert!(verdict(ranked_wide, 99, &[(20, 4.5), (10, 5.0)]), "neither order nor the engine's token counts");
    assert!(!verdict(plain, 20, &[(20, 5.0), (30, f64::NAN)]));
    assert!(!verdict(ranked_wide, 10, &[(10, 5.0), (20, 5.0), (30, f64::NEG_INFINITY)]));
    assert!(!verdict(plain, 20, &[]));
}

#[test]
fn a_free_run_must_begin_as_the_golden_says_and_may_then_differ() {
    let (golden, _) = golden(r#""expected_token":500"#);
    let right = |_: &str, _: usize| None;
    let verdict = |tokens: &[i64]| {
        let mut engine = scripted(&golden, &right);
        engine.free_run = tokens.into();
        let found = run(&mut engine, Scope::Full);
        (found.failure.map(|failure| (failure.kind, failure.step)), found.checked_steps)
    };
    assert_eq!(verdict(&[11, 12]), (None, 131));
    assert_eq!(verdict(&[11, 12, 99]), (None, 131));
    assert_eq!(verdict(&[11, 99, 13]), (Some((Kind::FreeRun, 1)), 131));
    assert_eq!(verdict(&[99]), (Some((Kind::FreeRun, 0)), 130));
    assert_eq!(verdict(&[11]), (Some((Kind::FreeRun, 1)), 131));
    assert_eq!(verdict(&[]), (Some((Kind::FreeRun, 0)), 130));
}

#[test]
fn an_engine_that_fails_gives_no_verdict_and_steps_beyond_the_golden_neither() {
    let (golden, _) = golden(r#""expected_token":500"#);
    let right = |_: &str, _: usize| None;
    let mut engine = scripted(&golden, &right);
    engine.anchor = None;
    let error = run_conformance(&mut engine, &golden, 64, Scope::Full, VOCAB).unwrap_err();
    assert_eq!(error.to_string(), "the engine is gone");
    for steps in [0, 65] {
        let mut engine = scripted(&golden, &right);
        let error = run_conformance(&mut engine, &golden, steps, Scope::Full, VOCAB).unwrap_err();
        assert!(matches!(error, ConformanceError::Steps { found: 64, .. }));
        assert_eq!(engine.log, [""; 0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_case_passes_exactly_when_at_most_a_tenth_of_its_steps_are_wrong(steps in prop::collection::btree_set(0_usize..64, 0..12)) {
        let (golden, _) = golden(r#""expected_token":500"#);
        let wrong = |case: &str, step: usize| (case == "one" && steps.contains(&step)).then(|| answer(999));
        let found = run(&mut scripted(&golden, &wrong), Scope::Cases);
        prop_assert_eq!(found.passed(), steps.len() * 1000 <= 100 * 64);
        let first = steps.first().copied();
        prop_assert_eq!(found.failure.map(|failure| failure.step), if steps.len() > 6 { first } else { None });
    }

    #[test]
    fn the_order_of_an_anchors_candidates_does_not_move_their_ranks(
        list in prop::collection::vec((0_i64..20, -3_i32..3), 1..9).prop_map(|list| {
            list.into_iter().map(|(token, logit)| TopLogit { token, logit: f64::from(logit) }).collect::<Vec<_>>()
        }),
        turn in any::<prop::sample::Index>(),
    ) {
        let by_logit = |list: &[TopLogit]| Answer { token: 0, top_logits: list.to_vec() }.by_logit().unwrap();
        let mut turned = list.clone();
        turned.rotate_left(turn.index(list.len()));
        prop_assert_eq!(by_logit(&turned), by_logit(&list));
        prop_assert!(by_logit(&list).is_sorted_by(|a, b| a.logit > b.logit || a.logit == b.logit && a.token <= b.token));
    }
}
