//! Greedy text with drafting equals greedy text without, bit for bit in logits (design 3.2).

use std::sync::Mutex;

use cudafast_runtime::{MAX_DEPTH, Sampling};
use cudafast_tests::Bound;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::{generate, on_two_threads};

use crate::timeline;

/// ggml-org/llama.cpp#25618 and ml-explore/mlx-lm#1423 asked for this: text differed with drafting on.
#[test]
fn greedy_bits_are_the_same_at_every_depth_over_fifty_prompts_of_256_tokens() {
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
        },
    );
    for (depth, (drafted, accepted)) in counts.into_inner().unwrap().into_iter().enumerate().skip(1) {
        println!("depth {depth}: {accepted} of {drafted} drafts accepted");
        // A check that drafting happened at all, and that both outcomes occurred.
        assert!(accepted > drafted / 10 && accepted < drafted, "depth {depth}: {accepted} of {drafted}");
    }
}
