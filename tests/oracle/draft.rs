//! The draft head and the speculative cycle under the f32 switch.

use std::sync::{Arc, Mutex};

use cudafast_cpu::{CpuOptions, HeadNorm, Precision, Probe};
use cudafast_runtime::{CancelFlag, LogitRows, RoundRequest, Sampling, Timeline};
use cudafast_tests::compare::max_relative;
use cudafast_tests::oracle::{Oracle, OracleRound};

use crate::F32_BOUND;

struct Drafts(Arc<Mutex<Vec<f32>>>);

impl Probe for Drafts {
    fn draft(&mut self, logits: &[f32]) {
        self.0.lock().unwrap().extend_from_slice(logits);
    }
}

struct Residuals(Arc<Mutex<Vec<f32>>>, usize);

impl Probe for Residuals {
    fn residual(&mut self, layer: usize, _position: usize, x: &[f32]) {
        if layer == self.1 {
            self.0.lock().unwrap().extend_from_slice(x);
        }
    }
}

#[test]
fn head_rows_equal_the_oracle_under_both_norms() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        for (head_norm, stem) in [(HeadNorm::Single, "mtp"), (HeadNorm::PerStream, "mtp_per_stream")] {
            for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
                let options = CpuOptions { precision: Precision::F32, head_norm, ..CpuOptions::default() };
                let mut timeline = bound.timeline_with(&options);
                let residuals = Arc::new(Mutex::new(Vec::new()));
                timeline.watch(Box::new(Residuals(Arc::clone(&residuals), bound.hp.layers.len() - 1)));
                timeline.prefill(prompt, LogitRows::None, &CancelFlag::default()).unwrap();
                let residuals = residuals.lock().unwrap().clone();
                let (mut logits, mut multi) = (Vec::new(), Vec::new());
                for (i, r) in residuals.chunks_exact(bound.hp.wide()).take(prompt.len() - 1).enumerate() {
                    let row = timeline.head_row(r, prompt[i + 1], i).unwrap();
                    logits.extend(row.0);
                    multi.extend(row.1);
                }
                let worst = max_relative(&logits, oracle.f32(&format!("p{p}.{stem}.logits")));
                assert!(worst <= F32_BOUND, "{} p{p} {stem} logits {worst:e}", oracle.name);
                if let Some(want) = oracle.f32_opt(&format!("p{p}.{stem}.multi")) {
                    let worst = max_relative(&multi, want);
                    assert!(worst <= F32_BOUND, "{} p{p} {stem} multi {worst:e}", oracle.name);
                }
            }
        }
        oracle.assert_all_read(&[".mtp.logits", ".mtp.multi", ".mtp_per_stream."]);
    }
}

#[test]
fn a_draft_chain_of_six_equals_the_oracle() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
            let mut timeline = bound.timeline(Precision::F32);
            timeline.prefill(prompt, LogitRows::None, &CancelFlag::default()).unwrap();
            let logits = Arc::new(Mutex::new(Vec::new()));
            timeline.watch(Box::new(Drafts(Arc::clone(&logits))));
            timeline.choose(&Sampling::greedy(), None, 6).unwrap();
            assert_eq!(timeline.drafts(), oracle.meta.mtp_chain[p], "{} p{p}", oracle.name);
            let worst = max_relative(&logits.lock().unwrap(), oracle.f32(&format!("p{p}.mtp.chain_logits")));
            assert!(worst <= F32_BOUND, "{} p{p} chain {worst:e}", oracle.name);
        }
    }
}

#[test]
fn every_speculative_round_at_depths_one_to_six_equals_the_oracle() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
            for spec in &oracle.meta.spec[p] {
                let mut timeline = bound.timeline(Precision::F32);
                timeline.prefill(prompt, LogitRows::None, &CancelFlag::default()).unwrap();
                timeline.choose(&Sampling::greedy(), None, spec.depth).unwrap();
                let wanted = oracle.meta.greedy[p].len();
                let (mut out, mut rounds) = (Vec::new(), Vec::new());
                while out.len() < wanted {
                    let budget = wanted - out.len();
                    let drafts: Vec<u32> = timeline.drafts().iter().copied().take(budget - 1).collect();
                    let request = RoundRequest {
                        next_depth: spec.depth,
                        drafts: None,
                        budget,
                        stop: &[],
                        sampling: &Sampling::greedy(),
                        edits: &[],
                        want_logits: false,
                        top_logprobs: None,
                    };
                    let round = timeline.round(&request).unwrap();
                    assert_eq!(round.drafted, drafts.len());
                    rounds.push(OracleRound {
                        pos: round.position,
                        fed: round.committed[0],
                        drafts,
                        accepted: round.accepted,
                        next: round.next,
                    });
                    out.extend(round.committed);
                }
                assert_eq!(rounds, spec.rounds, "{} p{p} depth {}", oracle.name, spec.depth);
                assert_eq!(out, oracle.meta.greedy[p], "{} p{p} depth {}", oracle.name, spec.depth);
            }
        }
    }
}
