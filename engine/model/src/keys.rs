//! Key names of gguf-qwen4exp.md 2, and reads that name the file, the value found and the value expected.

use std::ops::RangeInclusive;

use cudafast_gguf::Metadata;

use crate::error::Error;

pub(crate) const ARCHITECTURE: &str = "general.architecture";
/// The architecture this crate knows, and the prefix of its keys.
pub(crate) const QWEN4EXP: &str = "qwen4exp";

pub(crate) const BLOCK_COUNT: &str = "qwen4exp.block_count";
pub(crate) const CONTEXT_LENGTH: &str = "qwen4exp.context_length";
pub(crate) const EMBEDDING_LENGTH: &str = "qwen4exp.embedding_length";
pub(crate) const HEAD_COUNT: &str = "qwen4exp.attention.head_count";
pub(crate) const HEAD_COUNT_KV: &str = "qwen4exp.attention.head_count_kv";
pub(crate) const KEY_LENGTH: &str = "qwen4exp.attention.key_length";
pub(crate) const VALUE_LENGTH: &str = "qwen4exp.attention.value_length";
pub(crate) const RMS_EPSILON: &str = "qwen4exp.attention.layer_norm_rms_epsilon";
pub(crate) const FREQ_BASE: &str = "qwen4exp.rope.freq_base";
pub(crate) const ROPE_DIMENSIONS: &str = "qwen4exp.rope.dimension_count";
pub(crate) const ROPE_SECTIONS: &str = "qwen4exp.rope.dimension_sections";
pub(crate) const EXPERT_COUNT: &str = "qwen4exp.expert_count";
pub(crate) const EXPERT_USED_COUNT: &str = "qwen4exp.expert_used_count";
pub(crate) const EXPERT_FF: &str = "qwen4exp.expert_feed_forward_length";
pub(crate) const SHARED_FF: &str = "qwen4exp.expert_shared_feed_forward_length";
pub(crate) const SSM_CONV_KERNEL: &str = "qwen4exp.ssm.conv_kernel";
pub(crate) const SSM_STATE_SIZE: &str = "qwen4exp.ssm.state_size";
pub(crate) const SSM_GROUP_COUNT: &str = "qwen4exp.ssm.group_count";
pub(crate) const SSM_TIME_STEP_RANK: &str = "qwen4exp.ssm.time_step_rank";
pub(crate) const SSM_INNER_SIZE: &str = "qwen4exp.ssm.inner_size";
pub(crate) const ATTENTION_INTERVAL: &str = "qwen4exp.full_attention_interval";
pub(crate) const HYPER_COUNT: &str = "qwen4exp.hyper_connection.count";
pub(crate) const HYPER_RANK: &str = "qwen4exp.hyper_connection.low_rank";
pub(crate) const INDEXER_HEADS: &str = "qwen4exp.attention.indexer.head_count";
pub(crate) const INDEXER_KEY_LENGTH: &str = "qwen4exp.attention.indexer.key_length";
pub(crate) const INDEXER_TOP_K: &str = "qwen4exp.attention.indexer.top_k";
pub(crate) const COMPRESS_RATIOS: &str = "qwen4exp.attention.compress_ratios";
pub(crate) const PLE_LAYERS: &str = "qwen4exp.ple.layers";
pub(crate) const PLE_NGRAM_SIZE: &str = "qwen4exp.ple.ngram_size";
pub(crate) const PLE_HEADS_PER_NGRAM: &str = "qwen4exp.ple.heads_per_ngram";
pub(crate) const PLE_CONV_KERNEL: &str = "qwen4exp.ple.conv_kernel";
pub(crate) const PLE_EOS: &str = "qwen4exp.ple.eos_token_id";
pub(crate) const PLE_IMAGE: &str = "qwen4exp.ple.image_token_id";
pub(crate) const PLE_ROW_WIDTH: &str = "qwen4exp.embedding_length_per_layer_input";
pub(crate) const PLE_MULTIPLIERS: &str = "qwen4exp.ple.layer_multipliers";
pub(crate) const PLE_HEAD_SIZES: &str = "qwen4exp.ple.head_vocab_sizes";
pub(crate) const PLE_HEAD_OFFSETS: &str = "qwen4exp.ple.head_offsets";
pub(crate) const VOCAB_SIZE: &str = "qwen4exp.vocab_size";
pub(crate) const NEXTN_LAYERS: &str = "qwen4exp.nextn_predict_layers";
pub(crate) const NEXTN_SHARED: &str = "qwen4exp.nextn_shared_target_tensors";

pub(crate) const TOKENIZER_MODEL: &str = "tokenizer.ggml.model";
pub(crate) const TOKENIZER_PRE: &str = "tokenizer.ggml.pre";
pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(crate) const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";
pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
pub(crate) const EOS_TOKEN: &str = "tokenizer.ggml.eos_token_id";
pub(crate) const BOS_TOKEN: &str = "tokenizer.ggml.bos_token_id";
pub(crate) const PADDING_TOKEN: &str = "tokenizer.ggml.padding_token_id";

/// Geometry that a draft head repeats from its target, value for value.
pub(crate) const SHARED: [&str; 23] = [
    CONTEXT_LENGTH,
    EMBEDDING_LENGTH,
    HEAD_COUNT,
    HEAD_COUNT_KV,
    KEY_LENGTH,
    VALUE_LENGTH,
    RMS_EPSILON,
    FREQ_BASE,
    ROPE_DIMENSIONS,
    EXPERT_COUNT,
    EXPERT_USED_COUNT,
    EXPERT_FF,
    SHARED_FF,
    SSM_CONV_KERNEL,
    SSM_STATE_SIZE,
    SSM_GROUP_COUNT,
    SSM_TIME_STEP_RANK,
    SSM_INNER_SIZE,
    HYPER_COUNT,
    HYPER_RANK,
    INDEXER_HEADS,
    INDEXER_KEY_LENGTH,
    INDEXER_TOP_K,
];

/// Keys that a file of either kind may leave out, or that only a target needs: a draft head must not contradict its
/// target in them.
pub(crate) const OPTIONAL_IN_HEAD: [&str; 12] = [
    ROPE_SECTIONS,
    ATTENTION_INTERVAL,
    PLE_LAYERS,
    PLE_NGRAM_SIZE,
    PLE_HEADS_PER_NGRAM,
    PLE_CONV_KERNEL,
    PLE_EOS,
    PLE_IMAGE,
    PLE_ROW_WIDTH,
    PLE_MULTIPLIERS,
    PLE_HEAD_SIZES,
    PLE_HEAD_OFFSETS,
];

/// The keys of one file.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a>(pub(crate) &'a Metadata);

impl<'a> Keys<'a> {
    /// Refuses another architecture, keys of a rotated basis, and qwen4exp keys with no meaning here: a key that is
    /// not understood may change what the weights mean, so it is never skipped.
    pub(crate) fn open(metadata: &'a Metadata) -> Result<Self, Error> {
        let keys = Self(metadata);
        let found = metadata.str(ARCHITECTURE)?;
        if found != QWEN4EXP {
            return Err(Error::Architecture { file: keys.file(), found: found.into() });
        }
        for (key, value) in metadata.iter() {
            if key.starts_with("lowbitflash.rot.") || key.starts_with("prism.hadamard.") {
                return Err(Error::Rotation { file: keys.file(), key: key.into() });
            }
            let ours = key.strip_prefix(QWEN4EXP).is_some_and(|rest| rest.starts_with('.'));
            let known = SHARED.contains(&key)
                || OPTIONAL_IN_HEAD.contains(&key)
                || [BLOCK_COUNT, COMPRESS_RATIOS, VOCAB_SIZE, NEXTN_LAYERS, NEXTN_SHARED].contains(&key);
            if ours && !known {
                return Err(Error::UnknownKey { file: keys.file(), key: key.into(), value: value.to_string() });
            }
        }
        Ok(keys)
    }

    /// What messages call the file.
    pub(crate) fn file(self) -> String {
        self.0.path().display().to_string()
    }

    /// The error for a key whose value is not what it must be.
    pub(crate) fn wrong(self, key: &str, found: impl ToString, expected: impl Into<String>) -> Error {
        Error::Key { file: self.file(), key: key.into(), found: found.to_string(), expected: expected.into() }
    }

    /// The error for a relation between keys that does not hold.
    pub(crate) fn inconsistent(self, relation: String) -> Error {
        Error::Geometry { file: self.file(), relation }
    }

    /// A whole number in `range`.
    pub(crate) fn int(self, key: &str, range: RangeInclusive<u64>) -> Result<usize, Error> {
        self.in_range(key, self.0.u64(key)?, range)
    }

    /// As [`int`](Self::int), for a key that may be absent.
    pub(crate) fn int_opt(self, key: &str, range: RangeInclusive<u64>) -> Result<Option<usize>, Error> {
        match self.0.get(key) {
            None => Ok(None),
            Some(_) => self.int(key, range).map(Some),
        }
    }

    /// A token id below `vocab`.
    pub(crate) fn token(self, key: &str, vocab: usize) -> Result<u32, Error> {
        let found = self.0.u64(key)?;
        match u32::try_from(found) {
            Ok(id) if found < vocab as u64 => Ok(id),
            _ => Err(self.wrong(key, found, format!("a token id below the vocabulary of {vocab}"))),
        }
    }

    /// As [`token`](Self::token), for a key that may be absent.
    pub(crate) fn token_opt(self, key: &str, vocab: usize) -> Result<Option<u32>, Error> {
        match self.0.get(key) {
            None => Ok(None),
            Some(_) => self.token(key, vocab).map(Some),
        }
    }

    /// A finite number above zero.
    pub(crate) fn positive(self, key: &str) -> Result<f32, Error> {
        let found = self.0.f32(key)?;
        if found.is_finite() && found > 0.0 {
            return Ok(found);
        }
        Err(self.wrong(key, found, "a finite number above 0"))
    }

    fn in_range(self, key: &str, found: u64, range: RangeInclusive<u64>) -> Result<usize, Error> {
        match usize::try_from(found) {
            Ok(n) if range.contains(&found) => Ok(n),
            _ => Err(self.wrong(key, found, format!("{} to {}", range.start(), range.end()))),
        }
    }
}
