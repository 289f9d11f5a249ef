//! Keys: ranges, relations, schedule, n-gram constants, vocabulary.

use cudafast_model::{Error, LayerKind};

use crate::fixture::{Fixture, refusal, says, tokens};

/// What a target spoilt in one way is refused with.
fn spoilt(spoil: impl FnOnce(&mut Fixture)) -> (Error, String) {
    let mut target = Fixture::target();
    spoil(&mut target);
    let (error, text) = refusal(target.bind());
    says(&text, &["fixture.gguf"]);
    (error, text)
}

#[test]
fn the_unspoilt_fixture_binds_and_says_what_it_is() {
    let (hp, weights) = Fixture::target().bind().unwrap();
    use LayerKind::{Attention, Gdn};
    assert_eq!(hp.layers, [Gdn, Gdn, Gdn, Attention]);
    assert_eq!((hp.hidden, hp.streams, hp.wide(), hp.hyper_rank, hp.vocab), (256, 2, 512, 32, 512));
    assert_eq!((hp.gdn.key_heads, hp.gdn.value_heads, hp.gdn.head_dim, hp.gdn.conv_kernel), (1, 2, 16, 4));
    assert_eq!((hp.attention.heads, hp.attention.kv_heads, hp.attention.head_dim), (4, 2, 16));
    assert_eq!((hp.attention.rotary_dims, hp.attention.rope_theta, hp.rms_eps), (8, 1e7, 1e-6));
    assert_eq!((hp.indexer.heads, hp.indexer.head_dim, hp.indexer.budget_blocks()), (2, 8, 8));
    assert_eq!((hp.moe.experts, hp.moe.used, hp.moe.expert_ff, hp.moe.shared_ff), (4, 2, 32, 64));
    assert_eq!((hp.ngram.layer, hp.ngram.heads(), hp.ngram.width(), hp.ngram.conv_history()), (1, 4, 128, 9));
    assert_eq!((hp.context_tokens, hp.stop_tokens()), (4096, vec![260, 261]));
    assert_eq!(weights.layers.len(), 4);
    assert_eq!(weights.layers.iter().filter(|l| l.ngram.is_some()).count(), 1);
}

#[test]
fn a_model_of_another_architecture_is_refused_by_its_name() {
    let (error, text) = spoilt(|f| f.set("general.architecture", "llama"));
    assert!(matches!(error, Error::Architecture { .. }));
    says(&text, &["this engine runs qwen4exp; file says llama"]);
}

#[test]
fn each_required_key_is_missed_by_name() {
    let optional = ["qwen4exp.rope.dimension_sections", "qwen4exp.full_attention_interval"];
    let target = Fixture::target();
    for (key, _) in &target.kv {
        let mut without = target.clone();
        without.remove(key);
        match optional.contains(&key.as_str()) {
            true => assert!(without.bind().is_ok(), "{key}"),
            false => says(&refusal(without.bind()).1, &["fixture.gguf", "missing key", key]),
        }
    }
}

#[test]
fn each_key_of_another_kind_is_refused_by_name() {
    let target = Fixture::target();
    for (key, _) in target.kv.iter().filter(|(key, _)| key != "general.architecture") {
        let mut other = target.clone();
        other.set(key, vec![true]);
        let (error, text) = refusal(other.bind());
        assert!(matches!(error, Error::Metadata(_)), "{key}: {text}");
        says(&text, &["fixture.gguf", key]);
    }
}

#[test]
fn integers_of_any_width_are_read() {
    let mut target = Fixture::target();
    target.set("qwen4exp.block_count", 4_u8);
    target.set("qwen4exp.embedding_length", 256_i64);
    target.set("qwen4exp.attention.compress_ratios", vec![0_u64, 0, 0, 4]);
    target.set("qwen4exp.ple.head_offsets", vec![0_i16, 5, 12, 23]);
    assert!(target.bind().is_ok());
}

#[test]
fn sizes_of_zero_or_beyond_any_model_are_refused_with_the_range() {
    let target = Fixture::target();
    let sizes = target.kv.iter().filter(|(key, value)| {
        key.starts_with("qwen4exp.") && !key.contains("eos") && matches!(value, cudafast_gguf::Value::U32(_))
    });
    for (key, _) in sizes {
        for found in [0, u64::MAX] {
            let mut other = target.clone();
            other.set(key, found);
            let (error, text) = refusal(other.bind());
            assert!(matches!(error, Error::Key { .. }), "{text}");
            says(&text, &["fixture.gguf", &format!("`{key}` = {found}, expected")]);
        }
    }
}

#[test]
fn epsilon_and_rope_base_must_be_finite_and_positive() {
    for key in ["qwen4exp.attention.layer_norm_rms_epsilon", "qwen4exp.rope.freq_base"] {
        for value in [0.0, -1e-6, f32::NAN, f32::INFINITY] {
            let (error, text) = spoilt(|f| f.set(key, value));
            assert!(matches!(error, Error::Key { .. }));
            says(&text, &[key, &value.to_string(), "a finite number above 0"]);
        }
    }
}

#[test]
fn a_key_of_this_architecture_that_means_nothing_here_is_refused_rather_than_skipped() {
    for key in ["qwen4exp.rope.scaling.type", "qwen4exp.expert_weights_scale", "qwen4exp.ple.input_length"] {
        let (error, text) = spoilt(|f| f.set(key, 2_u32));
        assert!(matches!(error, Error::UnknownKey { .. }));
        says(&text, &[key, "u32 2"]);
    }
    let mut target = Fixture::target();
    target.set("general.sampling.top_k", 20_i32);
    target.set("quantize.imatrix.file", "x");
    target.set("qwen4exp.vocab_size", 512_u32);
    target.set("qwen4exp.ple.image_token_id", 300_u32);
    assert!(target.bind().is_ok());
}

#[test]
fn keys_of_a_rotated_basis_are_refused_by_name() {
    for key in ["lowbitflash.rot.version", "lowbitflash.rot.signs.blk.0.ffn_up_exps.weight", "prism.hadamard.axis"] {
        let (error, text) = spoilt(|f| f.set(key, 1_u32));
        assert!(matches!(error, Error::Rotation { .. }));
        says(&text, &[key, "needs the rotation of lowbitflash-rotation.md", "not supported yet"]);
    }
}

#[test]
fn a_draft_head_is_not_taken_for_a_model() {
    let (error, text) = refusal(Fixture::head().bind());
    assert!(matches!(error, Error::HeadAsModel { .. }));
    says(&text, &["mtp-fixture.gguf", "is a draft head or holds one", "qwen4exp.nextn_predict_layers"]);
    let (error, _) = spoilt(|f| f.set("qwen4exp.nextn_shared_target_tensors", false));
    assert!(matches!(error, Error::HeadAsModel { .. }));
}

#[test]
fn each_geometry_relation_is_refused_with_its_numbers() {
    let cases: [(&str, u32, &[&str]); 11] = [
        ("attention.head_count_kv", 3, &["head_count (4)", "multiple of head_count_kv (3)"]),
        ("attention.value_length", 32, &["key_length (16) == value_length (32)"]),
        ("rope.dimension_count", 18, &["rope.dimension_count (18) <= key_length (16)"]),
        ("rope.dimension_count", 10, &["rope.dimension_count (10) <= indexer.key_length (8)"]),
        ("rope.dimension_count", 6, &["rope.dimension_sections [2, 1, 1, 0]", "rope.dimension_count / 2 (3)"]),
        ("attention.indexer.top_k", 30, &["indexer.top_k (30)", "multiple of the compress ratio (4)"]),
        ("ssm.group_count", 3, &["ssm.time_step_rank (2)", "multiple of ssm.group_count (3)"]),
        ("ssm.inner_size", 33, &["ssm.inner_size (33) == ssm.time_step_rank (2) * ssm.state_size (16)"]),
        ("ssm.state_size", 17, &["ssm.inner_size (32)", "ssm.state_size (17)"]),
        ("expert_used_count", 5, &["expert_used_count (5) <= expert_count (4)"]),
        ("full_attention_interval", 2, &["layer schedule mismatch at block 1", "ratio 0"]),
    ];
    for (key, value, parts) in cases {
        let (error, text) = spoilt(|f| f.set(&format!("qwen4exp.{key}"), value));
        assert!(matches!(error, Error::Geometry { .. } | Error::LayerSchedule { .. }), "{text}");
        says(&text, parts);
    }
    let (error, text) = spoilt(|f| f.set("qwen4exp.rope.dimension_count", 7_u32));
    assert!(matches!(error, Error::Key { .. }));
    says(&text, &["= 7", "an even number"]);
    let (error, text) = spoilt(|f| f.set("qwen4exp.hyper_connection.count", 1_u32));
    assert!(matches!(error, Error::Key { .. }));
    says(&text, &["`qwen4exp.hyper_connection.count` = 1", "2 to"]);
}

#[test]
fn rope_sections_need_three_entries_that_sum_to_half_the_rotated_channels() {
    for sections in [vec![4_i32], vec![2, 1, 1, 0, 0], vec![2, 2, 1, 0], vec![i32::MAX, i32::MAX, i32::MAX]] {
        let (error, text) = spoilt(|f| f.set("qwen4exp.rope.dimension_sections", sections.clone()));
        assert!(matches!(error, Error::Geometry { .. }));
        says(&text, &["rope.dimension_sections", &format!("{sections:?}")]);
    }
}

#[test]
fn the_schedule_must_agree_with_the_interval_block_by_block() {
    const RATIOS: &str = "qwen4exp.attention.compress_ratios";
    let cases: [(Vec<i32>, &[&str]); 5] = [
        (vec![0, 0, 4], &["at block 3", "3 entries", "4, one per block"]),
        (vec![0, 0, 0, 4, 0], &["at block 4", "5 entries"]),
        (vec![0, 0, 4, 0], &["at block 2", "ratio 4", "expected ratio 0"]),
        (vec![0, 4, 0, 4], &["at block 1", "ratio 4", "expected ratio 0"]),
        (vec![0, 0, 0, -4], &["at block 3", "ratio -4", "a ratio above 0"]),
    ];
    for (ratios, parts) in cases {
        let (error, text) = spoilt(|f| f.set(RATIOS, ratios));
        assert!(matches!(error, Error::LayerSchedule { .. }));
        says(&text, parts);
        says(&text, &[RATIOS]);
    }
}

#[test]
fn all_zero_ratios_mean_the_interval_and_ratio_four() {
    let mut target = Fixture::target();
    target.set("qwen4exp.attention.compress_ratios", vec![0_i32; 4]);
    let (hp, _) = target.bind().unwrap();
    assert_eq!((hp.layers[3], hp.indexer.ratio), (LayerKind::Attention, 4));
    target.remove("qwen4exp.full_attention_interval");
    says(&refusal(target.bind()).1, &["missing key", "qwen4exp.full_attention_interval"]);
    target.set("qwen4exp.full_attention_interval", 5_u32);
    let (error, text) = refusal(target.bind());
    assert!(matches!(error, Error::Geometry { .. }));
    says(&text, &["full_attention_interval (5) <= block_count (4)"]);
}

#[test]
fn another_common_ratio_is_taken_and_two_ratios_are_not() {
    let mut target = Fixture::target();
    target.set("qwen4exp.attention.compress_ratios", vec![0_i32, 0, 0, 8]);
    assert_eq!(target.bind().unwrap().0.indexer.ratio, 8);
    // every second block attends: the n-gram layer moves to a block that does not
    target.set("qwen4exp.full_attention_interval", 2_u32);
    target.set("qwen4exp.ple.layers", vec![2_i32]);
    target.set("qwen4exp.attention.compress_ratios", vec![0_i32, 4, 0, 8]);
    let (error, text) = refusal(target.bind());
    assert!(matches!(error, Error::LayerSchedule { .. }));
    says(&text, &["at block 3", "ratio 8", "expected ratio 4"]);
}

#[test]
fn the_ngram_layer_is_exactly_one_gdn_block() {
    let cases: [(Vec<i32>, &[&str]); 4] = [
        (vec![], &["is []", "exactly one block"]),
        (vec![0, 1], &["is [0, 1]", "exactly one block"]),
        (vec![4], &["is 4", "below block_count (4)"]),
        (vec![3], &["is 3", "a GDN block"]),
    ];
    for (layers, parts) in cases {
        let (error, text) = spoilt(|f| f.set("qwen4exp.ple.layers", layers));
        assert!(matches!(error, Error::Ngram { .. }));
        says(&text, parts);
        says(&text, &["PLE", "qwen4exp.ple.layers"]);
    }
}

#[test]
fn ngram_arrays_of_another_length_are_refused_with_both_lengths() {
    for (key, value, parts) in [
        ("layer_multipliers", vec![1_u64, 3], ["is 2", "expected 3"]),
        ("head_vocab_sizes", vec![5, 7, 11], ["is 3", "expected 4"]),
        ("head_offsets", vec![0, 5, 12, 23, 36], ["is 5", "expected 4"]),
    ] {
        let (error, text) = spoilt(|f| f.set(&format!("qwen4exp.ple.{key}"), value));
        assert!(matches!(error, Error::Ngram { .. }));
        says(&text, &parts);
        says(&text, &[key]);
    }
}

#[test]
fn head_offsets_are_the_running_sum_of_the_sizes() {
    let (error, text) = spoilt(|f| f.set("qwen4exp.ple.head_offsets", vec![0_u64, 5, 13, 23]));
    assert!(matches!(error, Error::Ngram { .. }));
    says(&text, &["head_offsets[2]", "is 13", "expected 12"]);
}

#[test]
fn ngram_multipliers_are_those_derived_from_the_vocabulary() {
    // even; another vocabulary's; so large that products would wrap
    for wrong in [4_295_158_889_763_780, 23_703_573_157_769, u64::MAX >> 1] {
        let (error, text) = spoilt(|f| {
            let multipliers = vec![wrong, 17_440_218_147_737_327, 1_270_917_961_434_445];
            f.set("qwen4exp.ple.layer_multipliers", multipliers);
        });
        assert!(matches!(error, Error::NgramHash { .. }));
        says(&text, &["PLE hash constants mismatch", "layer_multipliers[0]", &wrong.to_string(), "4295158889763781"]);
    }
}

#[test]
fn head_sizes_are_consecutive_primes() {
    for (sizes, parts) in [
        (vec![4_u64, 5, 7, 11], ["head_vocab_sizes[0]", "is 4", "a prime"]),
        (vec![1, 2, 3, 5], ["head_vocab_sizes[0]", "is 1", "a prime"]),
        (vec![5, 7, 13, 17], ["head_vocab_sizes[2]", "is 13", "11, the prime after 7"]),
        (vec![5, 5, 7, 11], ["head_vocab_sizes[1]", "is 5", "7, the prime after 5"]),
        (vec![u64::MAX, 5, 7, 11], ["head_vocab_sizes[0]", "18446744073709551615", "32 bits"]),
    ] {
        let (error, text) = spoilt(|f| f.set("qwen4exp.ple.head_vocab_sizes", sizes));
        assert!(matches!(error, Error::NgramHash { .. }));
        says(&text, &parts);
    }
}

#[test]
fn token_ids_outside_the_vocabulary_are_refused() {
    for key in [
        "qwen4exp.ple.eos_token_id",
        "qwen4exp.ple.image_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.padding_token_id",
    ] {
        let (error, text) = spoilt(|f| f.set(key, 512_u32));
        assert!(matches!(error, Error::Key { .. }));
        says(&text, &[key, "= 512", "below the vocabulary of 512"]);
    }
}

#[test]
fn the_tokenizer_is_the_one_of_this_family() {
    for (key, expected) in [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "qwen35")] {
        let (error, text) = spoilt(|f| f.set(key, "llama-bpe"));
        assert!(matches!(error, Error::Key { .. }));
        says(&text, &[key, "= llama-bpe", expected]);
    }
}

#[test]
fn token_types_merges_and_stated_size_fit_the_token_list() {
    type Spoil = fn(&mut Fixture);
    let cases: [(Spoil, &[&str]); 5] = [
        (|f| f.set("tokenizer.ggml.token_type", vec![1_i32; 511]), &["token_type", "is 511", "512"]),
        (|f| f.set("tokenizer.ggml.merges", vec!["t 0", "t0t1"]), &["merges[1]", "\"t0t1\"", "one space"]),
        (|f| f.set("tokenizer.ggml.merges", vec!["t 0 1"]), &["merges[0]", "\"t 0 1\""]),
        (|f| f.set("tokenizer.ggml.merges", vec![" t"]), &["merges[0]", "\" t\""]),
        (|f| f.set("qwen4exp.vocab_size", 511_u32), &["qwen4exp.vocab_size", "is 511", "512"]),
    ];
    for (spoil, parts) in cases {
        let (error, text) = spoilt(spoil);
        assert!(matches!(error, Error::Vocabulary { .. }));
        says(&text, &["vocabulary mismatch"]);
        says(&text, parts);
    }
}

#[test]
fn a_token_list_of_another_length_is_refused() {
    // the hash constants depend on the vocabulary, so they notice before the tensors do
    let (error, text) = spoilt(|f| {
        f.set("tokenizer.ggml.tokens", tokens(500));
        f.set("tokenizer.ggml.token_type", vec![1_i32; 500]);
    });
    assert!(matches!(error, Error::NgramHash { .. }));
    says(&text, &["derived from 500 tokens"]);
    let (error, text) = spoilt(|f| f.set("tokenizer.ggml.tokens", Vec::<String>::new()));
    assert!(matches!(error, Error::Vocabulary { .. }));
    says(&text, &["tokenizer.ggml.tokens", "is 0"]);
}

/// Whatever stands under a key, reading and binding end with a verdict: no panic, no endless search for a prime.
#[test]
fn any_value_under_any_key_is_a_verdict() {
    use cudafast_gguf::Value;
    let nasty: [Value; 9] = [
        (-1_i64).into(),
        u64::MAX.into(),
        4_294_967_295_u64.into(),
        f32::MIN_POSITIVE.into(),
        "".into(),
        Vec::<i32>::new().into(),
        vec![i64::MIN, i64::MAX, 0, 1].into(),
        vec![u64::MAX; 4].into(),
        vec![4_294_967_291_u64; 4].into(),
    ];
    let target = Fixture::target();
    for (key, original) in &target.kv {
        let mut refused = 0;
        for value in &nasty {
            let mut other = target.clone();
            other.set(key, value.clone());
            refused += u32::from(other.bind().is_err());
        }
        // only a file's own value, or one that nothing else depends on, may pass
        assert!(refused >= 7, "{key} = {original} was replaced unnoticed");
    }
}
