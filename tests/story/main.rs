//! The embedded trained model against its reference outputs.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

use cudafast_cpu::{CpuOptions, CpuTimeline, HeadNorm, Precision};
use cudafast_runtime::{Sampling, Timeline};
use cudafast_tests::Bound;
use cudafast_tests::compare::top_gap;
use cudafast_tests::prompts::tokenizer;
use cudafast_tests::stream::{prefill, round};
use cudafast_text::SpecialTokens;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    sets: Sets,
}

#[derive(Deserialize)]
struct Sets {
    ud_q4_k_xl: Set,
}

#[derive(Deserialize)]
struct Set {
    prompts: Vec<Prompt>,
}

/// float32 results of the training framework on the dequantised weights.
#[derive(Deserialize)]
struct Prompt {
    name: String,
    text: String,
    prompt: Vec<u32>,
    top20: Vec<(u32, f32)>,
    generated: Vec<u32>,
    generated_text: String,
    drafts: Vec<Vec<u32>>,
}

fn prompts() -> Vec<Prompt> {
    let bytes = std::fs::read(cudafast_tiny::tree_path(cudafast_tiny::REFERENCE_FILE)).unwrap();
    serde_json::from_slice::<Reference>(&bytes).unwrap().sets.ud_q4_k_xl.prompts
}

fn open(bound: &Bound, precision: Precision) -> CpuTimeline {
    bound.timeline_with(&CpuOptions { threads: 1, precision, head_norm: HeadNorm::Single })
}

#[test]
fn prompts_tokenise_to_the_reference_ids_and_back() {
    let tokenizer = tokenizer();
    for p in prompts() {
        assert_eq!(tokenizer.encode(&p.text, SpecialTokens::Parse).unwrap(), p.prompt, "{}", p.name);
        assert_eq!(tokenizer.decode(&p.generated), p.generated_text, "{}", p.name);
    }
}

/// Logits are stored with five decimals of values around 10.
#[test]
fn top_twenty_logits_equal_the_reference_in_f32() {
    let bound = Bound::tiny_story();
    for p in prompts() {
        let mut timeline = open(&bound, Precision::F32);
        prefill(&mut timeline, &p.prompt);
        for (id, want) in &p.top20 {
            let got = timeline.last_logits()[*id as usize];
            assert!((got - want).abs() < 2e-4, "{}: logit of {id} is {got}, reference {want}", p.name);
        }
    }
}

#[test]
fn greedy_text_equals_the_reference_in_f32_at_every_step() {
    let bound = Bound::tiny_story();
    for p in prompts() {
        let mut timeline = open(&bound, Precision::F32);
        prefill(&mut timeline, &p.prompt);
        let mut tokens = vec![timeline.choose(&Sampling::greedy(), None, 4).unwrap()];
        let mut own = vec![timeline.drafts().to_vec()];
        while tokens.len() < p.generated.len() {
            let next = round(&mut timeline, &Sampling::greedy(), Some(&[]), 4, 1);
            tokens.push(next.next);
            own.push(next.drafts);
        }
        assert_eq!(tokens, p.generated, "{}", p.name);
        // The reference's chain reuses the first row's selection, so past the budget only the first draft is comparable,
        // and selections there can tie.
        let (mut same, mut all) = (0, 0);
        for (i, (got, want)) in own.iter().zip(&p.drafts).enumerate() {
            let within = p.prompt.len() + i + 4 < bound.hp.indexer.budget_tokens;
            let compared = if within { want.len() } else { 1 };
            all += compared;
            same += got.iter().zip(want).take(compared).filter(|(g, w)| g == w).count();
        }
        println!("{}: {same} of {all} drafts equal", p.name);
        assert!(same * 100 >= all * 98, "{}: {same} of {all} drafts equal the reference's", p.name);
    }
}

/// int8 activations may flip a near tie, after which texts part; before that the argmax must agree wherever f32 is sure.
#[test]
fn int8_keeps_the_reference_argmax_wherever_the_gap_is_clear() {
    let bound = Bound::tiny_story();
    for p in prompts() {
        let tokens: Vec<u32> = p.prompt.iter().chain(&p.generated).copied().collect();
        let logits = |precision| {
            let mut rows = Vec::new();
            let mut sink = |_: usize, row: &[f32]| rows.push(row.to_vec());
            let rows_wanted = cudafast_runtime::LogitRows::Each(&mut sink);
            open(&bound, precision).prefill(&tokens, rows_wanted, &cudafast_runtime::CancelFlag::default()).unwrap();
            rows
        };
        let (exact, int8) = (logits(Precision::F32), logits(Precision::Int8));
        let mut clear = 0;
        for (t, (exact, int8)) in exact.iter().zip(&int8).enumerate() {
            let error = exact.iter().zip(int8).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
            if top_gap(exact) > error {
                clear += 1;
                assert_eq!(
                    cudafast_tests::compare::argmax(exact),
                    cudafast_tests::compare::argmax(int8),
                    "{} row {t}",
                    p.name
                );
            }
        }
        println!("{}: {clear} of {} rows are clear", p.name, tokens.len());
        assert!(clear * 3 > tokens.len());
    }
}
