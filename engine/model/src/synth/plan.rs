//! The tensors of a synthetic model: names, shapes, types and laws (gguf-qwen4exp.md 3 and 4).

use cudafast_quant::{Format, format_by_name, formats, synth::Law};

use super::{SynthSpec, SynthTensor, SynthTypes};
use crate::hyperparams::{Hyperparams, LayerKind};

/// What decides a matrix's type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Dense,
    /// Routed experts' gate and up.
    GateUp,
    /// Routed experts' down: rows of the expert width, which no format with blocks of 256 divides.
    Down,
    Inject,
    Indexer,
    Table,
}

/// Standard deviation of what a matrix makes of inputs of variance 1, in quarters.
const PLAIN: u32 = 4;
/// Gates and mixers: enough for a sigmoid to tell channels apart.
const LIVELY: u32 = 8;
/// Router, hyper-connections: the logits of 512 experts must spread for tokens to differ in their choice.
const WIDE: u32 = 16;
/// The vocabulary's logits: a few tokens stand out.
const LOGITS: u32 = 24;

/// Blocks of the published UD-Q4_K_XL set whose experts have more bits; longer models repeat it.
const PUBLISHED_BLOCKS: usize = 48;
const Q5_K_GATE_UP: [usize; 1] = [2];
const Q8_0_DOWN: [usize; 5] = [2, 4, 30, 46, 47];

pub(super) fn model(spec: &SynthSpec, hp: &Hyperparams) -> Vec<SynthTensor> {
    let mut list = List { seed: spec.seed, types: spec.types, hp, prefix: String::new(), block: 0, tensors: vec![] };
    // a row of either is used as it is, or added up over all channels
    list.values("token_embd.weight", Role::Dense, &[hp.hidden, hp.vocab]);
    list.matrix("output.weight", Role::Dense, &[hp.hidden, hp.vocab], LOGITS);
    list.hyper_read("output_hc_");
    let rows = hp.ngram.used_rows().next_multiple_of(256) as usize;
    list.values("per_layer_token_embd.weight", Role::Table, &[hp.ngram.row_width, rows]);
    for (at, kind) in hp.layers.iter().enumerate() {
        list.block(at, *kind, at == hp.ngram.layer);
    }
    list.sorted()
}

pub(super) fn draft_head(spec: &SynthSpec, hp: &Hyperparams) -> Vec<SynthTensor> {
    let types = SynthTypes::Q8_0;
    let mut list = List { seed: spec.seed, types, hp, prefix: String::new(), block: 0, tensors: vec![] };
    list.block(hp.layers.len(), LayerKind::Attention, false);
    list.matrix("nextn.eh_proj.weight", Role::Dense, &[2 * hp.hidden, hp.hidden], PLAIN);
    list.gain("nextn.enorm.weight", hp.hidden);
    list.gain("nextn.hnorm.weight", hp.wide());
    list.hyper_read("nextn.hc_head_");
    list.sorted()
}

struct List<'a> {
    seed: u64,
    types: SynthTypes,
    hp: &'a Hyperparams,
    /// `blk.N.`, or nothing.
    prefix: String,
    block: usize,
    tensors: Vec<SynthTensor>,
}

impl List<'_> {
    /// Non-layer tensors first, then blocks by number, names in alphabetical order (gguf-qwen4exp.md 1).
    fn sorted(self) -> Vec<SynthTensor> {
        let number = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
        let mut tensors = self.tensors;
        tensors.sort_by_cached_key(|t| (number(t.name()), t.name().to_owned()));
        tensors
    }

    fn format(&self, role: Role, cols: usize) -> &'static Format {
        let at = self.block % PUBLISHED_BLOCKS;
        match (self.types, role) {
            (SynthTypes::Every(format), _) if cols.is_multiple_of(format.block_elems) => format,
            (SynthTypes::UdQ4KXl, Role::GateUp) => named(if Q5_K_GATE_UP.contains(&at) { "Q5_K" } else { "Q4_K" }),
            (SynthTypes::UdQ4KXl, Role::Down) => named(if Q8_0_DOWN.contains(&at) { "Q8_0" } else { "Q5_1" }),
            (SynthTypes::UdQ4KXl, Role::Table) => named("IQ4_NL"),
            (SynthTypes::UdQ4KXl, Role::Inject) => named("F32"),
            (SynthTypes::UdQ4KXl | SynthTypes::Q8_0, Role::Indexer) => named("BF16"),
            _ => named("Q8_0"),
        }
    }

    fn add(&mut self, name: &str, ne: &[usize], format: &'static Format, law: Law) {
        let name = format!("{}{name}", self.prefix);
        self.tensors.push(SynthTensor::new(self.seed, name, ne, format, law));
    }

    /// A matrix whose products have a standard deviation of `quarters / 4`.
    fn matrix(&mut self, name: &str, role: Role, ne: &[usize], quarters: u32) {
        let format = self.format(role, ne[0]);
        self.add(name, ne, format, Law::weights(format, quarters, ne[0] as u64));
    }

    /// Rows that are looked up: values of variance 1.
    fn values(&mut self, name: &str, role: Role, ne: &[usize]) {
        let format = self.format(role, ne[0]);
        self.add(name, ne, format, Law::weights(format, PLAIN, 1));
    }

    /// A matrix that is F32 in every build.
    fn f32_matrix(&mut self, name: &str, ne: &[usize], quarters: u32) {
        self.add(name, ne, named("F32"), Law::weights(named("F32"), quarters, ne[0] as u64));
    }

    /// F32 numbers from `centre - half_width` to `centre + half_width`, in 64ths.
    fn around(&mut self, name: &str, len: usize, centre: i32, half_width: u32) {
        self.add(name, &[len], named("F32"), Law::around(centre, half_width));
    }

    fn gain(&mut self, name: &str, len: usize) {
        self.around(name, len, 64, 8);
    }

    fn hyper_read(&mut self, prefix: &str) {
        let (wide, rank) = (self.hp.wide(), self.hp.hyper_rank);
        self.gain(&format!("{prefix}norm.weight"), wide);
        self.matrix(&format!("{prefix}down.weight"), Role::Dense, &[wide, rank], WIDE);
        self.matrix(&format!("{prefix}up.weight"), Role::Dense, &[rank, wide], LIVELY);
    }

    fn block(&mut self, at: usize, kind: LayerKind, ngram: bool) {
        (self.prefix, self.block) = (format!("blk.{at}."), at);
        for prefix in ["hc_attn_", "hc_ffn_"] {
            self.hyper_read(prefix);
            let ne = [self.hp.wide(), self.hp.streams];
            self.matrix(&format!("{prefix}inject.weight"), Role::Inject, &ne, WIDE);
        }
        match kind {
            LayerKind::Gdn => self.gdn(),
            LayerKind::Attention => self.attention(),
        }
        self.moe();
        if ngram {
            self.ngram();
        }
    }

    fn gdn(&mut self) {
        let (hidden, gdn) = (self.hp.hidden, &self.hp.gdn);
        let (channels, inner, heads) = (gdn.qkv_channels(), gdn.inner(), gdn.value_heads);
        self.matrix("attn_qkv.weight", Role::Dense, &[hidden, channels], LIVELY);
        self.matrix("attn_gate.weight", Role::Dense, &[hidden, inner], LIVELY);
        self.matrix("ssm_out.weight", Role::Dense, &[inner, hidden], PLAIN);
        self.f32_matrix("ssm_conv1d.weight", &[gdn.conv_kernel, channels], PLAIN);
        self.f32_matrix("ssm_alpha.weight", &[hidden, heads], LIVELY);
        self.f32_matrix("ssm_beta.weight", &[hidden, heads], LIVELY);
        // exp(a * softplus(x + dt)): heads forget over a few to a few hundred tokens
        self.around("ssm_a", heads, -64, 48);
        self.around("ssm_dt.bias", heads, -224, 96);
        self.gain("ssm_norm.weight", gdn.head_dim);
    }

    fn attention(&mut self) {
        let (hidden, attention, indexer) = (self.hp.hidden, &self.hp.attention, &self.hp.indexer);
        let (q, kv) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        self.matrix("attn_q.weight", Role::Dense, &[hidden, 2 * q], LIVELY);
        self.matrix("attn_k.weight", Role::Dense, &[hidden, kv], LIVELY);
        self.matrix("attn_v.weight", Role::Dense, &[hidden, kv], LIVELY);
        self.matrix("attn_output.weight", Role::Dense, &[q, hidden], PLAIN);
        self.gain("attn_q_norm.weight", attention.head_dim);
        self.gain("attn_k_norm.weight", attention.head_dim);
        let index_q = [hidden, indexer.heads * indexer.head_dim];
        self.matrix("indexer.q_proj.weight", Role::Indexer, &index_q, PLAIN);
        self.matrix("indexer.k_proj.weight", Role::Indexer, &[hidden, indexer.head_dim], PLAIN);
        self.gain("indexer.q_norm.weight", indexer.head_dim);
        self.gain("indexer.k_norm.weight", indexer.head_dim);
    }

    fn moe(&mut self) {
        let (hidden, moe) = (self.hp.hidden, &self.hp.moe);
        let (experts, ff, shared) = (moe.experts, moe.expert_ff, moe.shared_ff);
        self.f32_matrix("ffn_gate_inp.weight", &[hidden, experts], WIDE);
        self.f32_matrix("ffn_gate_inp_shexp.weight", &[hidden], LIVELY);
        self.matrix("ffn_gate_exps.weight", Role::GateUp, &[hidden, ff, experts], LIVELY);
        self.matrix("ffn_up_exps.weight", Role::GateUp, &[hidden, ff, experts], LIVELY);
        self.matrix("ffn_down_exps.weight", Role::Down, &[ff, hidden, experts], LIVELY);
        self.matrix("ffn_gate_shexp.weight", Role::Dense, &[hidden, shared], LIVELY);
        self.matrix("ffn_up_shexp.weight", Role::Dense, &[hidden, shared], LIVELY);
        self.matrix("ffn_down_shexp.weight", Role::Dense, &[shared, hidden], LIVELY);
    }

    fn ngram(&mut self) {
        let (wide, width) = (self.hp.wide(), self.hp.ngram.width());
        self.matrix("ple_key.weight", Role::Dense, &[width, wide], PLAIN);
        self.matrix("ple_value.weight", Role::Dense, &[width, self.hp.hidden], PLAIN);
        for part in ["key", "query", "conv"] {
            self.gain(&format!("ple_norm_{part}.weight"), wide);
        }
        self.f32_matrix("ple_conv1d.weight", &[self.hp.ngram.conv_kernel, wide], PLAIN);
    }
}

/// A format of the registry.
fn named(name: &str) -> &'static Format {
    format_by_name(name).unwrap_or(&formats()[0])
}
