//! halo-box/strix-llama.cpp#34: accepted tokens were verified again after a restore, without end and without output.

use cudafast_cpu::Precision;
use cudafast_runtime::{Sampling, Timeline};
use cudafast_tests::Bound;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::{prefill, round};

#[test]
fn every_round_commits_at_least_one_token_also_after_a_restore() {
    let mut timeline = Bound::tiny_story().timeline(Precision::Int8);
    let greedy = Sampling::greedy();
    prefill(&mut timeline, &fifty()[3]);
    timeline.choose(&greedy, None, 4).unwrap();
    for i in 0..60 {
        let before = timeline.position();
        let committed = round(&mut timeline, &greedy, None, 4, usize::MAX).committed.len();
        assert!(committed >= 1);
        assert_eq!(timeline.position(), before + committed);
        if i % 7 == 6 {
            let snapshot = timeline.snapshot();
            timeline.restore(&snapshot).unwrap();
            assert_eq!(timeline.position(), before + committed);
            timeline.choose(&greedy, None, 4).unwrap();
        }
    }
}
