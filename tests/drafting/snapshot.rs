//! Snapshots, prefill pieces and thread counts do not change a bit (design 3.3 and 3.5).

use cudafast_cpu::{CpuOptions, CpuTimeline};
use cudafast_runtime::{CHUNK_TOKENS, CancelFlag, LogitRows, Sampling, Timeline};
use cudafast_tests::Bound;
use cudafast_tests::compare::bits;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::{generate, prefill, round};

use crate::timeline;

/// Many chunks and a ragged end, from the longest prompts.
fn long_prompt() -> Vec<u32> {
    let mut prompt: Vec<u32> = fifty().concat();
    prompt.truncate(5 * CHUNK_TOKENS + 37);
    prompt
}

fn each_row(timeline: &mut CpuTimeline, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut rows = Vec::new();
    let mut collect = |_: usize, row: &[f32]| rows.push(bits(row));
    timeline.prefill(tokens, LogitRows::Each(&mut collect), &CancelFlag::default()).unwrap();
    rows
}

#[test]
fn a_snapshot_at_a_chunk_multiple_continues_with_the_bits_of_a_cold_run() {
    let bound = Bound::tiny_story();
    let prompt = long_prompt();
    let mut cold = timeline(&bound);
    let want = generate(&mut cold, &prompt, 40, 3, &Sampling::greedy());
    for chunks in 0..=5 {
        let cut = chunks * CHUNK_TOKENS;
        let mut first = timeline(&bound);
        first.prefill(&prompt[..cut], LogitRows::None, &CancelFlag::default()).unwrap();
        let snapshot = first.snapshot();
        drop(first);
        let mut warm = timeline(&bound);
        // Dirty it first: nothing of before may survive.
        generate(&mut warm, &prompt[7..90], 20, 2, &Sampling::greedy());
        warm.restore(&snapshot).unwrap();
        assert!(warm.snapshot() == snapshot, "a restored state is the state");
        warm.prefill(&prompt[cut..], LogitRows::None, &CancelFlag::default()).unwrap();
        assert!(bits(warm.last_logits())[..] == want.logits[..bound.hp.vocab], "first logits, cut at {cut}");
        let mut tokens = vec![warm.choose(&Sampling::greedy(), None, 3).unwrap()];
        let mut logits = bits(warm.last_logits());
        while tokens.len() < 40 {
            let round = round(&mut warm, &Sampling::greedy(), None, 3, 40 - tokens.len());
            tokens.extend(&round.committed[1..]);
            tokens.push(round.next);
            logits.extend(bits(&round.logits));
        }
        assert_eq!(tokens, want.tokens, "cut at {cut}");
        assert!(logits == want.logits, "logits, cut at {cut}");
    }
}

#[test]
fn a_prefill_row_does_not_depend_on_how_many_rows_run_together() {
    let bound = Bound::tiny_story();
    let prompt = long_prompt();
    let mut whole = timeline(&bound);
    let want = each_row(&mut whole, &prompt);
    for n in [1, 2, 3, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300] {
        let mut part = timeline(&bound);
        assert!(each_row(&mut part, &prompt[..n]) == want[..n], "{n} rows");
    }
    // Calls cut at chunk multiples are one call.
    let mut pieces = timeline(&bound);
    let mut rows = Vec::new();
    for piece in prompt.chunks(CHUNK_TOKENS) {
        rows.extend(each_row(&mut pieces, piece));
    }
    assert!(rows == want);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let bound = Bound::tiny_story();
    let prompt = long_prompt();
    let with = |threads: usize| {
        let mut timeline = bound.timeline_with(&CpuOptions { threads, ..CpuOptions::default() });
        generate(&mut timeline, &prompt, 32, 3, &Sampling::greedy())
    };
    let one = with(1);
    for threads in [2, 3, 5] {
        assert!(with(threads) == one, "{threads} threads");
    }
}

#[test]
fn a_cancelled_prefill_stands_at_its_last_piece_and_can_go_on() {
    let bound = Bound::tiny_story();
    let prompt = long_prompt();
    let mut timeline = timeline(&bound);
    let cancel = CancelFlag::default();
    // Raised from the row sink of the first piece.
    let mut sink = |_: usize, _: &[f32]| cancel.raise();
    let stopped = timeline.prefill(&prompt, LogitRows::Each(&mut sink), &cancel);
    assert!(stopped.is_err());
    let stood = timeline.position();
    assert!(stood > 0 && stood < prompt.len() && stood.is_multiple_of(CHUNK_TOKENS));
    timeline.prefill(&prompt[stood..], LogitRows::None, &CancelFlag::default()).unwrap();
    let got = bits(timeline.last_logits());
    prefill(&mut timeline, &prompt);
    assert!(bits(timeline.last_logits()) == got);
}
