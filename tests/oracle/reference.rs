//! The reference path.

use cudafast_cpu::HeadNorm;
use cudafast_cpu::reference::{AttentionMemory, Reference};
use cudafast_tests::compare::{argmax, max_relative};
use cudafast_tests::oracle::Oracle;

use crate::F32_BOUND;

#[test]
fn reference_path_equals_the_oracle_in_every_layer_and_integer() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        let reference = Reference::new(&bound.hp, &bound.weights, bound.head.as_ref(), HeadNorm::Single);
        for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
            let mut state = reference.start();
            let steps: Vec<_> = prompt.iter().map(|token| reference.step(&mut state, *token)).collect();
            let name = |what: &str| format!("p{p}.{what}");
            let logits: Vec<f32> = steps.iter().flat_map(|s| &s.logits).copied().collect();
            let worst = max_relative(&logits, oracle.f32(&name("logits")));
            assert!(worst <= F32_BOUND, "{} p{p} logits {worst:e}", oracle.name);
            let mixed: Vec<f32> = steps.iter().flat_map(|s| &s.mixed).copied().collect();
            let worst = max_relative(&mixed, oracle.f32(&name("final")));
            assert!(worst <= F32_BOUND, "{} p{p} final mixer {worst:e}", oracle.name);
            let rows: Vec<i32> = steps.iter().flat_map(|s| &s.ngram_rows).map(|r| *r as i32).collect();
            assert_eq!(Some(&rows[..]), oracle.i32(&name("ple_rows")), "{} p{p}", oracle.name);
            for layer in 0..bound.hp.layers.len() {
                if let Some(want) = oracle.f32_opt(&name(&format!("layer.{layer}"))) {
                    let got: Vec<f32> = steps.iter().flat_map(|s| &s.layers[layer]).copied().collect();
                    let worst = max_relative(&got, want);
                    assert!(worst <= F32_BOUND, "{} p{p} layer {layer}: {worst:e}", oracle.name);
                }
                let experts = steps.iter().map(|s| s.experts[layer].clone());
                check_experts(&oracle, &name(&format!("experts.{layer}")), experts);
                if let Some(mask) = oracle.u8(&name(&format!("qsa_mask.{layer}"))) {
                    for (t, step) in steps.iter().enumerate() {
                        let row = &mask[t * prompt.len()..(t + 1) * prompt.len()];
                        let want: Vec<usize> = (0..prompt.len()).filter(|j| row[*j] == 1).collect();
                        assert_eq!(step.selected[layer], want, "{} p{p} layer {layer} row {t}", oracle.name);
                    }
                }
            }
            let mut last = steps[prompt.len() - 1].logits.clone();
            for (i, want) in oracle.meta.greedy[p].iter().enumerate() {
                assert_eq!(argmax(&last), *want, "{} p{p} greedy token {i}", oracle.name);
                last = reference.step(&mut state, *want).logits;
            }
        }
        oracle.assert_all_read(&[".final", ".layer.", ".experts.", ".qsa_mask.", ".ple_rows"]);
    }
}

/// Ids of each row as sets: the stored order of equal weights is the reference's own.
pub(crate) fn check_experts(oracle: &Oracle, name: &str, rows: impl Iterator<Item = Vec<u32>>) {
    let Some(want) = oracle.i32(name) else { return };
    let rows: Vec<Vec<u32>> = rows.collect();
    for (t, (mut got, want)) in rows.iter().cloned().zip(want.chunks_exact(want.len() / rows.len())).enumerate() {
        let mut want: Vec<u32> = want.iter().map(|id| *id as u32).collect();
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want, "{} {name} row {t}", oracle.name);
    }
}

#[test]
fn reference_head_rows_equal_the_oracle_under_both_norms() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        for (norm, stem) in [(HeadNorm::Single, "mtp"), (HeadNorm::PerStream, "mtp_per_stream")] {
            let reference = Reference::new(&bound.hp, &bound.weights, bound.head.as_ref(), norm);
            for (p, prompt) in oracle.meta.prompts.iter().enumerate() {
                let mut state = reference.start();
                let mut memory = AttentionMemory::default();
                let residuals: Vec<Vec<f32>> =
                    prompt.iter().map(|token| reference.step(&mut state, *token).residual).collect();
                let rows: Vec<(Vec<f32>, Vec<f32>)> = (0..prompt.len() - 1)
                    .map(|i| reference.head_row(&mut memory, &residuals[i], prompt[i + 1]).unwrap())
                    .collect();
                let logits: Vec<f32> = rows.iter().flat_map(|r| &r.0).copied().collect();
                let worst = max_relative(&logits, oracle.f32(&format!("p{p}.{stem}.logits")));
                assert!(worst <= F32_BOUND, "{} p{p} {stem} logits {worst:e}", oracle.name);
                if let Some(want) = oracle.f32_opt(&format!("p{p}.{stem}.multi")) {
                    let multi: Vec<f32> = rows.iter().flat_map(|r| &r.1).copied().collect();
                    let worst = max_relative(&multi, want);
                    assert!(worst <= F32_BOUND, "{} p{p} {stem} multi {worst:e}", oracle.name);
                }
            }
        }
        oracle.assert_all_read(&[".mtp.logits", ".mtp.multi", ".mtp_per_stream."]);
    }
}
