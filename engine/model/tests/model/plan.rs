//! The memory plan, against the published numbers of the real model.

use cudafast_model::{Error, Family, Home, MemoryPlan, PlanItem};

use crate::{
    fixture::{Fixture, refusal, says},
    published::{listed, real},
    real_files::oracle,
};

fn real_plan(ctx_tokens: usize) -> MemoryPlan {
    let (target, head) = (listed("ud_q4_k_xl"), listed("mtp_q8_0"));
    let head = head.iter().map(|t| t.bytes).sum();
    MemoryPlan::of_tensors(&real(), target.iter().map(|t| (t.name.as_str(), t.bytes)), Some(head), ctx_tokens, 2)
}

/// qwen4exp.md 11.
#[test]
fn weights_of_the_real_model_sum_to_the_published_families() {
    let plan = real_plan(1024);
    let expected = [
        (Family::RoutedExperts, 77_017_907_200),
        (Family::Gdn, 2_247_261_696),
        (Family::HyperConnections, 695_132_160),
        (Family::OutputHead, 675_430_400),
        (Family::Attention, 635_068_416),
        (Family::Router, 252_149_760),
        (Family::SharedExpert, 250_675_200),
        (Family::Indexer, 39_333_888),
        (Family::NgramBlock, 35_102_720),
        (Family::TokenEmbedding, 675_430_400),
        (Family::NgramTable, 28_800_138_240),
        (Family::DraftHead, 2_775_621_632),
    ];
    for (family, bytes) in expected {
        assert_eq!(plan.bytes(PlanItem::Weights(family)), bytes, "{family}");
    }
    assert_eq!(expected[..11].iter().map(|(_, bytes)| bytes).sum::<u64>(), 111_323_630_080);
    assert_eq!(expected.len(), Family::ALL.len());
}

#[test]
fn every_published_tensor_name_has_a_family() {
    for file in ["ud_q4_k_xl", "mtp_q8_0", "mooney_pq2_0"] {
        for t in listed(file) {
            assert!(Family::of_tensor(&t.name).is_some(), "{file}: {}", t.name);
        }
    }
    for name in ["output_norm.weight", "blk.x.attn_q.weight", "blk.1", "blk.1.attn_norm.weight", "rope_freqs.weight"] {
        assert_eq!(Family::of_tensor(name), None, "{name}");
    }
}

/// qwen4exp.md 8, at the full context in 16 bit.
#[test]
fn state_of_the_real_model_has_the_published_sizes() {
    let ctx = 262_144;
    let plan = real_plan(ctx);
    assert_eq!(plan.bytes(PlanItem::GdnState), 113_246_208);
    assert_eq!(plan.bytes(PlanItem::GdnConvolution), 4_423_680);
    assert_eq!(plan.bytes(PlanItem::NgramState), 368_640 + 8);
    assert_eq!(plan.bytes(PlanItem::KeysAndValues), 24_576 * ctx as u64);
    assert_eq!(plan.bytes(PlanItem::IndexerKeys), 3_072 * ctx as u64);
    assert_eq!(plan.bytes(PlanItem::PooledKeys), 768 * ctx as u64);
    assert_eq!(plan.bytes(PlanItem::DraftHeadCache), (2_304 + 64) * ctx as u64);
    assert_eq!(plan.bytes(PlanItem::Scratch), 0);
}

#[test]
fn a_pooled_key_is_planned_once_its_block_is_complete() {
    assert_eq!(real_plan(4).bytes(PlanItem::PooledKeys), real_plan(7).bytes(PlanItem::PooledKeys));
    assert_eq!(real_plan(3).bytes(PlanItem::PooledKeys), 0);
}

#[test]
fn caches_of_twice_the_width_take_twice_the_bytes() {
    let bytes = |width| MemoryPlan::of_tensors(&real(), [], None, 4096, width);
    let (narrow, wide) = (bytes(2), bytes(4));
    assert_eq!(2 * narrow.bytes(PlanItem::KeysAndValues), wide.bytes(PlanItem::KeysAndValues));
    assert_eq!(narrow.bytes(PlanItem::GdnState), wide.bytes(PlanItem::GdnState));
}

#[test]
fn a_bound_model_is_planned_to_the_byte() {
    let target = Fixture::target();
    let head = Fixture::head();
    let (hp, weights) = target.bind().unwrap();
    let bound = head.bind_to(&target).unwrap();
    let plan = MemoryPlan::new(&hp, &weights, Some(&bound), 64, 2).with_scratch(1000);
    let bytes = |f: &Fixture| f.tensors.iter().map(|t| t.bytes.len() as u64).sum::<u64>();
    // one attention layer and the head: 2 * 2 * 16 values of k and v, 8 of the index key, 8 per 4 tokens pooled
    let caches = 2 * (64 * (64 + 8) + 16 * 8) * 2;
    // three GDN layers: S 2*16*16, convolution 3 rows of 64; n-gram: 9 rows of 512, 2 ids
    let state = 3 * (2 * 16 * 16 + 3 * 64) * 4 + 9 * 512 * 4 + 8;
    assert_eq!(plan.total(), bytes(&target) + bytes(&head) + caches + state + 1000);
    let alone = MemoryPlan::new(&hp, &weights, None, 64, 2);
    assert_eq!(alone.bytes(PlanItem::Weights(Family::DraftHead)) + alone.bytes(PlanItem::DraftHeadCache), 0);
    let own = Fixture::self_contained_head().bind_to(&target).unwrap();
    let more = MemoryPlan::new(&hp, &weights, Some(&own), 64, 2).total() - plan.total() + 1000;
    assert_eq!(more, 2 * 512 * 256 * 4);
}

/// A snapshot is the state, the caches, the ids, and the last row's residual and logits.
#[test]
fn snapshots_are_planned_to_the_byte_at_a_full_context() {
    let (plan, ctx) = (real_plan(4096), 4096_u64);
    let state = 113_246_208 + 4_423_680 + 368_640 + 8;
    let caches = (24_576 + 3_072 + 768 + 2_304 + 64) * ctx;
    let last_row = (248_320 + 10_240) * 4;
    let each = state + caches + 4 * ctx + last_row;
    let two = plan.clone().with_snapshots(2);
    assert_eq!(two.bytes(PlanItem::Snapshots), 2 * each);
    assert_eq!(two.total(), plan.total() + 2 * each);
    assert_eq!(two.with_snapshots(0).total(), plan.total());
}

#[test]
fn the_largest_context_leaves_room_for_its_snapshots() {
    let (device, with) = (200 << 30, |ctx| real_plan(ctx).with_snapshots(2));
    let largest = with(1024).largest_context(device) as usize;
    assert!(largest < real_plan(1024).largest_context(device) as usize);
    assert!(with(largest).check(device).is_ok() && with(largest + 4).check(device).is_err());
}

#[test]
fn the_ngram_table_counts_where_it_lives() {
    let table = 28_800_138_240;
    let device = real_plan(1024);
    for home in [Home::Pinned, Home::Disk] {
        let moved = device.clone().with_ngram_table(home);
        assert_eq!(moved.total() + table, device.total());
        assert_eq!(moved.total_in(home), table);
    }
}

#[test]
fn a_plan_prints_as_an_aligned_table_with_totals() {
    let text = real_plan(32_768).with_ngram_table(Home::Disk).with_scratch(300 << 20).to_string();
    let lines: Vec<&str> = text.lines().collect();
    says(
        &text,
        &[
            "routed experts         77,017,907,200 B   71.73 GiB  device",
            "n-gram table           28,800,138,240 B   26.82 GiB  disk",
            "k/v cache                 805,306,368 B  768.00 MiB  device",
            "scratch                   314,572,800 B  300.00 MiB  device",
        ],
    );
    assert!(lines[lines.len() - 2].starts_with("total ") && lines[lines.len() - 2].ends_with("GiB  device"), "{text}");
    assert!(lines[lines.len() - 1].starts_with("total ") && lines[lines.len() - 1].ends_with("GiB  disk"), "{text}");
    let column = |line: &str| line.find(" B  ").unwrap();
    assert!(lines.iter().all(|line| column(line) == column(lines[0])), "{text}");
}

#[test]
fn a_plan_that_fits_passes_and_one_byte_less_does_not() {
    let plan = real_plan(32_768);
    assert!(plan.check(plan.total()).is_ok());
    let (error, text) = refusal(plan.check(plan.total() - 1));
    assert!(matches!(error, Error::DoesNotFit { .. }));
    says(&text, &["needs 107.31 GiB, have 107.31 GiB", "at most 32767 context tokens fit"]);
}

#[test]
fn the_refusal_names_each_line_that_could_be_shrunk() {
    const TABLE: &str = "keep the n-gram table (26.82 GiB) in host memory or on disk";
    const CACHES: &str = "shrink k/v and indexer keys (7.52 GiB): at most ";
    const HEAD: &str = "run without the draft head (3.16 GiB)";
    let plan = real_plan(262_144);
    let elsewhere = plan.clone().with_ngram_table(Home::Pinned);
    let gib = 1_u64 << 30;
    for (plan, available, named) in [
        (&plan, 112 * gib, &[TABLE, CACHES, HEAD][..]),
        (&plan, 110 * gib, &[TABLE, CACHES]),
        (&plan, 90 * gib, &[TABLE]),
        (&plan, 82 * gib, &[TABLE, CACHES, ", and shrink"]),
        (&elsewhere, 85 * gib, &[CACHES, HEAD]),
        (&elsewhere, 82 * gib, &[CACHES]),
        (&elsewhere, 24 * gib, &["the largest line is routed experts (71.73 GiB)", "smaller quantisation"]),
    ] {
        let (error, text) = refusal(plan.check(available));
        assert!(matches!(error, Error::DoesNotFit { .. }));
        says(&text, &["needs ", &format!(", have {}.00 GiB; ", available / gib)]);
        says(&text, named);
        for other in [TABLE, CACHES, HEAD].iter().filter(|other| !named.contains(other)) {
            assert!(!text.contains(other), "{other:?} in: {text}");
        }
    }
}

#[test]
fn the_largest_context_fits_and_one_token_more_does_not() {
    let plan = |ctx| real_plan(ctx).with_ngram_table(Home::Disk);
    for available in [86_000_000_000, 86_000_012_345, 86_123_456_789, 90_000_000_000] {
        let most = plan(1).largest_context(available);
        assert!(most > 0);
        assert!(plan(most as usize).total() <= available, "{most}");
        assert!(plan(most as usize + 1).total() > available, "{most}");
    }
    assert_eq!(plan(1).largest_context(80_000_000_000), 0);
}

#[test]
fn absurd_sizes_saturate_instead_of_wrapping() {
    let mut hp = real();
    hp.attention.head_dim = 1 << 40;
    hp.gdn.head_dim = 1 << 20;
    let plan = MemoryPlan::of_tensors(&hp, [], None, usize::MAX, 4);
    assert_eq!(plan.total(), u64::MAX);
    assert!(plan.check(u64::MAX - 1).is_err());
}

#[test]
fn the_oracle_is_planned_without_its_file() {
    let (hp, weights, _) = oracle("tiny.gguf");
    let plan = MemoryPlan::new(&hp, &weights, None, 200, 4);
    assert_eq!(plan.bytes(PlanItem::Weights(Family::NgramTable)), 2176 * 8 * 4);
    assert_eq!(plan.bytes(PlanItem::KeysAndValues), 2 * 200 * 2 * 2 * 32 * 4);
}
