//! Reading [`Hyperparams`] from a file's keys: ranges, relations, schedule, vocabulary (gguf-qwen4exp.md 2 and 7).

use cudafast_gguf::Metadata;

use crate::{
    error::Error,
    hyperparams::{AttentionParams, GdnParams, Hyperparams, IndexerParams, LayerKind, MoeParams},
    keys::{self, Keys},
    ngram::NgramParams,
    source::WeightSource,
};

// Bounds on single keys, far above any real model. Together they keep the bytes of every tensor (a count and two
// widths, four bytes a value) inside 63 bits.
/// Channels along one dimension.
pub(crate) const MAX_WIDTH: u64 = 1 << 20;
/// Heads, experts.
const MAX_COUNT: u64 = 1 << 14;
/// Blocks.
pub(crate) const MAX_LAYERS: u64 = 1 << 12;
/// Residual streams.
const MAX_STREAMS: u64 = 1 << 8;
/// Taps of a convolution; with one tap there would be no history to carry.
pub(crate) const TAPS: std::ops::RangeInclusive<u64> = 2..=64;
/// Positions and token ids are 32 bits.
const MAX_TOKENS: u64 = u32::MAX as u64;

/// Tokens of a QSA block where `compress_ratios` is all zero (gguf-qwen4exp.md 7).
const DEFAULT_RATIO: usize = 4;

impl Hyperparams {
    /// The numbers of the model that `source` holds.
    pub fn from_source(source: &WeightSource) -> Result<Self, Error> {
        Self::from_metadata(source.metadata())
    }

    /// Reads and checks every key; nothing is guessed, and no key of this architecture is skipped. Whether the tensors
    /// agree is [`Weights::bind`](crate::Weights::bind)'s question.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let keys = Keys::open(metadata)?;
        refuse_head(keys)?;
        let vocab = vocabulary(keys)?;
        let blocks = keys.int(keys::BLOCK_COUNT, 1..=MAX_LAYERS)?;
        let (layers, ratio) = schedule(keys, blocks)?;
        let attention = attention(keys)?;
        let indexer = indexer(keys, ratio)?;
        rotary(keys, &attention, &indexer)?;
        let ngram = NgramParams::read(keys, vocab, &layers)?;
        Ok(Self {
            layers,
            hidden: keys.int(keys::EMBEDDING_LENGTH, 1..=MAX_WIDTH)?,
            streams: keys.int(keys::HYPER_COUNT, 2..=MAX_STREAMS)?,
            hyper_rank: keys.int(keys::HYPER_RANK, 1..=MAX_WIDTH)?,
            vocab,
            context_tokens: keys.int(keys::CONTEXT_LENGTH, 1..=MAX_TOKENS)?,
            rms_eps: keys.positive(keys::RMS_EPSILON)?,
            gdn: gdn(keys)?,
            attention,
            indexer,
            moe: moe(keys)?,
            ngram,
            eos_token: Some(keys.token(keys::EOS_TOKEN, vocab)?),
        })
    }
}

/// A head file holds one block of a model: with these keys it could pass for a short model until a tensor is missing.
fn refuse_head(keys: Keys<'_>) -> Result<(), Error> {
    let heads = keys.0.u64_opt(keys::NEXTN_LAYERS)?.filter(|&n| n > 0).map(|n| n.to_string());
    let shared = keys.0.get(keys::NEXTN_SHARED).map(|value| value.to_string());
    match (heads, shared) {
        (Some(found), _) => Err(Error::HeadAsModel { file: keys.file(), key: keys::NEXTN_LAYERS, found }),
        (None, Some(found)) => Err(Error::HeadAsModel { file: keys.file(), key: keys::NEXTN_SHARED, found }),
        (None, None) => Ok(()),
    }
}

/// The size of the vocabulary: the length of the token list. Padding ids count.
fn vocabulary(keys: Keys<'_>) -> Result<usize, Error> {
    for (key, expected) in [(keys::TOKENIZER_MODEL, "gpt2"), (keys::TOKENIZER_PRE, "qwen35")] {
        let found = keys.0.str(key)?;
        if found != expected {
            return Err(keys.wrong(key, found, expected));
        }
    }
    let mismatch = |what: &str, found: String, expected: String| Error::Vocabulary {
        file: keys.file(),
        what: what.into(),
        found,
        expected,
    };
    let vocab = keys.0.str_array(keys::TOKENS)?.len();
    if vocab == 0 || vocab as u64 > MAX_TOKENS {
        return Err(mismatch("the length of `tokenizer.ggml.tokens`", vocab.to_string(), format!("1 to {MAX_TOKENS}")));
    }
    let types = keys.0.i64_array(keys::TOKEN_TYPES)?.len();
    if types != vocab {
        let expected = format!("{vocab}, that of `tokenizer.ggml.tokens`");
        return Err(mismatch("the length of `tokenizer.ggml.token_type`", types.to_string(), expected));
    }
    for (i, merge) in keys.0.str_array(keys::MERGES)?.iter().enumerate() {
        let two = merge.split_once(' ').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(' '));
        if !two {
            let what = format!("`tokenizer.ggml.merges[{i}]`");
            return Err(mismatch(&what, format!("{merge:?}"), "two tokens with one space between".into()));
        }
    }
    if let Some(size) = keys.0.u64_opt(keys::VOCAB_SIZE)?.filter(|&size| size != vocab as u64) {
        let expected = format!("{vocab}, the length of `tokenizer.ggml.tokens`");
        return Err(mismatch("`qwen4exp.vocab_size`", size.to_string(), expected));
    }
    for key in [keys::BOS_TOKEN, keys::PADDING_TOKEN] {
        keys.token_opt(key, vocab)?;
    }
    Ok(vocab)
}

/// Kinds of all blocks, and the tokens of a QSA block. `compress_ratios` and `full_attention_interval` say the same
/// thing twice and must agree; either may be silent (all zero, absent), not both.
fn schedule(keys: Keys<'_>, blocks: usize) -> Result<(Vec<LayerKind>, usize), Error> {
    let ratios = keys.0.i64_array(keys::COMPRESS_RATIOS)?;
    let mismatch = |block: usize, found: String, expected: String| Error::LayerSchedule {
        file: keys.file(),
        key: keys::COMPRESS_RATIOS,
        block,
        found,
        expected,
    };
    if ratios.len() != blocks {
        let expected = format!("{blocks}, one per block");
        return Err(mismatch(ratios.len().min(blocks), format!("{} entries", ratios.len()), expected));
    }
    let stated = keys.int_opt(keys::ATTENTION_INTERVAL, 1..=MAX_LAYERS)?;
    let first = ratios.iter().position(|&r| r != 0);
    let (interval, ratio) = match first {
        None => (keys.int(keys::ATTENTION_INTERVAL, 1..=MAX_LAYERS)?, DEFAULT_RATIO),
        Some(block) => match usize::try_from(ratios[block]) {
            Ok(ratio) => (stated.unwrap_or(block + 1), ratio),
            Err(_) => return Err(mismatch(block, format!("ratio {}", ratios[block]), "a ratio above 0".into())),
        },
    };
    if interval > blocks {
        return Err(keys.inconsistent(format!(
            "full_attention_interval ({interval}) <= block_count ({blocks}) does not hold: no block would attend"
        )));
    }
    let mut layers = Vec::with_capacity(blocks);
    for (block, &found) in ratios.iter().enumerate() {
        let attends = (block + 1).is_multiple_of(interval);
        let expected = if attends { ratio } else { 0 };
        if first.is_some() && usize::try_from(found) != Ok(expected) {
            let expected = format!("ratio {expected} (each {interval}th block attends, all with one ratio)");
            return Err(mismatch(block, format!("ratio {found}"), expected));
        }
        layers.push(if attends { LayerKind::Attention } else { LayerKind::Gdn });
    }
    Ok((layers, ratio))
}

fn attention(keys: Keys<'_>) -> Result<AttentionParams, Error> {
    let heads = keys.int(keys::HEAD_COUNT, 1..=MAX_COUNT)?;
    let kv_heads = keys.int(keys::HEAD_COUNT_KV, 1..=MAX_COUNT)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(keys
            .inconsistent(format!("head_count ({heads}) is a multiple of head_count_kv ({kv_heads}) does not hold")));
    }
    let head_dim = keys.int(keys::KEY_LENGTH, 1..=MAX_WIDTH)?;
    let value_length = keys.int(keys::VALUE_LENGTH, 1..=MAX_WIDTH)?;
    if value_length != head_dim {
        return Err(
            keys.inconsistent(format!("key_length ({head_dim}) == value_length ({value_length}) does not hold"))
        );
    }
    Ok(AttentionParams {
        heads,
        kv_heads,
        head_dim,
        rotary_dims: keys.int(keys::ROPE_DIMENSIONS, 2..=MAX_WIDTH)?,
        rope_theta: keys.positive(keys::FREQ_BASE)?,
    })
}

fn indexer(keys: Keys<'_>, ratio: usize) -> Result<IndexerParams, Error> {
    let budget_tokens = keys.int(keys::INDEXER_TOP_K, 1..=MAX_TOKENS)?;
    if !budget_tokens.is_multiple_of(ratio) {
        return Err(keys.inconsistent(format!(
            "indexer.top_k ({budget_tokens}) is a multiple of the compress ratio ({ratio}) does not hold"
        )));
    }
    Ok(IndexerParams {
        heads: keys.int(keys::INDEXER_HEADS, 1..=MAX_COUNT)?,
        head_dim: keys.int(keys::INDEXER_KEY_LENGTH, 1..=MAX_WIDTH)?,
        budget_tokens,
        ratio,
    })
}

/// Rotated channels come in pairs and lie in both kinds of heads; the sections, where given, share out the pairs.
fn rotary(keys: Keys<'_>, attention: &AttentionParams, indexer: &IndexerParams) -> Result<(), Error> {
    let nrot = attention.rotary_dims;
    if !nrot.is_multiple_of(2) {
        return Err(keys.wrong(keys::ROPE_DIMENSIONS, nrot, "an even number"));
    }
    for (name, most) in [("key_length", attention.head_dim), ("indexer.key_length", indexer.head_dim)] {
        if nrot > most {
            return Err(keys.inconsistent(format!("rope.dimension_count ({nrot}) <= {name} ({most}) does not hold")));
        }
    }
    let Some(sections) = keys.0.u64_array_opt(keys::ROPE_SECTIONS)? else { return Ok(()) };
    let sum = sections.iter().take(3).try_fold(0_u64, |sum, &n| sum.checked_add(n));
    if !(3..=4).contains(&sections.len()) || sum != Some(nrot as u64 / 2) {
        return Err(keys.inconsistent(format!(
            "the first three of rope.dimension_sections {sections:?} sum to rope.dimension_count / 2 ({}) does not hold",
            nrot / 2
        )));
    }
    Ok(())
}

fn gdn(keys: Keys<'_>) -> Result<GdnParams, Error> {
    let key_heads = keys.int(keys::SSM_GROUP_COUNT, 1..=MAX_COUNT)?;
    let value_heads = keys.int(keys::SSM_TIME_STEP_RANK, 1..=MAX_COUNT)?;
    let head_dim = keys.int(keys::SSM_STATE_SIZE, 1..=MAX_WIDTH)?;
    let inner = keys.int(keys::SSM_INNER_SIZE, 1..=MAX_COUNT * MAX_WIDTH)?;
    if !value_heads.is_multiple_of(key_heads) {
        return Err(keys.inconsistent(format!(
            "ssm.time_step_rank ({value_heads}) is a multiple of ssm.group_count ({key_heads}) does not hold"
        )));
    }
    if inner != value_heads * head_dim {
        return Err(keys.inconsistent(format!(
            "ssm.inner_size ({inner}) == ssm.time_step_rank ({value_heads}) * ssm.state_size ({head_dim}) does not hold"
        )));
    }
    Ok(GdnParams { key_heads, value_heads, head_dim, conv_kernel: keys.int(keys::SSM_CONV_KERNEL, TAPS)? })
}

fn moe(keys: Keys<'_>) -> Result<MoeParams, Error> {
    let experts = keys.int(keys::EXPERT_COUNT, 1..=MAX_COUNT)?;
    let used = keys.int(keys::EXPERT_USED_COUNT, 1..=MAX_COUNT)?;
    if used > experts {
        return Err(keys.inconsistent(format!("expert_used_count ({used}) <= expert_count ({experts}) does not hold")));
    }
    Ok(MoeParams {
        experts,
        used,
        expert_ff: keys.int(keys::EXPERT_FF, 1..=MAX_WIDTH)?,
        shared_ff: keys.int(keys::SHARED_FF, 1..=MAX_WIDTH)?,
    })
}
