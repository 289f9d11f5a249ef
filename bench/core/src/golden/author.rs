//! Making a golden out of what an engine answered (benchd.md 4.3).

use super::{Benchmark, Case, Demands, Document, Golden, GoldenError, ModelShape};
use crate::engine::Engine;
use crate::pin::Provenance;
use crate::tape::Tape;

/// Records a case on an engine that is fed its own answers: the prompt's continuation, then `steps - 1` times what follows
/// the last answer. `prompt` is the whole of it, see [`prompt_tokens`].
pub fn record_case<E: Engine>(engine: &mut E, name: &str, prompt: &[i64], steps: usize) -> Result<Case, E::Error> {
    let mut expected_tokens = Vec::with_capacity(steps);
    if steps > 0 {
        engine.next_phase()?;
        expected_tokens.push(engine.begin(prompt)?.token);
    }
    while let Some(&last) = expected_tokens.last()
        && expected_tokens.len() < steps
    {
        expected_tokens.push(engine.step(last)?.token);
    }
    Ok(Case { name: name.into(), prompt_tokens: prompt.to_vec(), expected_tokens })
}

impl From<Tape> for Benchmark {
    /// The timed block of a free run: one prompt, whose continuation is expected of both phases; no stored baseline.
    fn from(tape: Tape) -> Self {
        Self {
            prefill_prompt_tokens: tape.seed_tokens.clone(),
            expected_prefill_token: tape.seed_token,
            decode_seed_tokens: tape.seed_tokens,
            expected_decode_seed_token: tape.seed_token,
            expected_decode_tokens: tape.decode_tokens,
            baseline_prefill_seconds_per_token: None,
            baseline_decode_seconds_per_token: None,
        }
    }
}

/// What was recorded, before it is a golden.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The model that answered.
    pub provenance: Option<Provenance>,
    /// In the order of the prompt files.
    pub cases: Vec<Case>,
    /// From the first case's prompt.
    pub benchmark: Option<Benchmark>,
}

impl Recording {
    /// The bytes of the golden, and the golden that the scoring loader makes of them. A recording that the loader refuses
    /// (a name twice, a short prompt, a token outside the vocabulary) is no golden. Same recording, same bytes.
    pub fn author(self, demands: &Demands<'_>) -> Result<(Vec<u8>, Golden), GoldenError> {
        let document = Document {
            version: Some(1),
            model_type: Some(demands.shape.model_type.clone()),
            model_provenance: self.provenance,
            cases: self.cases,
            correctness_gates: None,
            benchmark: self.benchmark,
        };
        let bytes = render(&document)?;
        let golden = Golden::load(&bytes, demands)?;
        if golden.document != document || render(&golden.document)? != bytes {
            return Err(GoldenError::RoundTrip);
        }
        Ok((bytes, golden))
    }
}

/// Two blanks a level, one token a line, a newline behind it.
fn render(document: &Document) -> Result<Vec<u8>, GoldenError> {
    let mut bytes = serde_json::to_vec_pretty(document).map_err(GoldenError::Decode)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A prompt file: ids between blanks, commas and brackets, exactly the track's seed length of them. `name` is the case's.
pub fn prompt_tokens(name: &str, text: &str, shape: &ModelShape) -> Result<Vec<i64>, GoldenError> {
    let between = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    let mut tokens = Vec::new();
    for word in text.split(between).filter(|word| !word.is_empty()) {
        // "+1" parses in Rust and is no JSON integer.
        let id = word.parse().ok().filter(|_| !word.starts_with('+'));
        tokens.push(id.ok_or_else(|| GoldenError::PromptText { text: word.chars().take(40).collect() })?);
    }
    match tokens.len() {
        found if found == shape.seed_tokens => Ok(tokens),
        found => Err(GoldenError::Exactly { field: format!("{name}.prompt_tokens"), found, need: shape.seed_tokens }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Following, recording, shape};

    #[test]
    fn a_case_is_recorded_by_feeding_the_engine_its_own_answers() {
        let mut engine = Following::new(|token| (token < 16).then_some(2 * token));
        let case = record_case(&mut engine, "story", &[7, 2], 3).unwrap();
        let want = Case { name: "story".into(), prompt_tokens: vec![7, 2], expected_tokens: vec![4, 8, 16] };
        assert_eq!((case, engine.phases), (want, 1));
        assert_eq!(record_case(&mut engine, "story", &[7, 2], 4).unwrap_err(), "the engine is gone");
        assert_eq!(record_case(&mut engine, "story", &[7, 2], 0).unwrap().expected_tokens, [0_i64; 0]);
    }

    #[test]
    fn a_timed_block_expects_one_continuation_of_both_phases_and_stores_no_baseline() {
        let tape = Tape { seed_tokens: vec![1, 2, 3], seed_token: 4, decode_tokens: vec![5, 6] };
        let block = Benchmark::from(tape);
        assert_eq!((&block.prefill_prompt_tokens, block.expected_prefill_token), (&vec![1, 2, 3], 4));
        assert_eq!((&block.decode_seed_tokens, block.expected_decode_seed_token), (&vec![1, 2, 3], 4));
        assert_eq!((&block.expected_decode_tokens, block.has_stored_baseline()), (&vec![5, 6], false));
    }

    #[test]
    fn a_recording_is_pretty_json_in_the_documented_key_order() {
        let shape = shape(3, 40);
        let mut recording = recording(&shape);
        recording.provenance = Some(Provenance { repository: "o/m".into(), revision: "a".repeat(40) });
        recording.benchmark = None;
        recording.cases[0].expected_tokens.truncate(2);
        let demands = Demands { expected_tokens: 2, decode_tokens: 0, benchmark: false, ..Demands::official(&shape) };
        let (bytes, golden) = recording.author(&demands).unwrap();
        let revision = "a".repeat(40);
        let want = format!(
            "{{\n  \"version\": 1,\n  \"model_type\": \"m\",\n  \"model_provenance\": {{\n    \"repository\": \"o/m\",\n    \
             \"revision\": \"{revision}\"\n  }},\n  \"cases\": [\n    {{\n      \"name\": \"story\",\n      \
             \"prompt_tokens\": [\n        1,\n        2,\n        3\n      ],\n      \"expected_tokens\": [\n        0,\n        \
             1\n      ]\n    }}\n  ]\n}}\n"
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), want);
        assert_eq!(golden.provenance().unwrap().to_string(), format!("o/m@{revision}"));
    }

    #[test]
    fn a_recording_the_loader_refuses_is_no_golden() {
        let shape = shape(3, 40);
        let demands = Demands::official(&shape);
        let mut twice = recording(&shape);
        twice.cases.push(twice.cases[0].clone());
        let error = twice.author(&demands).unwrap_err();
        assert_eq!(error.to_string(), "duplicate correctness golden case name story");

        let mut short = recording(&shape);
        short.cases[0].expected_tokens.truncate(63);
        let error = short.author(&demands).unwrap_err();
        assert_eq!(error.to_string(), "story.expected_tokens has 63 tokens; need at least 64");

        let mut foreign = recording(&shape);
        foreign.provenance = Some(Provenance { repository: "o/other".into(), revision: "a".repeat(40) });
        let pinned = Provenance { repository: "o/m".into(), revision: "a".repeat(40) };
        let error = foreign.author(&Demands { provenance: Some(&pinned), ..demands }).unwrap_err();
        let prefix = "correctness golden model_provenance does not match the pinned reference model";
        assert!(error.to_string().starts_with(prefix), "{error}");
    }

    #[test]
    fn a_prompt_file_is_ids_between_blanks_commas_and_brackets() {
        let shape = shape(4, 40);
        for text in ["1 2 3 4", "[1, 2,3,\n4]\n", "1,2,3,4", "[[1][2]] 3\t4"] {
            assert_eq!(prompt_tokens("p", text, &shape).unwrap(), [1, 2, 3, 4]);
        }
        let refused = |text: &str| prompt_tokens("p", text, &shape).unwrap_err().to_string();
        assert_eq!(refused("1 2 3"), "p.prompt_tokens has 3 tokens; need exactly 4");
        for bad in ["1 2 3 x", "1 2 3 4.0", "1 2 3 +4", "1;2;3;4", "1 2 3 99999999999999999999"] {
            assert!(refused(bad).starts_with("prompt tokens: "), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn recording_again_gives_the_same_bytes_and_loading_gives_them_back(
            prompt in prop::collection::vec(0_i64..40, 3),
            expected in prop::collection::vec(0_i64..40, 64..70),
            decode in prop::collection::vec(0_i64..40, 128..132),
            name in "[a-z]{1,8}",
        ) {
            let shape = shape(3, 40);
            let demands = Demands::official(&shape);
            let mut recording = recording(&shape);
            recording.cases[0] = Case { name, prompt_tokens: prompt, expected_tokens: expected };
            if let Some(block) = &mut recording.benchmark { block.expected_decode_tokens = decode; }
            let (bytes, golden) = recording.clone().author(&demands).unwrap();
            let (again, _) = recording.author(&demands).unwrap();
            prop_assert_eq!(&again, &bytes);
            let pinned = Demands { pin: Some(golden.pin()), ..demands };
            prop_assert_eq!(Golden::load(&bytes, &pinned).unwrap(), golden);
        }
    }
}
