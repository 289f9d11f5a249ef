//! The CPU backend under the f32 switch: chunked prefill, recurrent decode, every probe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cudafast_cpu::{CpuTimeline, Precision, Probe, Selected};
use cudafast_runtime::{CancelFlag, LogitRows, Sampling, Timeline};
use cudafast_tests::compare::max_relative;
use cudafast_tests::oracle::Oracle;
use cudafast_tests::stream::{feed, prefill, round};

use crate::F32_BOUND;
use crate::reference::check_experts;

/// Everything a probe saw, by layer, in row order.
#[derive(Default)]
struct Seen {
    residual: HashMap<usize, Vec<f32>>,
    experts: HashMap<usize, Vec<Vec<u32>>>,
    selection: HashMap<usize, Vec<Vec<usize>>>,
    ngram: Vec<i32>,
}

struct Recorder(Arc<Mutex<Seen>>);

impl Probe for Recorder {
    fn residual(&mut self, layer: usize, _position: usize, x: &[f32]) {
        self.0.lock().unwrap().residual.entry(layer).or_default().extend_from_slice(x);
    }
    fn experts(&mut self, layer: usize, _position: usize, ids: &[u32]) {
        self.0.lock().unwrap().experts.entry(layer).or_default().push(ids.to_vec());
    }
    fn selection(&mut self, layer: usize, _position: usize, tokens: &Selected) {
        self.0.lock().unwrap().selection.entry(layer).or_default().push(tokens.tokens().collect());
    }
    fn ngram_rows(&mut self, _layer: usize, _position: usize, rows: &[u64]) {
        self.0.lock().unwrap().ngram.extend(rows.iter().map(|r| *r as i32));
    }
}

fn check(oracle: &Oracle, p: usize, layers: usize, logits: &[f32], seen: &Seen, how: &str) {
    let prompt = &oracle.meta.prompts[p];
    let name = |what: &str| format!("p{p}.{what}");
    let worst = max_relative(logits, oracle.f32(&name("logits")));
    assert!(worst <= F32_BOUND, "{} p{p} {how} logits {worst:e}", oracle.name);
    assert_eq!(Some(&seen.ngram[..]), oracle.i32(&name("ple_rows")), "{} p{p} {how}", oracle.name);
    for layer in 0..layers {
        if let Some(want) = oracle.f32_opt(&name(&format!("layer.{layer}"))) {
            let worst = max_relative(&seen.residual[&layer], want);
            assert!(worst <= F32_BOUND, "{} p{p} {how} layer {layer}: {worst:e}", oracle.name);
        }
        check_experts(oracle, &name(&format!("experts.{layer}")), seen.experts[&layer].iter().cloned());
        if let Some(mask) = oracle.u8(&name(&format!("qsa_mask.{layer}"))) {
            for (t, got) in seen.selection[&layer].iter().enumerate() {
                let row = &mask[t * prompt.len()..(t + 1) * prompt.len()];
                let want: Vec<usize> = (0..prompt.len()).filter(|j| row[*j] == 1).collect();
                assert_eq!(got, &want, "{} p{p} {how} layer {layer} row {t}", oracle.name);
            }
        }
    }
}

fn watch(timeline: &mut CpuTimeline) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    timeline.watch(Box::new(Recorder(Arc::clone(&seen))));
    seen
}

#[test]
fn chunked_prefill_equals_the_oracle_in_every_layer_and_integer() {
    for oracle in Oracle::both() {
        let mut bound = oracle.bind();
        // The head would be watched too.
        bound.head = None;
        for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
            let mut timeline = bound.timeline(Precision::F32);
            let seen = watch(&mut timeline);
            let mut logits = Vec::new();
            let mut collect = |_: usize, row: &[f32]| logits.extend_from_slice(row);
            timeline.prefill(prompt, LogitRows::Each(&mut collect), &CancelFlag::default()).unwrap();
            check(&oracle, p, bound.hp.layers.len(), &logits, &seen.lock().unwrap(), "prefill");
        }
        oracle.assert_all_read(&[".layer.", ".experts.", ".qsa_mask.", ".ple_rows"]);
    }
}

#[test]
fn row_by_row_decode_equals_the_oracle_in_every_layer_and_integer() {
    for oracle in Oracle::both() {
        let mut bound = oracle.bind();
        bound.head = None;
        for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
            let mut timeline = bound.timeline(Precision::F32);
            let seen = watch(&mut timeline);
            prefill(&mut timeline, &prompt[..1]);
            let mut logits = timeline.last_logits().to_vec();
            // Teacher forcing: the next prompt token is the draft, its acceptance is not needed, its row is.
            for token in &prompt[1..] {
                let row = feed(&mut timeline, *token);
                logits.extend(row);
            }
            check(&oracle, p, bound.hp.layers.len(), &logits, &seen.lock().unwrap(), "decode");
        }
        oracle.assert_all_read(&[".layer.", ".experts.", ".qsa_mask.", ".ple_rows"]);
    }
}

#[test]
fn greedy_tokens_and_their_logits_equal_the_oracle() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
            let mut timeline = bound.timeline(Precision::F32);
            prefill(&mut timeline, prompt);
            let mut logits = timeline.last_logits().to_vec();
            let mut tokens = vec![timeline.choose(&Sampling::greedy(), None, 0).unwrap()];
            for _ in 0..oracle.meta.greedy[p].len() {
                let round = round(&mut timeline, &Sampling::greedy(), None, 0, 1);
                logits.extend(round.logits);
                tokens.push(round.next);
            }
            tokens.pop();
            assert_eq!(tokens, oracle.meta.greedy[p], "{} p{p}", oracle.name);
            let worst = max_relative(&logits, oracle.f32(&format!("p{p}.cont_logits")));
            assert!(worst <= F32_BOUND, "{} p{p} continuation {worst:e}", oracle.name);
        }
        oracle.assert_all_read(&[".cont_logits"]);
    }
}
