//! ggml-org/llama.cpp#28019: logits depended on what the context buffer held before.

use cudafast_cpu::Precision;
use cudafast_runtime::Sampling;
use cudafast_tests::Bound;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::generate;

#[test]
fn same_prompt_same_bits_after_another_prompt() {
    let prompts = fifty();
    let mut timeline = Bound::tiny_story().timeline(Precision::Int8);
    let first = generate(&mut timeline, &prompts[0], 48, 3, &Sampling::greedy());
    generate(&mut timeline, &prompts[52], 200, 5, &Sampling::greedy());
    assert!(first == generate(&mut timeline, &prompts[0], 48, 3, &Sampling::greedy()));
}
