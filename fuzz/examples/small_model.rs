//! Writes the seeds of `model_bind`: the smallest complete model that binds, and its draft head.
//!
//! Run `cargo run --manifest-path fuzz/Cargo.toml --example small_model` in the root of the repository.

use std::path::Path;

use cudafast_gguf::{Value, Writer};

const H: u64 = 4;
const STREAMS: u64 = 2;
const W: u64 = STREAMS * H;
const RANK: u64 = 1;
const V: u64 = 8;
const HEADS: u64 = 2;
const KV_HEADS: u64 = 1;
const HEAD_DIM: u64 = 4;
const INDEX_HEADS: u64 = 1;
const INDEX_DIM: u64 = 2;
const EXPERTS: u64 = 2;
const FF: u64 = 2;
const STATE: u64 = 2;
const VALUE_HEADS: u64 = 2;
const CHANNELS: u64 = (2 + VALUE_HEADS) * STATE;
const TAPS: u64 = 2;
const ROW_WIDTH: u64 = 2;
const HEAD_ROWS: u64 = 3;

/// A delta net with the n-gram row, then attention.
const BLOCKS: u32 = 2;

/// A file to be.
struct Model(Writer<'static>);

impl Model {
    fn new(blocks: u32, ratios: Vec<i32>) -> Self {
        let ints = [
            ("block_count", blocks),
            ("context_length", 64),
            ("embedding_length", H as u32),
            ("attention.head_count", HEADS as u32),
            ("attention.head_count_kv", KV_HEADS as u32),
            ("attention.key_length", HEAD_DIM as u32),
            ("attention.value_length", HEAD_DIM as u32),
            ("rope.dimension_count", 2),
            ("expert_count", EXPERTS as u32),
            ("expert_used_count", 1),
            ("expert_feed_forward_length", FF as u32),
            ("expert_shared_feed_forward_length", FF as u32),
            ("ssm.conv_kernel", TAPS as u32),
            ("ssm.state_size", STATE as u32),
            ("ssm.group_count", 1),
            ("ssm.time_step_rank", VALUE_HEADS as u32),
            ("ssm.inner_size", (VALUE_HEADS * STATE) as u32),
            ("full_attention_interval", BLOCKS),
            ("hyper_connection.count", STREAMS as u32),
            ("hyper_connection.low_rank", RANK as u32),
            ("attention.indexer.head_count", INDEX_HEADS as u32),
            ("attention.indexer.key_length", INDEX_DIM as u32),
            ("attention.indexer.top_k", 8),
        ];
        let model = Self(Writer::new()).kv("general.architecture", "qwen4exp");
        let model = ints.into_iter().fold(model, |model, (key, n)| model.kv(&format!("qwen4exp.{key}"), n));
        model
            .kv("qwen4exp.attention.layer_norm_rms_epsilon", 1e-6_f32)
            .kv("qwen4exp.rope.freq_base", 1e7_f32)
            .kv("qwen4exp.attention.compress_ratios", ratios)
    }

    fn kv(self, key: &str, value: impl Into<Value>) -> Self {
        Self(self.0.kv(key, value))
    }

    /// An F32 tensor of one number.
    fn filled(self, name: &str, ne: &[u64], value: f32) -> Self {
        let count = ne.iter().product::<u64>() as usize;
        Self(self.0.tensor(name, ne, 0, value.to_le_bytes().repeat(count)))
    }

    fn tensor(self, name: &str, ne: &[u64]) -> Self {
        self.filled(name, ne, 0.5)
    }

    fn hyper_read(self, prefix: &str) -> Self {
        self.tensor(&format!("{prefix}norm.weight"), &[W])
            .tensor(&format!("{prefix}down.weight"), &[W, RANK])
            .tensor(&format!("{prefix}up.weight"), &[RANK, W])
    }

    fn block(mut self, at: u32, attends: bool) -> Self {
        for part in ["hc_attn_", "hc_ffn_"] {
            let prefix = format!("blk.{at}.{part}");
            self = self.hyper_read(&prefix).tensor(&format!("{prefix}inject.weight"), &[W, STREAMS]);
        }
        let experts: [(&str, &[u64]); 8] = [
            ("ffn_gate_inp.weight", &[H, EXPERTS]),
            ("ffn_gate_exps.weight", &[H, FF, EXPERTS]),
            ("ffn_up_exps.weight", &[H, FF, EXPERTS]),
            ("ffn_down_exps.weight", &[FF, H, EXPERTS]),
            ("ffn_gate_inp_shexp.weight", &[H]),
            ("ffn_gate_shexp.weight", &[H, FF]),
            ("ffn_up_shexp.weight", &[H, FF]),
            ("ffn_down_shexp.weight", &[FF, H]),
        ];
        let attention: &[(&str, &[u64])] = &[
            ("attn_q.weight", &[H, 2 * HEADS * HEAD_DIM]),
            ("attn_k.weight", &[H, KV_HEADS * HEAD_DIM]),
            ("attn_v.weight", &[H, KV_HEADS * HEAD_DIM]),
            ("attn_output.weight", &[HEADS * HEAD_DIM, H]),
            ("attn_q_norm.weight", &[HEAD_DIM]),
            ("attn_k_norm.weight", &[HEAD_DIM]),
            ("indexer.q_proj.weight", &[H, INDEX_HEADS * INDEX_DIM]),
            ("indexer.k_proj.weight", &[H, INDEX_DIM]),
            ("indexer.q_norm.weight", &[INDEX_DIM]),
            ("indexer.k_norm.weight", &[INDEX_DIM]),
        ];
        let delta_net: &[(&str, &[u64])] = &[
            ("attn_qkv.weight", &[H, CHANNELS]),
            ("attn_gate.weight", &[H, VALUE_HEADS * STATE]),
            ("ssm_alpha.weight", &[H, VALUE_HEADS]),
            ("ssm_beta.weight", &[H, VALUE_HEADS]),
            ("ssm_dt.bias", &[VALUE_HEADS]),
            ("ssm_conv1d.weight", &[TAPS, CHANNELS]),
            ("ssm_norm.weight", &[STATE]),
            ("ssm_out.weight", &[VALUE_HEADS * STATE, H]),
        ];
        for (part, ne) in experts.iter().chain(if attends { attention } else { delta_net }) {
            self = self.tensor(&format!("blk.{at}.{part}"), ne);
        }
        if attends { self } else { self.filled(&format!("blk.{at}.ssm_a"), &[VALUE_HEADS], -1.0) }
    }

    fn write(self, name: &str) -> Result<(), Box<dyn std::error::Error>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/model-corpus");
        std::fs::create_dir_all(&folder)?;
        Ok(self.0.write_file(&folder.join(name))?)
    }
}

fn target() -> Model {
    let tokens: Vec<String> = (0..V).map(|id| format!("t{id}")).collect();
    Model::new(BLOCKS, vec![0, 4])
        .kv("qwen4exp.ple.layers", vec![0_i32])
        .kv("qwen4exp.ple.ngram_size", 2_u32)
        .kv("qwen4exp.ple.heads_per_ngram", 1_u32)
        .kv("qwen4exp.ple.conv_kernel", TAPS as u32)
        .kv("qwen4exp.ple.eos_token_id", 6_u32)
        .kv("qwen4exp.embedding_length_per_layer_input", ROW_WIDTH as u32)
        // What qwen4exp.md 6 derives from a vocabulary of 8.
        .kv("qwen4exp.ple.layer_multipliers", vec![1_121_187_866_477_644_397_u64, 539_857_774_922_714_049])
        .kv("qwen4exp.ple.head_vocab_sizes", vec![HEAD_ROWS])
        .kv("qwen4exp.ple.head_offsets", vec![0_u64])
        .kv("tokenizer.ggml.model", "gpt2")
        .kv("tokenizer.ggml.pre", "qwen35")
        .kv("tokenizer.ggml.tokens", tokens)
        .kv("tokenizer.ggml.token_type", vec![1_i32; V as usize])
        .kv("tokenizer.ggml.merges", vec!["t 0"])
        .kv("tokenizer.ggml.eos_token_id", 7_u32)
        .tensor("token_embd.weight", &[H, V])
        .tensor("output.weight", &[H, V])
        .tensor("per_layer_token_embd.weight", &[ROW_WIDTH, HEAD_ROWS])
        .hyper_read("output_hc_")
        .block(0, false)
        .tensor("blk.0.ple_key.weight", &[ROW_WIDTH, W])
        .tensor("blk.0.ple_value.weight", &[ROW_WIDTH, H])
        .tensor("blk.0.ple_norm_key.weight", &[W])
        .tensor("blk.0.ple_norm_query.weight", &[W])
        .tensor("blk.0.ple_norm_conv.weight", &[W])
        .tensor("blk.0.ple_conv1d.weight", &[TAPS, W])
        .block(1, true)
}

fn head() -> Model {
    Model::new(BLOCKS + 1, vec![0, 4, 0])
        .kv("qwen4exp.nextn_predict_layers", 1_u32)
        .kv("qwen4exp.nextn_shared_target_tensors", true)
        .block(BLOCKS, true)
        .tensor("blk.2.nextn.eh_proj.weight", &[2 * H, H])
        .tensor("blk.2.nextn.enorm.weight", &[H])
        .tensor("blk.2.nextn.hnorm.weight", &[W])
        .hyper_read("blk.2.nextn.hc_head_")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    target().write("small.gguf")?;
    head().write("mtp-small.gguf")
}
