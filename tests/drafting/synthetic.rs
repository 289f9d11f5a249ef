//! Synthetic models run: finite logits that differ, experts that differ from token to token, bits that do not depend on
//! drafting. They are what speed is measured on, so a model that collapsed would be measured for nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use cudafast_cpu::{CpuTimeline, Probe};
use cudafast_model::{SynthSpec, SynthTypes};
use cudafast_runtime::{Sampling, Timeline};
use cudafast_tests::Bound;
use cudafast_tests::stream::{generate, prefill};

use crate::timeline;

/// What a forward did, layer by layer.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    experts: Vec<BTreeSet<Vec<u32>>>,
    largest: f32,
}

impl Probe for Watched {
    fn residual(&mut self, _layer: usize, _position: usize, x: &[f32]) {
        let mut seen = self.0.lock().unwrap();
        seen.largest = x.iter().fold(seen.largest, |most, x| most.max(x.abs()));
    }
    fn experts(&mut self, layer: usize, _position: usize, ids: &[u32]) {
        let mut seen = self.0.lock().unwrap();
        let layers = seen.experts.len().max(layer + 1);
        seen.experts.resize_with(layers, BTreeSet::new);
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        seen.experts[layer].insert(ids);
    }
}

/// 70 tokens, past the end of a chunk.
fn prompt(vocab: usize) -> Vec<u32> {
    (0..70).map(|i| (i * 37 + i * i) % (vocab as u32 - 33)).collect()
}

/// Standard deviation of the last row's logits, after a check that they are numbers.
fn spread(timeline: &CpuTimeline) -> f32 {
    let logits = timeline.last_logits();
    assert!(logits.iter().all(|l| l.is_finite()));
    let n = logits.len() as f32;
    let mean = logits.iter().sum::<f32>() / n;
    (logits.iter().map(|l| (l - mean).powi(2)).sum::<f32>() / n).sqrt()
}

#[test]
fn synthetic_models_stay_sane_through_many_layers_and_route_tokens_apart() {
    for (layers, types) in [(4, "UD-Q4_K_XL"), (24, "UD-Q4_K_XL"), (4, "Q8_0")] {
        let types = SynthTypes::by_name(types).unwrap();
        let bound = Bound::synthetic(&SynthSpec { layers, types, ..SynthSpec::small() });
        let mut timeline = timeline(&bound);
        let watched = Watched::default();
        timeline.watch(Box::new(watched.clone()));
        prefill(&mut timeline, &prompt(bound.hp.vocab));
        let spread = spread(&timeline);
        assert!((0.5..8.0).contains(&spread), "{layers} layers: logits spread by {spread}");
        let seen = watched.0.lock().unwrap();
        assert!(seen.largest < 100.0, "{layers} layers: a residual of {}", seen.largest);
        // 28 pairs of 8 experts; 70 tokens choose at least a third of them in every layer, the head's too.
        let fewest = seen.experts.iter().map(BTreeSet::len).min().unwrap();
        assert!(seen.experts.len() == layers + 1 && fewest >= 9, "{layers} layers: only {fewest} choices of experts");
    }
}

#[test]
fn synthetic_text_is_the_same_with_drafting() {
    let bound = Bound::synthetic(&SynthSpec::small());
    let mut timeline = timeline(&bound);
    let prompt = prompt(bound.hp.vocab);
    let serial = generate(&mut timeline, &prompt, 24, 0, &Sampling::greedy());
    let drafted = generate(&mut timeline, &prompt, 24, 3, &Sampling::greedy());
    assert!(serial.tokens == drafted.tokens && serial.logits == drafted.logits);
    assert!(serial.tokens.iter().collect::<BTreeSet<_>>().len() > 8, "{:?}", serial.tokens);
}

#[test]
fn a_synthetic_model_of_every_format_runs() {
    for format in cudafast_quant::formats() {
        let Some(types) = SynthTypes::by_name(format.name) else { continue };
        let bound = Bound::synthetic(&SynthSpec { types, ..SynthSpec::small() });
        let mut timeline = timeline(&bound);
        prefill(&mut timeline, &prompt(bound.hp.vocab)[..9]);
        let spread = spread(&timeline);
        assert!((0.5..8.0).contains(&spread), "{}: logits spread by {spread}", format.name);
    }
}
