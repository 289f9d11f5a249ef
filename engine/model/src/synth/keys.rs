//! The keys of a synthetic model's files (gguf-qwen4exp.md 2 and 4).

use cudafast_gguf::Value;

use super::{SynthSpec, SynthTypes, vocab};
use crate::{
    hyperparams::{Hyperparams, LayerKind},
    keys::{self, QWEN4EXP},
};

type Entries = Vec<(String, Value)>;

/// A conversation in the family's markup, no more: enough for `chat` to have something to say it with.
const TEMPLATE: &str = "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content | trim \
+ '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}\
{%- if enable_thinking is defined and not enable_thinking %}{{ '\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";

pub(super) fn model(spec: &SynthSpec, hp: &Hyperparams) -> Entries {
    let file_type = match spec.types {
        SynthTypes::UdQ4KXl => 15,
        SynthTypes::Q8_0 => 7,
        SynthTypes::Every(format) => format.ggml_id,
    };
    let mut kv = general(spec, file_type);
    put(&mut kv, "general.sampling.top_k", 20_i32);
    put(&mut kv, "general.sampling.top_p", 0.95_f32);
    put(&mut kv, "general.sampling.temp", 1.0_f32);
    geometry(&mut kv, hp, hp.layers.len());
    put(&mut kv, keys::COMPRESS_RATIOS, ratios(hp));
    ngram(&mut kv, hp);
    tokenizer(&mut kv, hp);
    put(&mut kv, "tokenizer.chat_template", TEMPLATE);
    kv
}

pub(super) fn draft_head(spec: &SynthSpec, hp: &Hyperparams) -> Entries {
    let mut kv = general(spec, 7);
    geometry(&mut kv, hp, hp.layers.len() + 1);
    let mut ratios = ratios(hp);
    ratios.push(0); // as shipped, although block 48 attends
    put(&mut kv, keys::COMPRESS_RATIOS, ratios);
    put(&mut kv, keys::NEXTN_LAYERS, 1_u32);
    put(&mut kv, keys::NEXTN_SHARED, true);
    tokenizer(&mut kv, hp);
    kv
}

fn put(kv: &mut Entries, key: &str, value: impl Into<Value>) {
    kv.push((key.into(), value.into()));
}

fn general(spec: &SynthSpec, file_type: u32) -> Entries {
    let mut kv = Entries::new();
    put(&mut kv, keys::ARCHITECTURE, QWEN4EXP);
    put(&mut kv, "general.type", "model");
    put(&mut kv, "general.name", format!("Qwen3.8 Flash Next, synthetic, seed {}", spec.seed));
    put(&mut kv, "general.description", "Random numbers in the shape of a model, made by `cudafast synth`");
    put(&mut kv, "general.quantization_version", 2_u32);
    put(&mut kv, "general.file_type", file_type);
    kv
}

fn geometry(kv: &mut Entries, hp: &Hyperparams, blocks: usize) {
    let (attention, indexer, gdn, moe) = (&hp.attention, &hp.indexer, &hp.gdn, &hp.moe);
    let interval = hp.layers.iter().position(|kind| *kind == LayerKind::Attention).map_or(1, |at| at + 1);
    let mut int = |key: &str, n: usize| put(kv, key, n as u32); // each far below 2^32, by construction
    int(keys::BLOCK_COUNT, blocks);
    int(keys::CONTEXT_LENGTH, hp.context_tokens);
    int(keys::EMBEDDING_LENGTH, hp.hidden);
    int(keys::HEAD_COUNT, attention.heads);
    int(keys::HEAD_COUNT_KV, attention.kv_heads);
    int(keys::KEY_LENGTH, attention.head_dim);
    int(keys::VALUE_LENGTH, attention.head_dim);
    int(keys::ROPE_DIMENSIONS, attention.rotary_dims);
    int(keys::EXPERT_COUNT, moe.experts);
    int(keys::EXPERT_USED_COUNT, moe.used);
    int(keys::EXPERT_FF, moe.expert_ff);
    int(keys::SHARED_FF, moe.shared_ff);
    int(keys::SSM_CONV_KERNEL, gdn.conv_kernel);
    int(keys::SSM_STATE_SIZE, gdn.head_dim);
    int(keys::SSM_GROUP_COUNT, gdn.key_heads);
    int(keys::SSM_TIME_STEP_RANK, gdn.value_heads);
    int(keys::SSM_INNER_SIZE, gdn.inner());
    int(keys::ATTENTION_INTERVAL, interval);
    int(keys::HYPER_COUNT, hp.streams);
    int(keys::HYPER_RANK, hp.hyper_rank);
    int(keys::INDEXER_HEADS, indexer.heads);
    int(keys::INDEXER_KEY_LENGTH, indexer.head_dim);
    int(keys::INDEXER_TOP_K, indexer.budget_tokens);
    put(kv, keys::RMS_EPSILON, hp.rms_eps);
    put(kv, keys::FREQ_BASE, attention.rope_theta);
    // t, h, w share the pairs as 11 : 11 : 10 in the published model
    let pairs = (attention.rotary_dims / 2) as i32;
    let (h, w) = ((pairs + 1) / 3, pairs / 3);
    put(kv, keys::ROPE_SECTIONS, vec![pairs - h - w, h, w, 0]);
}

fn ratios(hp: &Hyperparams) -> Vec<i32> {
    let ratio = |kind: &LayerKind| if *kind == LayerKind::Attention { hp.indexer.ratio as i32 } else { 0 };
    hp.layers.iter().map(ratio).collect()
}

fn ngram(kv: &mut Entries, hp: &Hyperparams) {
    let ngram = &hp.ngram;
    put(kv, keys::PLE_LAYERS, vec![ngram.layer as i32]);
    put(kv, keys::PLE_NGRAM_SIZE, ngram.ngram as u32);
    put(kv, keys::PLE_HEADS_PER_NGRAM, ngram.heads_per_ngram as u32);
    put(kv, keys::PLE_CONV_KERNEL, ngram.conv_kernel as u32);
    put(kv, keys::PLE_EOS, ngram.eos);
    put(kv, keys::PLE_IMAGE, vocab::special(hp.vocab, vocab::IMAGE_PAD));
    put(kv, keys::PLE_ROW_WIDTH, ngram.row_width as u32);
    put(kv, keys::PLE_MULTIPLIERS, ngram.multipliers.clone());
    put(kv, keys::PLE_HEAD_SIZES, ngram.head_sizes.clone());
    put(kv, keys::PLE_HEAD_OFFSETS, ngram.head_offsets.clone());
}

fn tokenizer(kv: &mut Entries, hp: &Hyperparams) {
    let vocab = vocab::vocab(hp.vocab);
    put(kv, keys::TOKENIZER_MODEL, "gpt2");
    put(kv, keys::TOKENIZER_PRE, "qwen35");
    put(kv, keys::TOKENS, vocab.tokens);
    put(kv, keys::TOKEN_TYPES, vocab.types);
    put(kv, keys::MERGES, vocab.merges);
    put(kv, keys::EOS_TOKEN, vocab::special(hp.vocab, vocab::IM_END));
    put(kv, keys::BOS_TOKEN, vocab::special(hp.vocab, vocab::END_OF_TEXT));
    put(kv, keys::PADDING_TOKEN, vocab::special(hp.vocab, vocab::END_OF_TEXT));
    put(kv, "tokenizer.ggml.add_bos_token", false);
}
