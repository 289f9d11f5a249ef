//! The real model at its real size: the published tensor lists, in files that are all hole.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use cudafast_gguf::{RawFile, RawKv, RawTensor, ShardSet, Value};
use cudafast_model::{
    AttentionParams, DraftHead, Error, GdnParams, Hyperparams, IndexerParams, LayerKind, MemoryPlan, MoeParams,
    NgramParams, WeightSource, Weights,
};
use flate2::read::GzDecoder;

use crate::fixture::{refusal, says, tokens};

/// A row of the published tensor list.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) type_id: u32,
    pub(crate) ne: Vec<u64>,
    pub(crate) bytes: u64,
}

/// The tensors of a published file.
pub(crate) fn listed(file: &str) -> Vec<Listed> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/quants/tensor_plan.json.gz");
    let plans = GzDecoder::new(File::open(path).unwrap());
    let plans: serde_json::Value = serde_json::from_reader(std::io::BufReader::new(plans)).unwrap();
    let rows = plans[file]["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| Listed {
            name: row[0].as_str().unwrap().into(),
            type_id: row[2].as_u64().unwrap() as u32,
            ne: row[3].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect(),
            bytes: row[4].as_u64().unwrap(),
        })
        .collect()
}

const HEAD_SIZES: [u64; 16] = [
    20_000_003, 20_000_023, 20_000_033, 20_000_047, 20_000_059, 20_000_063, 20_000_069, 20_000_077, 20_000_081,
    20_000_093, 20_000_107, 20_000_147, 20_000_153, 20_000_159, 20_000_161, 20_000_171,
];

fn head_offsets() -> Vec<u64> {
    (0..16).map(|h| HEAD_SIZES[..h].iter().sum()).collect()
}

/// The numbers of qwen4exp.md 1 and 6.
pub(crate) fn real() -> Hyperparams {
    let kind = |layer: usize| if layer % 4 == 3 { LayerKind::Attention } else { LayerKind::Gdn };
    Hyperparams {
        layers: (0..48).map(kind).collect(),
        hidden: 2560,
        streams: 4,
        hyper_rank: 320,
        vocab: 248_320,
        context_tokens: 262_144,
        rms_eps: 1e-6,
        gdn: GdnParams { key_heads: 16, value_heads: 48, head_dim: 128, conv_kernel: 4 },
        attention: AttentionParams { heads: 24, kv_heads: 2, head_dim: 256, rotary_dims: 64, rope_theta: 1e7 },
        indexer: IndexerParams { heads: 4, head_dim: 128, budget_tokens: 2048, ratio: 4 },
        moe: MoeParams { experts: 512, used: 10, expert_ff: 640, shared_ff: 640 },
        ngram: NgramParams {
            layer: 1,
            ngram: 3,
            heads_per_ngram: 8,
            conv_kernel: 4,
            eos: 248_044,
            row_width: 160,
            multipliers: vec![23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071],
            head_sizes: HEAD_SIZES.into(),
            head_offsets: head_offsets(),
        },
        eos_token: Some(248_046),
    }
}

/// Keys of gguf-qwen4exp.md 2 that both files have.
fn geometry(blocks: u32) -> Vec<RawKv> {
    let ratio = |layer: u32| if layer % 4 == 3 { 4 } else { 0 };
    let ratios: Vec<i32> = (0..blocks).map(ratio).collect();
    let keys: [(&str, Value); 25] = [
        ("block_count", blocks.into()),
        ("context_length", 262_144_u32.into()),
        ("embedding_length", 2560_u32.into()),
        ("attention.head_count", 24_u32.into()),
        ("attention.head_count_kv", 2_u32.into()),
        ("attention.key_length", 256_u32.into()),
        ("attention.value_length", 256_u32.into()),
        ("attention.layer_norm_rms_epsilon", 1e-6_f32.into()),
        ("rope.freq_base", 1e7_f32.into()),
        ("rope.dimension_count", 64_u32.into()),
        ("rope.dimension_sections", vec![11_i32, 11, 10, 0].into()),
        ("expert_count", 512_u32.into()),
        ("expert_used_count", 10_u32.into()),
        ("expert_feed_forward_length", 640_u32.into()),
        ("expert_shared_feed_forward_length", 640_u32.into()),
        ("ssm.conv_kernel", 4_u32.into()),
        ("ssm.state_size", 128_u32.into()),
        ("ssm.group_count", 16_u32.into()),
        ("ssm.time_step_rank", 48_u32.into()),
        ("ssm.inner_size", 6144_u32.into()),
        ("full_attention_interval", 4_u32.into()),
        ("hyper_connection.count", 4_u32.into()),
        ("hyper_connection.low_rank", 320_u32.into()),
        ("attention.indexer.head_count", 4_u32.into()),
        ("attention.indexer.key_length", 128_u32.into()),
    ];
    let mut kv = vec![RawKv::new("general.architecture", &"qwen4exp".into())];
    kv.extend(keys.iter().map(|(key, value)| RawKv::new(&format!("qwen4exp.{key}"), value)));
    kv.push(RawKv::new("qwen4exp.attention.indexer.top_k", &2048_u32.into()));
    kv.push(RawKv::new("qwen4exp.attention.compress_ratios", &ratios.into()));
    kv.push(RawKv::new("tokenizer.ggml.tokens", &tokens(248_320).into()));
    kv
}

fn target_keys() -> Vec<RawKv> {
    let keys: [(&str, Value); 14] = [
        ("qwen4exp.ple.layers", vec![1_i32].into()),
        ("qwen4exp.ple.ngram_size", 3_u32.into()),
        ("qwen4exp.ple.heads_per_ngram", 8_u32.into()),
        ("qwen4exp.ple.conv_kernel", 4_u32.into()),
        ("qwen4exp.ple.eos_token_id", 248_044_u32.into()),
        ("qwen4exp.ple.image_token_id", 248_056_u32.into()),
        ("qwen4exp.embedding_length_per_layer_input", 160_u32.into()),
        ("qwen4exp.ple.layer_multipliers", real().ngram.multipliers.into()),
        ("qwen4exp.ple.head_vocab_sizes", Vec::from(HEAD_SIZES).into()),
        ("qwen4exp.ple.head_offsets", head_offsets().into()),
        ("tokenizer.ggml.model", "gpt2".into()),
        ("tokenizer.ggml.pre", "qwen35".into()),
        ("tokenizer.ggml.token_type", vec![1_i32; 248_320].into()),
        ("tokenizer.ggml.eos_token_id", 248_046_u32.into()),
    ];
    let mut kv = geometry(48);
    kv.extend(keys.iter().map(|(key, value)| RawKv::new(key, value)));
    kv.push(RawKv::new("tokenizer.ggml.merges", &vec!["t 0"].into()));
    kv
}

fn head_keys() -> Vec<RawKv> {
    let mut kv = geometry(49);
    kv.push(RawKv::new("qwen4exp.nextn_predict_layers", &1_u32.into()));
    kv.push(RawKv::new("qwen4exp.nextn_shared_target_tensors", &true.into()));
    kv
}

/// A file with these keys and tensors whose data is a hole (zeros that take no disk), save for decays of -1.
fn hollow(path: &Path, kv: Vec<RawKv>, tensors: &[Listed]) -> WeightSource {
    let mut raw = RawFile { kv, ..RawFile::default() };
    let mut end = 0;
    for t in tensors {
        let name = t.name.clone().into_bytes();
        raw.tensors.push(RawTensor { name, n_dims: None, ne: t.ne.clone(), type_id: t.type_id, offset: end });
        end = (end + t.bytes).next_multiple_of(32);
    }
    let header = raw.header();
    let data = (header.len() as u64).next_multiple_of(32);
    let file = File::create(path).unwrap();
    file.write_all_at(&header, 0).unwrap();
    file.set_len(data + end).unwrap();
    for (t, raw) in tensors.iter().zip(&raw.tensors).filter(|(t, _)| t.name.ends_with("ssm_a")) {
        file.write_all_at(&(-1.0_f32).to_le_bytes().repeat(t.ne[0] as usize), data + raw.offset).unwrap();
    }
    ShardSet::open(path).unwrap().into()
}

#[test]
fn the_published_model_and_head_bind_at_their_real_size() {
    let dir = tempfile::tempdir().unwrap();
    let target = hollow(&dir.path().join("model.gguf"), target_keys(), &listed("ud_q4_k_xl"));
    let hyperparams = Hyperparams::from_source(&target).unwrap();
    assert_eq!(hyperparams, real());
    let weights = Weights::bind(&target, &hyperparams).unwrap();
    assert_eq!(weights.tensors().len(), 1224);
    let head = hollow(&dir.path().join("mtp-model.gguf"), head_keys(), &listed("mtp_q8_0"));
    let head = DraftHead::bind(&head, &target, &hyperparams, &weights).unwrap();
    assert_eq!((head.tensors().len(), head.block.hc_ffn.inject.format.name), (32, "Q8_0"));
    let plan = MemoryPlan::new(&hyperparams, &weights, Some(&head), 0, 2);
    assert_eq!(plan.total(), 111_323_630_080 + 2_775_621_632 + 118_038_528 + 8);
}

#[test]
fn a_ternary_set_is_refused_at_its_first_experts() {
    let dir = tempfile::tempdir().unwrap();
    let target = hollow(&dir.path().join("model.gguf"), target_keys(), &listed("mooney_pq2_0"));
    let hyperparams = Hyperparams::from_source(&target).unwrap();
    let (error, text) = refusal(Weights::bind(&target, &hyperparams));
    assert!(matches!(error, Error::RotatedExperts { .. }));
    says(&text, &["`blk.0.ffn_gate_exps.weight` has type PQ2_0", "not supported yet"]);
}
