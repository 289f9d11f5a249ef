//! After every rejection, all live state equals, byte for byte, that of a serial run over the committed tokens.

use cudafast_cpu::CpuTimeline;
use cudafast_runtime::{AttentionState, CacheRows, LayerState, MAX_DEPTH, Round, Sampling, Snapshot, Timeline};
use cudafast_tests::Bound;
use cudafast_tests::compare::bits;
use cudafast_tests::oracle::Oracle;
use cudafast_tests::prompts::fifty;
use cudafast_tests::stream::{prefill, round};

use crate::timeline;

/// What a serial run looked like after each committed token.
struct Serial {
    /// Chosen tokens; entry 0 is chosen after the prompt.
    tokens: Vec<u32>,
    /// Entry `i`: state with `tokens[..i]` committed, `tokens[i]` pending.
    states: Vec<(Snapshot, Option<AttentionState>)>,
}

/// On a timeline of its own: leftover rows of a shared one would hide a row that is never written.
fn serial(bound: &Bound, prompt: &[u32], n: usize) -> Serial {
    let timeline = &mut timeline(bound);
    prefill(timeline, prompt);
    let mut tokens = vec![timeline.choose(&Sampling::greedy(), None, 0).unwrap()];
    let mut states = vec![(timeline.snapshot(), timeline.head_rows())];
    for _ in 0..n {
        tokens.push(round(timeline, &Sampling::greedy(), None, 0, 1).next);
        states.push((timeline.snapshot(), timeline.head_rows()));
    }
    Serial { tokens, states }
}

/// Bit for bit: `==` on floats would take the two zeros for one and no NaN for itself.
fn assert_same_state(timeline: &CpuTimeline, want: &(Snapshot, Option<AttentionState>), what: &str) {
    let got = timeline.snapshot();
    assert!(got.tokens == want.0.tokens, "{what}: tokens");
    for (i, (got, want)) in got.layers.iter().zip(&want.0.layers).enumerate() {
        let same = match (got, want) {
            (LayerState::Gdn(got), LayerState::Gdn(want)) => {
                bits(&got.s) == bits(&want.s) && bits(&got.conv) == bits(&want.conv)
            }
            (LayerState::Attention(got), LayerState::Attention(want)) => same_caches(got, want),
            _ => false,
        };
        assert!(same, "{what}: state of layer {i}");
    }
    assert!(bits(&got.ngram_conv) == bits(&want.0.ngram_conv), "{what}: n-gram convolution");
    assert!(bits(&got.residual) == bits(&want.0.residual), "{what}: residual");
    assert!(bits(&got.logits) == bits(&want.0.logits), "{what}: logits");
    for (got, want) in [(&got.head, &want.0.head), (&timeline.head_rows(), &want.1)] {
        match (got, want) {
            (Some(got), Some(want)) => assert!(same_caches(got, want), "{what}: draft head rows"),
            _ => panic!("{what}: these models have a head"),
        }
    }
}

fn same_caches(got: &AttentionState, want: &AttentionState) -> bool {
    let same = |got: &CacheRows, want: &CacheRows| match (got, want) {
        (CacheRows::Bf16(got), CacheRows::Bf16(want)) => got == want,
        (CacheRows::F32(got), CacheRows::F32(want)) => bits(got) == bits(want),
        _ => false,
    };
    same(&got.k, &want.k)
        && same(&got.v, &want.v)
        && same(&got.index_raw, &want.index_raw)
        && same(&got.index_pooled, &want.index_pooled)
}

/// Verifies `n` drafts of which exactly the first `right` are what the model will choose.
fn forced(timeline: &mut CpuTimeline, serial: &Serial, at: usize, n: usize, right: usize, vocab: u32) -> Round {
    let mut drafts: Vec<u32> = serial.tokens[at + 1..at + 1 + n].to_vec();
    if let Some(wrong) = drafts.get_mut(right) {
        *wrong = (*wrong + 1 + (at * 7 + n) as u32 % (vocab - 1)) % vocab;
    }
    round(timeline, &Sampling::greedy(), Some(&drafts), n % 3, usize::MAX)
}

/// Every length, every position of the first wrong draft, at moving offsets from chunk and block boundaries.
fn every_rejection(bound: &Bound, prompt: &[u32]) {
    let vocab = bound.hp.vocab as u32;
    let mut timeline = timeline(bound);
    let cases: Vec<(usize, usize)> = (1..=MAX_DEPTH).flat_map(|n| (0..=n).map(move |right| (n, right))).collect();
    let total: usize = cases.iter().map(|(_, right)| right + 1).sum();
    let serial = serial(bound, prompt, total + MAX_DEPTH);
    prefill(&mut timeline, prompt);
    timeline.choose(&Sampling::greedy(), None, 0).unwrap();
    let mut at = 0;
    for (n, right) in cases {
        let round = forced(&mut timeline, &serial, at, n, right, vocab);
        assert_eq!((round.drafted, round.accepted), (n, right));
        at += right + 1;
        assert_eq!(round.next, serial.tokens[at]);
        assert_same_state(&timeline, &serial.states[at], &format!("{n} drafts, {right} right, token {at}"));
    }
}

#[test]
fn state_after_every_forced_rejection_equals_a_serial_run_on_the_embedded_model() {
    let bound = Bound::tiny_story();
    for prompt in fifty().iter().step_by(11) {
        every_rejection(&bound, prompt);
    }
}

#[test]
fn state_after_every_forced_rejection_equals_a_serial_run_on_the_oracle_sets() {
    for oracle in Oracle::both() {
        let bound = oracle.bind();
        for prompt in &oracle.meta.prompts {
            every_rejection(&bound, prompt);
        }
    }
}

/// TheTom/llama-cpp-turboquant#345 and JakeATX/llamAmpere#8: groups went stale when a round drafted fewer than the maximum.
#[test]
fn random_draft_lengths_and_rejections_give_the_serial_text() {
    let bound = Bound::tiny_story();
    let mut timeline = timeline(&bound);
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % n as u64) as usize
    };
    for prompt in fifty().iter().step_by(7) {
        let serial = serial(&bound, prompt, 120 + MAX_DEPTH);
        prefill(&mut timeline, prompt);
        timeline.choose(&Sampling::greedy(), None, below(MAX_DEPTH + 1)).unwrap();
        let mut at = 0;
        while at < 120 {
            let n = below(MAX_DEPTH + 1);
            let round = if below(2) == 0 {
                // The head's own drafts, however many there are.
                round(&mut timeline, &Sampling::greedy(), None, n, usize::MAX)
            } else {
                let right = below(n + 1);
                forced(&mut timeline, &serial, at, n, right, bound.hp.vocab as u32)
            };
            at += round.committed.len();
            if at < serial.states.len() {
                assert_eq!(round.next, serial.tokens[at]);
                assert_same_state(&timeline, &serial.states[at], &format!("token {at}"));
            }
        }
    }
}

#[test]
fn rewind_reaches_every_row_of_the_last_round() {
    let bound = Bound::tiny_story();
    let mut timeline = timeline(&bound);
    let prompt = &fifty()[0];
    let serial = serial(&bound, prompt, 2 * MAX_DEPTH + 2);
    for keep in 1..=MAX_DEPTH + 1 {
        prefill(&mut timeline, prompt);
        timeline.choose(&Sampling::greedy(), None, 0).unwrap();
        let round = forced(&mut timeline, &serial, 0, MAX_DEPTH, MAX_DEPTH, bound.hp.vocab as u32);
        assert_eq!(round.committed.len(), MAX_DEPTH + 1);
        timeline.rewind(keep).unwrap();
        assert_eq!(timeline.position(), prompt.len() + keep);
        assert_eq!(timeline.pending(), None);
        assert!(timeline.rewind(keep + 1).is_err(), "rows above the kept ones are gone");
        assert_eq!(timeline.choose(&Sampling::greedy(), None, 2).unwrap(), serial.tokens[keep]);
        assert_same_state(&timeline, &serial.states[keep], &format!("rewound to {keep}"));
        let mut at = keep;
        while at < keep + 4 {
            let next = cudafast_tests::stream::round(&mut timeline, &Sampling::greedy(), None, 2, usize::MAX);
            at += next.committed.len();
            assert_eq!(next.next, serial.tokens[at]);
            assert_same_state(&timeline, &serial.states[at], &format!("rewound to {keep}, then token {at}"));
        }
    }
}
