//! Sampled drafting is distribution-exact (qwen4exp.md 10), and here even token-exact: the token at a position is a
//! function of its logits, the seed and the position.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudafast_cpu::CpuTimeline;
use cudafast_runtime::sampler::choose;
use cudafast_runtime::{
    LogitEdit, MAX_DEPTH, Penalties, RoundRequest, SamplerScratch, Sampling, Snapshot, Timeline, TokenLogprobs,
};
use cudafast_tests::Bound;
use cudafast_tests::oracle::Oracle;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::{feed, generate, on_two_threads, prefill, round};

use crate::timeline;

fn sampling(temperature: f32, top_k: usize, top_p: f32, min_p: f32, seed: u64) -> Sampling {
    Sampling::new(temperature, top_k, top_p, min_p, seed).unwrap()
}

#[test]
fn sampled_text_is_the_same_at_every_depth_for_one_seed() {
    let bound = Bound::tiny_story();
    let mut timeline = timeline(&bound);
    for (i, prompt) in fifty().iter().step_by(9).enumerate() {
        let sampling = sampling(0.9, 0, 0.95, 0.0, 1000 + i as u64);
        let serial = generate(&mut timeline, prompt, 80, 0, &sampling);
        for depth in 1..=MAX_DEPTH {
            let drafted = generate(&mut timeline, prompt, 80, depth, &sampling);
            assert_eq!(drafted.tokens, serial.tokens, "depth {depth}");
            assert!(drafted.logits == serial.logits, "depth {depth}");
        }
    }
}

/// Penalties count the drafts accepted before a row in the same round (qwen4exp.md 10), greedy or sampled.
#[test]
fn penalised_text_and_log_probabilities_are_the_same_at_every_depth() {
    let bound = Bound::tiny_story();
    let mut timeline = timeline(&bound);
    let penalties = Penalties::new(1.4, 1.5, 0.5).unwrap();
    let (mut drafted, mut accepted) = (0, 0);
    for (prompt, temperature) in fifty().iter().zip([0.0, 0.5]) {
        let sampling = sampling(temperature, 0, 0.95, 0.0, 3).with_penalties(penalties).answering_from(prompt.len());
        let edit = LogitEdit { bias: vec![(prompt[0], 2.0), (7, -1.0)], allowed: None };
        let mut serial = None;
        for depth in 0..=MAX_DEPTH {
            prefill(&mut timeline, prompt);
            let mut tokens = vec![timeline.choose(&sampling, Some(&edit), depth).unwrap()];
            let mut logprobs = vec![TokenLogprobs::of(timeline.last_logits(), tokens[0], 3)];
            while tokens.len() < 32 {
                let round = timeline
                    .round(&RoundRequest {
                        next_depth: depth,
                        drafts: None,
                        budget: 32 - tokens.len(),
                        stop: &[],
                        sampling: &sampling,
                        edits: &vec![edit.clone(); MAX_DEPTH + 1],
                        want_logits: false,
                        top_logprobs: Some(3),
                    })
                    .unwrap();
                tokens.extend(&round.committed[1..]);
                tokens.push(round.next);
                logprobs.extend(round.logprobs);
                (drafted, accepted) = (drafted + round.drafted, accepted + round.accepted);
            }
            assert_eq!(logprobs.len(), tokens.len());
            let serial = serial.get_or_insert_with(|| (tokens.clone(), logprobs.clone()));
            assert!((&tokens, &logprobs) == (&serial.0, &serial.1), "temperature {temperature}, depth {depth}");
        }
        // So that the test is of penalties at all: without them the text is another.
        let plain = generate(&mut timeline, prompt, 32, 0, &self::sampling(temperature, 0, 0.95, 0.0, 3));
        assert_ne!(serial.unwrap().0, plain.tokens);
    }
    assert!(accepted > 20 && accepted < drafted, "{accepted} of {drafted} drafts accepted");
}

const DRAWS: u64 = 20_000;

type Histogram = HashMap<u32, f64>;

/// Counts of the first two tokens after the pending one, over many seeds, by serial rounds. A row's logits do not depend
/// on the seed, so each context is run once and drawn from as a round does.
fn serial_draws(
    timeline: &mut CpuTimeline,
    start: &Snapshot,
    seeds: std::ops::Range<u64>,
    setting: (f32, usize, f32, f32),
) -> [Histogram; 2] {
    let greedy = Sampling::greedy();
    timeline.restore(start).unwrap();
    timeline.choose(&greedy, None, 0).unwrap();
    let first_row = round(timeline, &greedy, None, 0, 1).logits;
    let after_first = timeline.snapshot();
    // Without penalties the past is only as many tokens.
    let past = vec![0; timeline.position() + 1];
    let (before_first, before_second) = (&past[1..], &past[..]);
    let mut second_rows: HashMap<u32, Vec<f32>> = HashMap::new();
    let mut counts = [Histogram::new(), Histogram::new()];
    let mut scratch = SamplerScratch::default();
    let (temperature, top_k, top_p, min_p) = setting;
    for seed in seeds {
        let sampling = sampling(temperature, top_k, top_p, min_p, seed);
        let first = choose(&first_row, None, &sampling, before_first, &mut scratch).unwrap();
        let row = second_rows.entry(first).or_insert_with(|| {
            timeline.restore(&after_first).unwrap();
            feed(timeline, first)
        });
        let second = choose(row, None, &sampling, before_second, &mut scratch).unwrap();
        for (counts, token) in counts.iter_mut().zip([first, second]) {
            *counts.entry(token).or_insert(0.0) += 1.0;
        }
    }
    counts
}

/// The same by rounds that verify drafts; also how many drafts were accepted.
fn drafted_draws(
    timeline: &mut CpuTimeline,
    start: &Snapshot,
    drafts: &[u32],
    seeds: std::ops::Range<u64>,
    setting: (f32, usize, f32, f32),
) -> ([Histogram; 2], usize) {
    let greedy = Sampling::greedy();
    let mut counts = [Histogram::new(), Histogram::new()];
    let mut accepted = 0;
    let past = vec![0; start.tokens.len() + 2];
    let mut second_rows: HashMap<u32, Vec<f32>> = HashMap::new();
    let mut scratch = SamplerScratch::default();
    let (temperature, top_k, top_p, min_p) = setting;
    for seed in seeds {
        let sampling = sampling(temperature, top_k, top_p, min_p, seed);
        timeline.restore(start).unwrap();
        timeline.choose(&greedy, None, 0).unwrap();
        let first = round(timeline, &sampling, Some(drafts), 0, usize::MAX);
        accepted += first.accepted;
        let mut chosen = first.committed[1..].to_vec();
        chosen.push(first.next);
        if chosen.len() < 2 {
            // Nothing was accepted: the state is one for all seeds that chose this token.
            let row = second_rows.entry(first.next).or_insert_with(|| round(timeline, &sampling, None, 0, 1).logits);
            chosen.push(choose(row, None, &sampling, &past, &mut scratch).unwrap());
        }
        for (counts, token) in counts.iter_mut().zip(chosen) {
            *counts.entry(token).or_insert(0.0) += 1.0;
        }
    }
    (counts, accepted)
}

/// Two-sample chi-square over tokens with at least ten draws in both samples together, the rest in one bin; returns the
/// statistic as a normal deviate (Wilson and Hilferty).
fn deviate(a: &Histogram, b: &Histogram) -> f64 {
    let mut bins: HashMap<u32, [f64; 2]> = HashMap::new();
    for (side, counts) in [a, b].into_iter().enumerate() {
        for (token, n) in counts {
            bins.entry(*token).or_default()[side] += n;
        }
    }
    let mut rest = [0.0; 2];
    bins.retain(|_, n| {
        let keep = n[0] + n[1] >= 10.0;
        if !keep {
            rest[0] += n[0];
            rest[1] += n[1];
        }
        keep
    });
    let all = bins.into_values().chain(std::iter::once(rest)).filter(|n| n[0] + n[1] > 0.0);
    let (mut statistic, mut cells) = (0.0, 0);
    for [x, y] in all {
        statistic += (x - y) * (x - y) / (x + y);
        cells += 1;
    }
    let freedom = f64::from((cells - 1).max(1));
    let third = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - third)) / third.sqrt()
}

/// Independent seeds for the two sides. A normal deviate of 4.5 is passed by chance once in 300,000; seeds are fixed, so
/// the test is the same every time. A rejection that kept the draft's probability in would move it past 20.
#[test]
fn drafting_on_and_off_draw_from_the_same_distribution_over_a_grid_of_settings() {
    let oracle = Oracle::load("tiny");
    let mut bound = oracle.bind();
    // The law is of drawing and accepting, whatever the logits are: two layers give some.
    bound.hp.layers.truncate(2);
    bound.weights.layers.truncate(2);
    // Given drafts need no head. The same pending token and drafts for every seed: only the draws differ.
    bound.head = None;
    let drafts =
        generate(&mut timeline(&bound), &oracle.meta.prompts[1], 3, 0, &Sampling::greedy()).tokens[1..].to_vec();
    let grid = [
        (1.0, 0, 1.0, 0.0),
        (0.3, 0, 1.0, 0.0),
        (1.3, 40, 1.0, 0.0),
        (0.5, 20, 0.95, 0.0),
        (0.25, 8, 0.80, 0.0),
        (0.4, 0, 1.0, 0.05),
    ];
    let all_accepted = AtomicUsize::new(0);
    on_two_threads(
        &grid,
        || timeline(&bound),
        |timeline, setting| {
            prefill(timeline, &oracle.meta.prompts[1]);
            let start = timeline.snapshot();
            let off = serial_draws(timeline, &start, 0..DRAWS, *setting);
            let (on, accepted) = drafted_draws(timeline, &start, &drafts, DRAWS..2 * DRAWS, *setting);
            println!("{setting:?}: {accepted} drafts accepted in {DRAWS} rounds");
            all_accepted.fetch_add(accepted, Ordering::Relaxed);
            for (position, (off, on)) in off.iter().zip(&on).enumerate() {
                let z = deviate(off, on);
                println!("{setting:?}, position {position}: {} tokens drawn, deviate {z:.2}", off.len());
                assert!(z < 4.5, "{setting:?}, position {position}: deviate {z}");
                assert!(off.len() > 1, "a distribution of one token tests nothing");
            }
        },
    );
    assert!(all_accepted.into_inner() > DRAWS as usize / 10, "acceptance was hardly exercised");
}
