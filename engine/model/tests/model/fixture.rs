//! A complete small qwen4exp model and its draft head, every part of which a test can spoil.

use cudafast_gguf::{ShardSet, Value, Writer};
use cudafast_model::{DraftHead, Error, Hyperparams, WeightSource, Weights};

pub(crate) const LAYERS: usize = 4;
pub(crate) const H: u64 = 256;
pub(crate) const STREAMS: u64 = 2;
pub(crate) const W: u64 = STREAMS * H;
pub(crate) const RANK: u64 = 32;
pub(crate) const V: u64 = 512;
pub(crate) const HEADS: u64 = 4;
pub(crate) const KV_HEADS: u64 = 2;
pub(crate) const HEAD_DIM: u64 = 16;
pub(crate) const INDEX_HEADS: u64 = 2;
pub(crate) const INDEX_DIM: u64 = 8;
pub(crate) const EXPERTS: u64 = 4;
pub(crate) const FF: u64 = 32;
pub(crate) const SHARED_FF: u64 = 64;
pub(crate) const KEY_HEADS: u64 = 1;
pub(crate) const VALUE_HEADS: u64 = 2;
pub(crate) const STATE: u64 = 16;
pub(crate) const TAPS: u64 = 4;
pub(crate) const NGRAM_HEADS: u64 = 4;
pub(crate) const ROW_WIDTH: u64 = 32;
/// The end of the last head below.
pub(crate) const USED_ROWS: u64 = 36;

const F32: u32 = 0;

/// A tensor as it will be written.
#[derive(Clone)]
pub(crate) struct FixtureTensor {
    pub(crate) name: String,
    pub(crate) ne: Vec<u64>,
    pub(crate) type_id: u32,
    pub(crate) bytes: Vec<u8>,
}

/// A file to be.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) label: &'static str,
    pub(crate) kv: Vec<(String, Value)>,
    pub(crate) tensors: Vec<FixtureTensor>,
}

impl Fixture {
    /// The model.
    pub(crate) fn target() -> Self {
        let mut f = Self { label: "fixture.gguf", kv: geometry(LAYERS as u32), tensors: Vec::new() };
        f.set("qwen4exp.attention.compress_ratios", vec![0_i32, 0, 0, 4]);
        f.set("qwen4exp.ple.layers", vec![1_i32]);
        f.set("qwen4exp.ple.ngram_size", 3_u32);
        f.set("qwen4exp.ple.heads_per_ngram", 2_u32);
        f.set("qwen4exp.ple.conv_kernel", 4_u32);
        f.set("qwen4exp.ple.eos_token_id", 260_u32);
        f.set("qwen4exp.embedding_length_per_layer_input", ROW_WIDTH as u32);
        // as in the oracle's sets, which have the same vocabulary size
        let multipliers = vec![4_295_158_889_763_781_u64, 17_440_218_147_737_327, 1_270_917_961_434_445];
        f.set("qwen4exp.ple.layer_multipliers", multipliers);
        f.set("qwen4exp.ple.head_vocab_sizes", vec![5_u64, 7, 11, 13]);
        f.set("qwen4exp.ple.head_offsets", vec![0_u64, 5, 12, 23]);
        f.vocabulary();
        f.set("tokenizer.ggml.eos_token_id", 261_u32);

        f.random("token_embd.weight", &[H, V]);
        f.random("output.weight", &[H, V]);
        f.random("per_layer_token_embd.weight", &[ROW_WIDTH, USED_ROWS + 4]);
        f.hyper_read("output_hc_");
        for at in 0..LAYERS {
            f.block(at, at % 4 == 3, at == 1);
        }
        f
    }

    /// Its head, sharing the target's embedding and output.
    pub(crate) fn head() -> Self {
        let mut f = Self { label: "mtp-fixture.gguf", kv: geometry(LAYERS as u32 + 1), tensors: Vec::new() };
        f.set("qwen4exp.attention.compress_ratios", vec![0_i32, 0, 0, 4, 0]);
        f.set("qwen4exp.nextn_predict_layers", 1_u32);
        f.set("qwen4exp.nextn_shared_target_tensors", true);
        f.block(LAYERS, true, false);
        f.random("blk.4.nextn.eh_proj.weight", &[2 * H, H]);
        f.gain("blk.4.nextn.enorm.weight", H);
        f.gain("blk.4.nextn.hnorm.weight", W);
        f.hyper_read("blk.4.nextn.hc_head_");
        f
    }

    /// Its head with an embedding and an output of its own.
    pub(crate) fn self_contained_head() -> Self {
        let mut f = Self::head();
        f.remove("qwen4exp.nextn_shared_target_tensors");
        f.random("token_embd.weight", &[H, V]);
        f.random("output.weight", &[H, V]);
        f
    }

    /// Adds the token list and what goes with it.
    pub(crate) fn vocabulary(&mut self) {
        self.set("tokenizer.ggml.model", "gpt2");
        self.set("tokenizer.ggml.pre", "qwen35");
        self.set("tokenizer.ggml.tokens", tokens(V));
        self.set("tokenizer.ggml.token_type", vec![1_i32; V as usize]);
        self.set("tokenizer.ggml.merges", vec!["t 0", "t0 t1"]);
    }

    fn hyper_read(&mut self, prefix: &str) {
        self.gain(&format!("{prefix}norm.weight"), W);
        self.random(&format!("{prefix}down.weight"), &[W, RANK]);
        self.random(&format!("{prefix}up.weight"), &[RANK, W]);
    }

    fn block(&mut self, at: usize, attends: bool, ngram: bool) {
        let name = |part: &str| format!("blk.{at}.{part}");
        for hc in ["hc_attn_", "hc_ffn_"] {
            self.hyper_read(&name(hc));
            self.random(&name(&format!("{hc}inject.weight")), &[W, STREAMS]);
        }
        self.random(&name("ffn_gate_inp.weight"), &[H, EXPERTS]);
        self.random(&name("ffn_gate_exps.weight"), &[H, FF, EXPERTS]);
        self.random(&name("ffn_up_exps.weight"), &[H, FF, EXPERTS]);
        self.random(&name("ffn_down_exps.weight"), &[FF, H, EXPERTS]);
        self.random(&name("ffn_gate_inp_shexp.weight"), &[H]);
        self.random(&name("ffn_gate_shexp.weight"), &[H, SHARED_FF]);
        self.random(&name("ffn_up_shexp.weight"), &[H, SHARED_FF]);
        self.random(&name("ffn_down_shexp.weight"), &[SHARED_FF, H]);
        if attends {
            self.random(&name("attn_q.weight"), &[H, 2 * HEADS * HEAD_DIM]);
            self.random(&name("attn_k.weight"), &[H, KV_HEADS * HEAD_DIM]);
            self.random(&name("attn_v.weight"), &[H, KV_HEADS * HEAD_DIM]);
            self.random(&name("attn_output.weight"), &[HEADS * HEAD_DIM, H]);
            self.gain(&name("attn_q_norm.weight"), HEAD_DIM);
            self.gain(&name("attn_k_norm.weight"), HEAD_DIM);
            self.random(&name("indexer.q_proj.weight"), &[H, INDEX_HEADS * INDEX_DIM]);
            self.random(&name("indexer.k_proj.weight"), &[H, INDEX_DIM]);
            self.gain(&name("indexer.q_norm.weight"), INDEX_DIM);
            self.gain(&name("indexer.k_norm.weight"), INDEX_DIM);
        } else {
            let channels = (2 * KEY_HEADS + VALUE_HEADS) * STATE;
            self.random(&name("attn_qkv.weight"), &[H, channels]);
            self.random(&name("attn_gate.weight"), &[H, VALUE_HEADS * STATE]);
            self.random(&name("ssm_alpha.weight"), &[H, VALUE_HEADS]);
            self.random(&name("ssm_beta.weight"), &[H, VALUE_HEADS]);
            self.floats(&name("ssm_a"), &[VALUE_HEADS], &[-0.5, -3.0]);
            self.random(&name("ssm_dt.bias"), &[VALUE_HEADS]);
            self.random(&name("ssm_conv1d.weight"), &[TAPS, channels]);
            self.gain(&name("ssm_norm.weight"), STATE);
            self.random(&name("ssm_out.weight"), &[VALUE_HEADS * STATE, H]);
        }
        if ngram {
            self.random(&name("ple_key.weight"), &[NGRAM_HEADS * ROW_WIDTH, W]);
            self.random(&name("ple_value.weight"), &[NGRAM_HEADS * ROW_WIDTH, H]);
            for part in ["key", "query", "conv"] {
                self.gain(&name(&format!("ple_norm_{part}.weight")), W);
            }
            self.random(&name("ple_conv1d.weight"), &[TAPS, W]);
        }
    }

    /// Adds or replaces a key.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.kv.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.kv.push((key.into(), value)),
        }
    }

    /// Takes a key out.
    pub(crate) fn remove(&mut self, key: &str) {
        let before = self.kv.len();
        self.kv.retain(|(k, _)| k != key);
        assert!(self.kv.len() < before, "no key {key}");
    }

    /// A tensor to spoil.
    pub(crate) fn tensor(&mut self, name: &str) -> &mut FixtureTensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap()
    }

    /// Adds an F32 tensor of these numbers.
    pub(crate) fn floats(&mut self, name: &str, ne: &[u64], values: &[f32]) {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.push(FixtureTensor { name: name.into(), ne: ne.into(), type_id: F32, bytes });
    }

    /// Adds an F32 tensor of numbers between -0.5 and 0.5.
    pub(crate) fn random(&mut self, name: &str, ne: &[u64]) {
        let mut lcg = name.bytes().fold(7_u64, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()));
        let values: Vec<f32> = (0..ne.iter().product())
            .map(|_| {
                lcg = lcg.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (lcg >> 40) as f32 / (1 << 24) as f32 - 0.5
            })
            .collect();
        self.floats(name, ne, &values);
    }

    fn gain(&mut self, name: &str, len: u64) {
        self.floats(name, &[len], &vec![1.25; len as usize]);
    }

    /// The file, opened.
    pub(crate) fn source(&self) -> WeightSource {
        let mut writer = Writer::new();
        for (key, value) in &self.kv {
            writer = writer.kv(key, value.clone());
        }
        for t in &self.tensors {
            writer = writer.tensor(&t.name, &t.ne, t.type_id, t.bytes.as_slice());
        }
        ShardSet::from_vec(self.label, writer.to_vec().unwrap()).unwrap().into()
    }

    /// The numbers and the tensors, or why not.
    pub(crate) fn bind(&self) -> Result<(Hyperparams, Weights), Error> {
        let source = self.source();
        let hyperparams = Hyperparams::from_source(&source)?;
        let weights = Weights::bind(&source, &hyperparams)?;
        Ok((hyperparams, weights))
    }

    /// This head, bound to `target`.
    pub(crate) fn bind_to(&self, target: &Fixture) -> Result<DraftHead, Error> {
        let (hyperparams, weights) = target.bind()?;
        DraftHead::bind(&self.source(), &target.source(), &hyperparams, &weights)
    }
}

impl FixtureTensor {
    /// Overwrites one F32 number.
    pub(crate) fn put(&mut self, index: usize, value: f32) {
        self.bytes[4 * index..][..4].copy_from_slice(&value.to_le_bytes());
    }

    /// Gives it another shape, filled with zeros.
    pub(crate) fn reshape(&mut self, ne: &[u64]) {
        self.ne = ne.into();
        self.bytes = vec![0; ne.iter().product::<u64>() as usize * 4];
    }
}

/// `t0`, `t1`, ..
pub(crate) fn tokens(n: u64) -> Vec<String> {
    (0..n).map(|i| format!("t{i}")).collect()
}

fn geometry(blocks: u32) -> Vec<(String, Value)> {
    let ints = [
        ("block_count", blocks),
        ("context_length", 4096),
        ("embedding_length", H as u32),
        ("attention.head_count", HEADS as u32),
        ("attention.head_count_kv", KV_HEADS as u32),
        ("attention.key_length", HEAD_DIM as u32),
        ("attention.value_length", HEAD_DIM as u32),
        ("rope.dimension_count", 8),
        ("expert_count", EXPERTS as u32),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", FF as u32),
        ("expert_shared_feed_forward_length", SHARED_FF as u32),
        ("ssm.conv_kernel", TAPS as u32),
        ("ssm.state_size", STATE as u32),
        ("ssm.group_count", KEY_HEADS as u32),
        ("ssm.time_step_rank", VALUE_HEADS as u32),
        ("ssm.inner_size", (VALUE_HEADS * STATE) as u32),
        ("full_attention_interval", 4),
        ("hyper_connection.count", STREAMS as u32),
        ("hyper_connection.low_rank", RANK as u32),
        ("attention.indexer.head_count", INDEX_HEADS as u32),
        ("attention.indexer.key_length", INDEX_DIM as u32),
        ("attention.indexer.top_k", 32),
    ];
    let mut kv: Vec<(String, Value)> = vec![("general.architecture".into(), "qwen4exp".into())];
    kv.extend(ints.into_iter().map(|(key, n)| (format!("qwen4exp.{key}"), n.into())));
    kv.push(("qwen4exp.attention.layer_norm_rms_epsilon".into(), 1e-6_f32.into()));
    kv.push(("qwen4exp.rope.freq_base".into(), 1e7_f32.into()));
    kv.push(("qwen4exp.rope.dimension_sections".into(), vec![2_i32, 1, 1, 0].into()));
    kv
}

/// The error of a result, and its text.
pub(crate) fn refusal<T>(result: Result<T, Error>) -> (Error, String) {
    let error = result.err().expect("refused");
    let text = error.to_string();
    (error, text)
}

/// Asserts that a text holds each part.
#[track_caller]
pub(crate) fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}
