//! Models made from a seed: the real widths, names and types where no file is.
//!
//! Start at [`SynthSpec`], which gives a [`SynthFile`] for the model and one for its draft head: keys and a tensor list, no
//! weights yet. From there a file can be written ([`SynthFile::writer`]) or memory filled ([`SynthFile::fill`]), with the
//! same bytes: a block is a function of seed, tensor name and block index alone ([`cudafast_quant::synth`]).
//!
//! Values are drawn so that a forward pass stays sane through any number of layers: a matrix has a variance of about
//! 1 / inputs, gains lie around 1, decays are slow, the router's logits spread. Text is noise, and drafts are rarely
//! accepted: what such a model is for is shapes, bytes, speed, and paths that meet in bits.

mod file;
mod keys;
mod plan;
mod vocab;

use std::fmt;

use cudafast_quant::{Format, format_by_name};

pub use self::file::{SynthFile, SynthSource, SynthStep, SynthTensor};
use crate::{
    bind::TERNARY,
    error::Error,
    hyperparams::{AttentionParams, GdnParams, Hyperparams, IndexerParams, LayerKind, MoeParams},
    ngram::{self, NgramParams},
    read::MAX_LAYERS,
};

/// Which synthetic model.
#[derive(Debug, Clone, Copy)]
pub struct SynthSpec {
    /// Another seed, other weights.
    pub seed: u64,
    /// Layers of the model; the draft head is one more. Every fourth attends (of less than four the last).
    pub layers: usize,
    /// Tokens, padding included.
    pub vocab: usize,
    /// Rows of the n-gram table, about: each hash head has the next prime of its share.
    pub ngram_rows: u64,
    /// Number formats of the matrices.
    pub types: SynthTypes,
    /// Widths.
    pub shape: SynthShape,
}

/// Widths of a synthetic model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynthShape {
    /// Those of the published model (qwen4exp.md 1).
    Shipped,
    /// The least at which every format fits and every kind of layer has work to do: about 2 MB.
    Small,
}

/// Number formats of a synthetic model's matrices. Norms, router and delta-net vectors are F32 in all of them; the draft
/// head is Q8_0 in all of them, as shipped.
#[derive(Debug, Clone, Copy)]
pub enum SynthTypes {
    /// Those of the published UD-Q4_K_XL build, tensor by tensor (gguf-qwen4exp.md 3).
    UdQ4KXl,
    /// Q8_0, the indexer BF16: the plan of the published Q8_0 head for the whole model.
    Q8_0,
    /// One format wherever a row is a whole number of its blocks, Q8_0 elsewhere.
    Every(&'static Format),
}

impl SynthTypes {
    /// `UD-Q4_K_XL`, `Q8_0`, or the name of another format, in either case.
    pub fn by_name(name: &str) -> Option<Self> {
        match format_by_name(name) {
            _ if name.eq_ignore_ascii_case("UD-Q4_K_XL") => Some(Self::UdQ4KXl),
            Some(format) if format.name == "Q8_0" => Some(Self::Q8_0),
            // experts of these are in a rotated basis
            Some(format) if TERNARY.contains(&format.ggml_id) => None,
            format => format.map(Self::Every),
        }
    }
}

impl fmt::Display for SynthTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::UdQ4KXl => "UD-Q4_K_XL",
            Self::Q8_0 => "Q8_0",
            Self::Every(format) => format.name,
        })
    }
}

/// No table is less than this: every hash head has rows of its own.
const LEAST_NGRAM_ROWS: u64 = 64;
/// Rows of a hash head, about: a row's number inside its head has 32 bits, and the primes go on above the share.
const MAX_HEAD_ROWS: u64 = 1 << 31;
/// Longest n-gram.
const NGRAM: usize = 3;
/// More tokens than this do not fit a header.
const MAX_VOCAB: usize = 1 << 20;

impl SynthSpec {
    /// The published model: 48 layers, its vocabulary and table, 111 GB.
    pub fn shipped() -> Self {
        Self {
            seed: 0,
            layers: 48,
            vocab: 248_320,
            ngram_rows: 320_000_000,
            types: SynthTypes::UdQ4KXl,
            shape: SynthShape::Shipped,
        }
    }

    /// A model of four layers for tests.
    pub fn small() -> Self {
        Self { layers: 4, vocab: 512, ngram_rows: 1024, shape: SynthShape::Small, ..Self::shipped() }
    }

    /// What its numbers are. Refuses a spec that no file can have.
    pub fn hyperparams(&self) -> Result<Hyperparams, Error> {
        let refuse = |what, found: u64, expected: String| Err(Error::Synth { what, found, expected });
        if !(2..=MAX_LAYERS as usize).contains(&self.layers) {
            let expected = format!("2 to {MAX_LAYERS}: one that attends and one that does not");
            return refuse("layers", self.layers as u64, expected);
        }
        if !(vocab::LEAST..=MAX_VOCAB).contains(&self.vocab) {
            let expected = format!("{} (bytes and special tokens) to {MAX_VOCAB}", vocab::LEAST);
            return refuse("vocabulary", self.vocab as u64, expected);
        }
        let most = self.hash_heads() as u64 * MAX_HEAD_ROWS;
        if !(LEAST_NGRAM_ROWS..=most).contains(&self.ngram_rows) {
            let expected = format!("{LEAST_NGRAM_ROWS} to {most}");
            return refuse("n-gram rows", self.ngram_rows, expected);
        }
        Ok(match self.shape {
            SynthShape::Shipped => self.shipped_widths(),
            SynthShape::Small => self.small_widths(),
        })
    }

    /// Hash heads of one n-gram size.
    fn heads_per_ngram(&self) -> usize {
        match self.shape {
            SynthShape::Shipped => 8,
            SynthShape::Small => 2,
        }
    }

    /// Hash heads of all.
    fn hash_heads(&self) -> usize {
        (NGRAM - 1) * self.heads_per_ngram()
    }

    /// Distance from one layer that attends to the next.
    fn interval(&self) -> usize {
        self.layers.min(4)
    }

    /// qwen4exp.md 1.
    fn shipped_widths(&self) -> Hyperparams {
        Hyperparams {
            layers: self.schedule(),
            hidden: 2560,
            streams: 4,
            hyper_rank: 320,
            vocab: self.vocab,
            context_tokens: 262_144,
            rms_eps: 1e-6,
            gdn: GdnParams { key_heads: 16, value_heads: 48, head_dim: 128, conv_kernel: 4 },
            attention: AttentionParams { heads: 24, kv_heads: 2, head_dim: 256, rotary_dims: 64, rope_theta: 1e7 },
            indexer: IndexerParams { heads: 4, head_dim: 128, budget_tokens: 2048, ratio: 4 },
            moe: MoeParams { experts: 512, used: 10, expert_ff: 640, shared_ff: 640 },
            ngram: self.ngram(160),
            eos_token: Some(vocab::special(self.vocab, vocab::IM_END)),
        }
    }

    fn small_widths(&self) -> Hyperparams {
        Hyperparams {
            layers: self.schedule(),
            hidden: 256,
            streams: 4,
            hyper_rank: 32,
            vocab: self.vocab,
            context_tokens: 4096,
            rms_eps: 1e-6,
            gdn: GdnParams { key_heads: 1, value_heads: 3, head_dim: 32, conv_kernel: 4 },
            attention: AttentionParams { heads: 4, kv_heads: 2, head_dim: 32, rotary_dims: 16, rope_theta: 1e7 },
            indexer: IndexerParams { heads: 2, head_dim: 32, budget_tokens: 64, ratio: 4 },
            moe: MoeParams { experts: 8, used: 2, expert_ff: 32, shared_ff: 32 },
            ngram: self.ngram(32),
            eos_token: Some(vocab::special(self.vocab, vocab::IM_END)),
        }
    }

    fn schedule(&self) -> Vec<LayerKind> {
        let attends = |layer: usize| (layer + 1).is_multiple_of(self.interval());
        (0..self.layers).map(|layer| if attends(layer) { LayerKind::Attention } else { LayerKind::Gdn }).collect()
    }

    /// qwen4exp.md 6: at 320,000,000 rows exactly the published head sizes.
    fn ngram(&self, row_width: usize) -> NgramParams {
        let heads = self.hash_heads();
        let mut head_sizes: Vec<u64> = vec![ngram::next_prime(self.ngram_rows / heads as u64 - 1)];
        while let (Some(&last), true) = (head_sizes.last(), head_sizes.len() < heads) {
            head_sizes.push(ngram::next_prime(last));
        }
        let running = |sum: &mut u64, size: &u64| Some(std::mem::replace(sum, *sum + size));
        NgramParams {
            layer: 1.min(self.interval() - 2), // the layer itself must not attend
            ngram: NGRAM,
            heads_per_ngram: self.heads_per_ngram(),
            conv_kernel: 4,
            eos: vocab::special(self.vocab, vocab::END_OF_TEXT),
            row_width,
            multipliers: (0..NGRAM as u64).map(|i| ngram::multiplier(self.vocab as u64, i)).collect(),
            head_offsets: head_sizes.iter().scan(0, running).collect(),
            head_sizes,
        }
    }

    /// The model.
    pub fn model(&self) -> Result<SynthFile, Error> {
        let hp = self.hyperparams()?;
        SynthFile::new(self.label("model"), keys::model(self, &hp), plan::model(self, &hp))
    }

    /// Its draft head, which shares the model's embedding and output.
    pub fn draft_head(&self) -> Result<SynthFile, Error> {
        let hp = self.hyperparams()?;
        SynthFile::new(self.label("draft head"), keys::draft_head(self, &hp), plan::draft_head(self, &hp))
    }

    fn label(&self, what: &str) -> String {
        format!("synthetic {what} ({} layers, {}, seed {})", self.layers, self.types, self.seed)
    }

    /// What the published set of these types is called, up to the shard's number.
    pub fn set_name(&self) -> String {
        format!("Qwen3.8-Flash-Next-{}", self.types)
    }

    /// The name of the published draft head's file.
    pub fn draft_head_name(&self) -> &'static str {
        "mtp-Qwen3.8-Flash-Next-shared-Q8_0.gguf"
    }
}
