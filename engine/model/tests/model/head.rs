//! The draft head against its target.

use cudafast_model::Error;

use crate::fixture::{Fixture, H, V, W, refusal, says, tokens};

/// What a head spoilt in one way is refused with.
fn spoilt(spoil: impl FnOnce(&mut Fixture)) -> (Error, String) {
    let mut head = Fixture::head();
    spoil(&mut head);
    let (error, text) = refusal(head.bind_to(&Fixture::target()));
    says(&text, &["mtp-fixture.gguf"]);
    (error, text)
}

#[test]
fn a_sharing_head_borrows_embedding_and_output() {
    let target = Fixture::target();
    let (hyperparams, weights) = target.bind().unwrap();
    let source = Fixture::head().source();
    let head = cudafast_model::DraftHead::bind(&source, &target.source(), &hyperparams, &weights).unwrap();
    assert!(head.shares_target);
    assert_eq!(head.output.data.as_ptr(), weights.output.data.as_ptr());
    assert_eq!(head.token_embd.data.as_ptr(), weights.token_embd.data.as_ptr());
    assert_eq!((head.eh_proj.rows as u64, head.eh_proj.cols as u64), (H, 2 * H));
    assert_eq!((head.enorm.len() as u64, head.hnorm.len() as u64), (H, W));
    assert_eq!(head.tensors().len(), 32);
}

#[test]
fn a_self_contained_head_brings_its_own() {
    let head = Fixture::self_contained_head().bind_to(&Fixture::target()).unwrap();
    assert!(!head.shares_target);
    assert_eq!(head.tensors().len(), 34);
    let mut said = Fixture::self_contained_head();
    said.set("qwen4exp.nextn_shared_target_tensors", false);
    assert!(said.bind_to(&Fixture::target()).is_ok());
}

#[test]
fn a_head_that_says_it_shares_has_neither_embedding_nor_output() {
    for name in ["token_embd.weight", "output.weight"] {
        let (error, text) = spoilt(|f| f.random(name, &[H, V]));
        assert!(matches!(error, Error::HeadSharing { .. }));
        says(&text, &["nextn_shared_target_tensors` is true", &format!("`{name}` is present")]);
    }
    let (error, text) = spoilt(|f| f.remove("qwen4exp.nextn_shared_target_tensors"));
    assert!(matches!(error, Error::HeadSharing { .. }));
    says(&text, &["nextn_shared_target_tensors` is false", "`token_embd.weight` is missing"]);
}

#[test]
fn each_shared_key_must_equal_the_targets() {
    let head = Fixture::head();
    let own = ["block_count", "compress_ratios", "nextn"];
    let mut seen = 0;
    for (key, value) in head.kv.iter().filter(|(key, _)| !own.iter().any(|own| key.contains(own))) {
        let cudafast_gguf::Value::U32(n) = value else { continue };
        let (error, text) = spoilt(|f| f.set(key, n + 4));
        let Error::HeadMismatch { differences, .. } = error else { panic!("{text}") };
        assert_eq!((differences.len(), &differences[0].key), (1, key));
        let numbers = format!("`{key}` is {}, expected {n} (the target's)", n + 4);
        says(&text, &["draft head does not fit fixture.gguf", &numbers]);
        seen += 1;
    }
    assert_eq!(seen, 22);
    let (_, text) = spoilt(|f| f.set("qwen4exp.rope.freq_base", 1e6_f32));
    says(&text, &["`qwen4exp.rope.freq_base` is f32 1000000, expected f32 10000000"]);
    let (_, text) = spoilt(|f| f.set("qwen4exp.rope.dimension_sections", vec![1_i32, 2, 1, 0]));
    says(&text, &["is [1, 2, 1, 0], expected [2, 1, 1, 0]"]);
    let (_, text) = spoilt(|f| f.remove("qwen4exp.embedding_length"));
    says(&text, &["`qwen4exp.embedding_length` is missing, expected 256"]);
}

#[test]
fn integers_of_another_width_are_the_same_numbers() {
    let mut head = Fixture::head();
    head.set("qwen4exp.embedding_length", 256_u64);
    head.set("qwen4exp.rope.dimension_sections", vec![2_u64, 1, 1, 0]);
    assert!(head.bind_to(&Fixture::target()).is_ok());
}

#[test]
fn a_head_has_one_block_behind_the_targets() {
    let (_, text) = spoilt(|f| f.set("qwen4exp.block_count", 4_u32));
    says(&text, &["`qwen4exp.block_count` is 4, expected 5 (the target's 4 and 1)"]);
    let (_, text) = spoilt(|f| f.set("qwen4exp.nextn_predict_layers", 2_u32));
    says(&text, &["`qwen4exp.nextn_predict_layers` is 2, expected 1"]);
    // a model in the head's place
    let (error, text) = refusal(Fixture::target().bind_to(&Fixture::target()));
    assert!(matches!(error, Error::HeadMismatch { .. }));
    says(&text, &["`qwen4exp.nextn_predict_layers` is missing, expected 1"]);
}

#[test]
fn a_heads_schedule_repeats_the_targets_and_its_own_entry_is_ignored() {
    const RATIOS: &str = "qwen4exp.attention.compress_ratios";
    for fitting in [vec![0_i32, 0, 0, 4, 4], vec![0; 5]] {
        let mut head = Fixture::head();
        head.set(RATIOS, fitting);
        assert!(head.bind_to(&Fixture::target()).is_ok());
    }
    let (_, text) = spoilt(|f| f.set(RATIOS, vec![0_i32, 0, 0, 8, 0]));
    says(&text, &["compress_ratios[3]` is 8, expected 4"]);
    let (_, text) = spoilt(|f| f.set(RATIOS, vec![0_i32, 0, 0, 4]));
    says(&text, &["compress_ratios` is 4 entries, expected 5 entries"]);
}

#[test]
fn a_head_may_repeat_the_target_only_keys_but_not_contradict_them() {
    let mut head = Fixture::head();
    head.set("qwen4exp.ple.eos_token_id", 260_u32);
    head.set("qwen4exp.vocab_size", 512_u32);
    assert!(head.bind_to(&Fixture::target()).is_ok());
    let (_, text) = spoilt(|f| f.set("qwen4exp.ple.eos_token_id", 261_u32));
    says(&text, &["`qwen4exp.ple.eos_token_id` is 261, expected 260"]);
    let (_, text) = spoilt(|f| f.set("qwen4exp.vocab_size", 511_u32));
    says(&text, &["`qwen4exp.vocab_size` is 511, expected 512"]);
    let (error, _) = spoilt(|f| f.set("qwen4exp.rope.scaling.type", "yarn"));
    assert!(matches!(error, Error::UnknownKey { .. }));
}

#[test]
fn a_token_list_in_the_head_is_the_targets() {
    let mut head = Fixture::head();
    head.vocabulary();
    assert!(head.bind_to(&Fixture::target()).is_ok());
    let mut other = tokens(V);
    other[300] = "other".into();
    let (error, text) = spoilt(|f| f.set("tokenizer.ggml.tokens", other));
    assert!(matches!(error, Error::HeadMismatch { .. }));
    says(&text, &["tokenizer.ggml.tokens[300]` is \"other\", expected \"t300\""]);
    let (_, text) = spoilt(|f| f.set("tokenizer.ggml.tokens", tokens(511)));
    says(&text, &["is 511 tokens, expected 512 tokens"]);
}

#[test]
fn all_differences_are_named_at_once() {
    let (error, text) = spoilt(|f| {
        f.set("qwen4exp.embedding_length", 128_u32);
        f.set("qwen4exp.expert_count", 8_u32);
    });
    let Error::HeadMismatch { differences, .. } = error else { panic!("{text}") };
    assert_eq!(differences.len(), 2);
    says(&text, &["embedding_length` is 128, expected 256", "expert_count` is 8, expected 4"]);
}

#[test]
fn each_tensor_of_a_head_is_missed_by_name_and_no_other_is_taken() {
    let head = Fixture::head();
    assert_eq!(head.tensors.len(), 32);
    for t in &head.tensors {
        let (error, text) = spoilt(|f| f.tensors.retain(|other| other.name != t.name));
        assert!(matches!(error, Error::MissingTensor { .. }));
        says(&text, &[&t.name]);
    }
    let (error, text) = spoilt(|f| f.random("output_hc_norm.weight", &[W]));
    assert!(matches!(error, Error::UnexpectedTensor { .. }));
    says(&text, &["output_hc_norm.weight"]);
}

#[test]
fn the_joining_projection_takes_embedding_and_residual_side_by_side() {
    let (error, text) = spoilt(|f| f.tensor("blk.4.nextn.eh_proj.weight").reshape(&[H, H]));
    assert!(matches!(error, Error::TensorShape { .. }));
    says(&text, &["`blk.4.nextn.eh_proj.weight` has ne [256, 256], expected [512, 256]"]);
}

#[test]
fn a_head_of_another_architecture_or_basis_is_refused() {
    let (error, _) = spoilt(|f| f.set("general.architecture", "qwen3moe"));
    assert!(matches!(error, Error::Architecture { .. }));
    let (error, _) = spoilt(|f| f.set("lowbitflash.rot.version", 1_u32));
    assert!(matches!(error, Error::Rotation { .. }));
}
