//! Long runs, where a backtracking pattern or a careless merge loop takes quadratic time or cuts elsewhere.

use std::time::{Duration, Instant};

use cudafast_text::SpecialTokens::{Literal, Parse};

use crate::fixture::{QWEN35, TINY};

const MEGABYTE: usize = 1 << 20;

/// Seconds here are tenths of one on an idle machine; quadratic time would be minutes.
const BOUND: Duration = Duration::from_secs(20);

#[test]
fn a_megabyte_of_one_thing_takes_no_longer_than_a_megabyte_of_prose() {
    let prose = "It was a bright cold day in April, and the clocks were striking thirteen. ";
    for unit in ["a", " ", "\n", "😀", "1", "한", "\u{301}", "!", " \n", "a ", "<|im_start|>", "<|im_", "'", prose] {
        let text = unit.repeat(MEGABYTE / unit.len());
        for tokenizer in [&*TINY, &*QWEN35] {
            let start = Instant::now();
            let ids = tokenizer.encode(&text, Parse).unwrap();
            assert!(start.elapsed() < BOUND, "{unit:?}: {:?}", start.elapsed());
            assert!(tokenizer.decode(&ids) == text, "{unit:?}");
        }
    }
}

#[test]
fn a_long_run_is_cut_like_a_short_one() {
    // Doubling a run of one power-of-two token's worth doubles its ids, at any length.
    for unit in ["a", " ", "=", "\n", "😀"] {
        let ids = |count: usize| QWEN35.encode(&unit.repeat(count), Literal).unwrap();
        let short = ids(1 << 12);
        assert_eq!(ids(1 << 18), short.repeat(1 << 6), "{unit:?}");
    }
}
