//! The loader's checks behind decoding, in order (benchd.md 4, steps 3 to 10).

use std::collections::BTreeMap;

use super::{
    Anchor, Behavior, Benchmark, CORRECTNESS_TOP_LOGITS, Case, Demands, Document, FreeRun, GoldenError,
    MAX_ANCHOR_CONTEXT, MAX_BEHAVIOR_PROMPT, MAX_BEHAVIOR_STEPS, MAX_FREE_RUN_STEPS, ModelShape,
};
use crate::pin::is_lower_hex;

type Verdict = Result<(), GoldenError>;

pub(super) fn document(document: &Document, demands: &Demands<'_>) -> Verdict {
    let shape = demands.shape;
    identity(document, demands)?;

    let mut names = Names::default();
    if document.cases.is_empty() {
        return Err(GoldenError::Empty { field: "cases".into() });
    }
    names.section("case", document.cases.iter().map(|case| &case.name))?;
    document.cases.iter().try_for_each(|entry| case(entry, demands))?;

    if let Some(gates) = &document.correctness_gates {
        if gates.anchors.is_none() && gates.free_run.is_none() && gates.behavior.is_none() {
            return Err(GoldenError::NoSections);
        }
        if let Some(anchors) = section("anchors", gates.anchors.as_deref())? {
            names.section("anchor", anchors.iter().map(|anchor| &anchor.name))?;
            anchors.iter().try_for_each(|entry| anchor(entry, shape))?;
        }
        if let Some(free_runs) = section("free_run", gates.free_run.as_deref())? {
            names.section("free_run", free_runs.iter().map(|free_run| &free_run.name))?;
            free_runs.iter().try_for_each(|entry| free_run(entry, shape))?;
        }
        if let Some(behaviors) = section("behavior", gates.behavior.as_deref())? {
            names.section("behavior", behaviors.iter().map(|behavior| &behavior.name))?;
            behaviors.iter().try_for_each(|entry| behavior(entry, shape))?;
        }
    }
    names.across()?;

    match &document.benchmark {
        Some(block) => benchmark(block, demands),
        None if demands.benchmark => Err(GoldenError::NoBenchmark),
        None => Ok(()),
    }
}

fn identity(document: &Document, demands: &Demands<'_>) -> Verdict {
    let wanted = || demands.shape.model_type.clone();
    match document.version {
        Some(1) => {}
        Some(found) => return Err(GoldenError::Version { found }),
        None => return Err(GoldenError::NoVersion),
    }
    let Some(model_type) = &document.model_type else { return Err(GoldenError::NoModelType { wanted: wanted() }) };
    if model_type.is_empty() || model_type.trim() != model_type {
        return Err(GoldenError::ModelTypeShape { found: model_type.clone(), wanted: wanted() });
    }
    if let Some(provenance) = &document.model_provenance {
        let bad = |field, found: &str, wanted| GoldenError::ProvenanceShape { field, found: found.into(), wanted };
        if provenance.repository.trim().is_empty() {
            return Err(bad("repository", &provenance.repository, "a repository's name"));
        }
        if !is_lower_hex(&provenance.revision, 40) {
            return Err(bad("revision", &provenance.revision, "40 lower-case hexadecimal digits"));
        }
    }
    if *model_type != demands.shape.model_type {
        return Err(GoldenError::ModelType { found: model_type.clone(), wanted: wanted() });
    }
    match (&document.model_provenance, demands.provenance) {
        (Some(found), Some(pinned)) if found != pinned => {
            // A repository's name may hold anything; a refusal is one line.
            let found = found.to_string().escape_debug().to_string();
            Err(GoldenError::ProvenanceIdentity { found, pinned: pinned.to_string() })
        }
        _ => Ok(()),
    }
}

/// Names seen so far, with the kind of entry that has them.
#[derive(Default)]
struct Names<'a> {
    sections: Vec<(&'static str, Vec<&'a str>)>,
}

impl<'a> Names<'a> {
    fn section(&mut self, kind: &'static str, names: impl Iterator<Item = &'a String>) -> Verdict {
        let mut seen: Vec<&str> = Vec::new();
        for name in names {
            if name.is_empty() || name.trim() != name || name.contains(char::is_control) {
                return Err(GoldenError::Name { kind, name: name.clone() });
            }
            seen.push(name);
        }
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(GoldenError::DuplicateName { kind, name: pair[0].to_owned() });
        }
        self.sections.push((kind, seen));
        Ok(())
    }

    fn across(&self) -> Verdict {
        let mut owner: BTreeMap<&str, &'static str> = BTreeMap::new();
        for (second, names) in &self.sections {
            for name in names {
                if let Some(first) = owner.insert(name, second) {
                    return Err(GoldenError::NameInTwoSections { name: (*name).to_owned(), first, second });
                }
            }
        }
        Ok(())
    }
}

fn section<'a, T>(name: &str, entries: Option<&'a [T]>) -> Result<Option<&'a [T]>, GoldenError> {
    match entries {
        Some([]) => Err(GoldenError::Empty { field: format!("correctness_gates.{name}") }),
        entries => Ok(entries),
    }
}

fn case(case: &Case, demands: &Demands<'_>) -> Verdict {
    let prompt = format!("{}.prompt_tokens", case.name);
    exactly(&prompt, &case.prompt_tokens, demands.shape.seed_tokens)?;
    tokens(&prompt, &case.prompt_tokens, demands.shape)?;
    let expected = format!("{}.expected_tokens", case.name);
    at_least(&expected, &case.expected_tokens, demands.expected_tokens)?;
    tokens(&expected, &case.expected_tokens, demands.shape)
}

fn anchor(anchor: &Anchor, shape: &ModelShape) -> Verdict {
    let field = |key: &str| format!("{}.{key}", anchor.name);
    length(&field("context_tokens"), &anchor.context_tokens, MAX_ANCHOR_CONTEXT)?;
    tokens(&field("context_tokens"), &anchor.context_tokens, shape)?;
    token(field("expected_token"), anchor.expected_token, shape)?;
    if let Some(accepted) = &anchor.accepted_tokens {
        if accepted.is_empty() {
            return Err(GoldenError::Empty { field: field("accepted_tokens") });
        }
        tokens(&field("accepted_tokens"), accepted, shape)?;
    }
    if let Some(rank) = anchor.max_expected_rank {
        range(field("max_expected_rank"), rank, CORRECTNESS_TOP_LOGITS as i64)?;
    }
    match anchor.max_top_logit_delta {
        None => Ok(()),
        Some(found) if !found.is_finite() || found < 0.0 => {
            Err(GoldenError::Delta { name: anchor.name.clone(), found })
        }
        Some(_) if anchor.max_expected_rank.is_none() => {
            Err(GoldenError::DeltaWithoutRank { name: anchor.name.clone() })
        }
        Some(_) => Ok(()),
    }
}

fn free_run(free_run: &FreeRun, shape: &ModelShape) -> Verdict {
    let field = |key: &str| format!("{}.{key}", free_run.name);
    exactly(&field("prompt_tokens"), &free_run.prompt_tokens, shape.seed_tokens)?;
    tokens(&field("prompt_tokens"), &free_run.prompt_tokens, shape)?;
    length(&field("expected_tokens"), &free_run.expected_tokens, MAX_FREE_RUN_STEPS)?;
    tokens(&field("expected_tokens"), &free_run.expected_tokens, shape)?;
    match free_run.exact_prefix_tokens {
        Some(prefix) => range(field("exact_prefix_tokens"), prefix, free_run.expected_tokens.len() as i64),
        None => Ok(()),
    }
}

fn behavior(behavior: &Behavior, shape: &ModelShape) -> Verdict {
    let field = |key: &str| format!("{}.{key}", behavior.name);
    length(&field("prompt_tokens"), &behavior.prompt_tokens, MAX_BEHAVIOR_PROMPT)?;
    tokens(&field("prompt_tokens"), &behavior.prompt_tokens, shape)?;
    range(field("max_new_tokens"), behavior.max_new_tokens, MAX_BEHAVIOR_STEPS)?;
    if behavior.accepted_token_sequences.is_empty() {
        return Err(GoldenError::Empty { field: field("accepted_token_sequences") });
    }
    for (index, sequence) in behavior.accepted_token_sequences.iter().enumerate() {
        let name = format!("{}.accepted_token_sequences[{index}]", behavior.name);
        // In range 1..=64, checked above.
        length(&name, sequence, behavior.max_new_tokens as usize)?;
        tokens(&name, sequence, shape)?;
    }
    Ok(())
}

fn benchmark(block: &Benchmark, demands: &Demands<'_>) -> Verdict {
    let shape = demands.shape;
    exactly("benchmark.prefill_prompt_tokens", &block.prefill_prompt_tokens, shape.seed_tokens)?;
    tokens("benchmark.prefill_prompt_tokens", &block.prefill_prompt_tokens, shape)?;
    token("benchmark.expected_prefill_token".into(), block.expected_prefill_token, shape)?;
    exactly("benchmark.decode_seed_tokens", &block.decode_seed_tokens, shape.seed_tokens)?;
    tokens("benchmark.decode_seed_tokens", &block.decode_seed_tokens, shape)?;
    token("benchmark.expected_decode_seed_token".into(), block.expected_decode_seed_token, shape)?;
    at_least("benchmark.expected_decode_tokens", &block.expected_decode_tokens, demands.decode_tokens)?;
    tokens("benchmark.expected_decode_tokens", &block.expected_decode_tokens, shape)?;
    let baseline = [
        ("baseline_prefill_seconds_per_token", block.baseline_prefill_seconds_per_token),
        ("baseline_decode_seconds_per_token", block.baseline_decode_seconds_per_token),
    ];
    if baseline[0].1.is_some() != baseline[1].1.is_some() {
        return Err(GoldenError::HalfBaseline);
    }
    for (field, value) in baseline {
        if let Some(found) = value
            && !(found.is_finite() && found > 0.0)
        {
            return Err(GoldenError::Baseline { field, found });
        }
    }
    Ok(())
}

fn exactly(field: &str, tokens: &[i64], need: usize) -> Verdict {
    match tokens.len() {
        found if found == need => Ok(()),
        found => Err(GoldenError::Exactly { field: field.into(), found, need }),
    }
}

fn at_least(field: &str, tokens: &[i64], need: usize) -> Verdict {
    match tokens.len() {
        found if found >= need => Ok(()),
        found => Err(GoldenError::AtLeast { field: field.into(), found, need }),
    }
}

/// `1..=most` tokens.
fn length(field: &str, tokens: &[i64], most: usize) -> Verdict {
    range(format!("length of {field}"), tokens.len() as i64, most as i64)
}

fn range(field: String, found: i64, high: i64) -> Verdict {
    if (1..=high).contains(&found) { Ok(()) } else { Err(GoldenError::Range { field, found, low: 1, high }) }
}

fn tokens(field: &str, list: &[i64], shape: &ModelShape) -> Verdict {
    match list.iter().position(|token| !(0..shape.vocab_size).contains(token)) {
        Some(index) => Err(GoldenError::OutsideVocab { field: format!("{field}[{index}]"), vocab: shape.vocab_size }),
        None => Ok(()),
    }
}

fn token(field: String, token: i64, shape: &ModelShape) -> Verdict {
    if (0..shape.vocab_size).contains(&token) {
        Ok(())
    } else {
        Err(GoldenError::OutsideVocab { field, vocab: shape.vocab_size })
    }
}
