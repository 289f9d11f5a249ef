//! Greedy text with drafting equals greedy text without, bit for bit in logits (design 3.2).

use std::sync::Mutex;

use cudafast_cpu::CpuTimeline;
use cudafast_runtime::{MAX_DEPTH, Sampling, Timeline};
use cudafast_tests::Bound;
use cudafast_tests::compare::bits;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::{Stream, generate, on_two_threads, prefill, round};

use crate::timeline;

/// The same stream by rounds of every length whose first wrong draft moves through every place.
fn forced_rejections(timeline: &mut CpuTimeline, prompt: &[u32], serial: &Stream, vocab: usize) {
    prefill(timeline, prompt);
    timeline.choose(&Sampling::greedy(), None, 0).unwrap();
    let (mut at, mut turn) = (0, 0);
    while at + MAX_DEPTH + 1 < serial.tokens.len() {
        let n = 1 + turn % MAX_DEPTH;
        let right = (turn / MAX_DEPTH) % (n + 1);
        let mut drafts = serial.tokens[at + 1..=at + n].to_vec();
        if let Some(wrong) = drafts.get_mut(right) {
            *wrong = (*wrong + 1 + turn as u32) % vocab as u32;
        }
        let round = round(timeline, &Sampling::greedy(), Some(&drafts), 0, usize::MAX);
        assert_eq!(round.accepted, right, "token {at}, prompt {prompt:?}");
        // Row 0 of the stream is the last prompt row.
        let rows = &serial.logits[(at + 1) * vocab..(at + 2 + right) * vocab];
        assert!(bits(&round.logits)[..] == *rows, "{n} drafts, {right} right, token {at}: logits differ in bits");
        at += 1 + right;
        turn += 1;
    }
}

/// ggml-org/llama.cpp#25618 and ml-explore/mlx-lm#1423 asked for this: text differed with drafting on.
#[test]
fn greedy_bits_are_the_same_at_every_depth_and_rejection_over_fifty_prompts_of_256_tokens() {
    let bound = Bound::tiny_story();
    let prompts = fifty();
    assert!(prompts.len() >= 50);
    let counts = Mutex::new([(0, 0); MAX_DEPTH + 1]);
    on_two_threads(
        &prompts,
        || timeline(&bound),
        |timeline, prompt| {
            let serial = generate(timeline, prompt, 256, 0, &Sampling::greedy());
            for depth in 1..=MAX_DEPTH {
                let drafted = generate(timeline, prompt, 256, depth, &Sampling::greedy());
                assert_eq!(drafted.tokens, serial.tokens, "depth {depth}, prompt {prompt:?}");
                assert!(drafted.logits == serial.logits, "depth {depth}: logits differ in bits, prompt {prompt:?}");
                let mut counts = counts.lock().unwrap();
                counts[depth].0 += drafted.drafted;
                counts[depth].1 += drafted.accepted;
            }
            forced_rejections(timeline, prompt, &serial, bound.hp.vocab);
        },
    );
    for (depth, (drafted, accepted)) in counts.into_inner().unwrap().into_iter().enumerate().skip(1) {
        println!("depth {depth}: {accepted} of {drafted} drafts accepted");
        // A check that drafting happened at all, and that both outcomes occurred.
        assert!(accepted > drafted / 10 && accepted < drafted, "depth {depth}: {accepted} of {drafted}");
    }
}
