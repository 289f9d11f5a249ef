//! The hashed n-gram embedding (PLE) as numbers: keys, hash constants, and which table rows a token reads.

use crate::{
    error::Error,
    hyperparams::LayerKind,
    keys::{self, Keys},
    read::{MAX_WIDTH, TAPS},
};

/// Hashed n-gram embedding (PLE) geometry and constants (qwen4exp.md 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NgramParams {
    /// The one layer (0-based) that injects it.
    pub layer: usize,
    /// Longest n-gram, `N`; also the dilation of the convolution.
    pub ngram: usize,
    /// Hash heads per n-gram size; `(ngram - 1) * heads_per_ngram` rows are read for a token.
    pub heads_per_ngram: usize,
    /// Taps of the dilated convolution; the state keeps `(conv_kernel - 1) * ngram` rows.
    pub conv_kernel: usize,
    /// The id that cuts an n-gram window (not the chat end token).
    pub eos: u32,
    /// Values of one table row.
    pub row_width: usize,
    /// One odd multiplier per n-gram position.
    pub multipliers: Vec<u64>,
    /// Rows of each head (primes).
    pub head_sizes: Vec<u64>,
    /// First row of each head: running sum of `head_sizes`.
    pub head_offsets: Vec<u64>,
}

/// Hash heads of one n-gram size, and n-gram sizes: bounds far above any real model.
const MAX_HEADS: u64 = 64;
const MAX_NGRAM: u64 = 8;
/// Seed of the multipliers (qwen4exp.md 6). The files do not carry it.
const SEED: u64 = 1234;
/// Step of splitmix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Rows that the table may have beyond the last head: it is padded to a round number.
const MAX_PADDING_ROWS: u64 = 256;

impl NgramParams {
    /// Rows read for one token.
    pub fn heads(&self) -> usize {
        (self.ngram - 1) * self.heads_per_ngram
    }
    /// Width of the concatenated embedding, `P`.
    pub fn width(&self) -> usize {
        self.heads() * self.row_width
    }
    /// Rows of history the convolution needs.
    pub fn conv_history(&self) -> usize {
        (self.conv_kernel - 1) * self.ngram
    }
    /// Rows of the table that some n-gram may read; the table itself is padded past them.
    pub fn used_rows(&self) -> u64 {
        self.head_offsets.last().zip(self.head_sizes.last()).map_or(0, |(offset, size)| offset + size)
    }
    /// Whether a table of `rows` rows is the one these heads were made for.
    pub(crate) fn fits_table(&self, rows: u64) -> bool {
        (self.used_rows()..self.used_rows() + MAX_PADDING_ROWS).contains(&rows)
    }

    /// Table rows of the last token of `history` (oldest first, the current token last), one per head: bigram heads,
    /// then trigram heads, and so on (qwen4exp.md 6). Exact integers, the same on every backend.
    ///
    /// Only the last `ngram` tokens matter. Walking back, the first predecessor that is missing or is [`eos`](Self::eos)
    /// cuts the window: it and everything older read as `eos`. The current token itself cuts nothing. `out` has
    /// [`heads`](Self::heads) entries.
    pub fn row_ids(&self, history: &[u32], out: &mut [u64]) {
        let mut newest_first = history.iter().rev().copied();
        let mut hash = 0;
        let mut cut = false;
        let heads = self.head_sizes.iter().zip(&self.head_offsets).zip(out.iter_mut());
        let mut heads = heads.map(|((size, offset), row)| (*size, *offset, row));
        for (back, &multiplier) in self.multipliers.iter().enumerate() {
            let token = newest_first.next().unwrap_or(self.eos);
            cut |= back > 0 && token == self.eos;
            // no product of a vocabulary id wraps (checked with the multipliers); another id must not panic either
            hash ^= u64::from(if cut { self.eos } else { token }).wrapping_mul(multiplier);
            if back > 0 {
                for (size, offset, row) in heads.by_ref().take(self.heads_per_ngram) {
                    *row = hash % size + offset;
                }
            }
        }
    }

    /// Reads and checks the keys of gguf-qwen4exp.md 2 that start with `ple`.
    pub(crate) fn read(keys: Keys<'_>, vocab: usize, layers: &[LayerKind]) -> Result<Self, Error> {
        let ngram = keys.int(keys::PLE_NGRAM_SIZE, 2..=MAX_NGRAM)?;
        let heads_per_ngram = keys.int(keys::PLE_HEADS_PER_NGRAM, 1..=MAX_HEADS)?;
        let heads = (ngram - 1) * heads_per_ngram;
        let head_sizes = head_sizes(keys, heads)?;
        Ok(Self {
            layer: layer(keys, layers)?,
            ngram,
            heads_per_ngram,
            conv_kernel: keys.int(keys::PLE_CONV_KERNEL, TAPS)?,
            eos: eos(keys, vocab)?,
            row_width: keys.int(keys::PLE_ROW_WIDTH, 1..=MAX_WIDTH)?,
            multipliers: multipliers(keys, vocab, ngram)?,
            head_offsets: head_offsets(keys, &head_sizes)?,
            head_sizes,
        })
    }
}

fn mismatch(keys: Keys<'_>, what: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> Error {
    Error::Ngram { file: keys.file(), what: what.into(), found: found.to_string(), expected: expected.into() }
}

fn layer(keys: Keys<'_>, layers: &[LayerKind]) -> Result<usize, Error> {
    let found = keys.0.u64_array(keys::PLE_LAYERS)?;
    let named = || format!("`{}`", keys::PLE_LAYERS);
    let &[layer] = found.as_slice() else {
        return Err(mismatch(keys, named(), format!("{found:?}"), "exactly one block"));
    };
    match usize::try_from(layer).ok().and_then(|at| Some((at, layers.get(at)?))) {
        Some((at, LayerKind::Gdn)) => Ok(at),
        Some((_, LayerKind::Attention)) => {
            Err(mismatch(keys, named(), layer, "a GDN block; this one attends (full_attention_interval)"))
        }
        None => Err(mismatch(keys, named(), layer, format!("a block below block_count ({})", layers.len()))),
    }
}

fn eos(keys: Keys<'_>, vocab: usize) -> Result<u32, Error> {
    keys.token_opt(keys::PLE_IMAGE, vocab)?;
    keys.token(keys::PLE_EOS, vocab)
}

/// An array of `len` entries under `key`.
fn array(keys: Keys<'_>, key: &str, len: usize, why: &str) -> Result<Vec<u64>, Error> {
    let values = keys.0.u64_array(key)?;
    if values.len() != len {
        return Err(mismatch(keys, format!("the length of `{key}`"), values.len(), format!("{len}, {why}")));
    }
    Ok(values)
}

/// The derivation makes every multiplier odd and keeps `multiplier * (vocab - 1)` below 2^63, so equality with it is the
/// whole check.
fn multipliers(keys: Keys<'_>, vocab: usize, ngram: usize) -> Result<Vec<u64>, Error> {
    let found = array(keys, keys::PLE_MULTIPLIERS, ngram, "one per position (ple.ngram_size)")?;
    for (i, &m) in found.iter().enumerate() {
        let derived = multiplier(vocab as u64, i as u64);
        if m != derived {
            return Err(hash_mismatch(
                keys,
                keys::PLE_MULTIPLIERS,
                i,
                m,
                format!("{derived}, derived from {vocab} tokens"),
            ));
        }
    }
    Ok(found)
}

/// `M[i]` of qwen4exp.md 6 for the first (only) n-gram layer, so `ord` is 0.
pub(crate) fn multiplier(vocab: u64, i: u64) -> u64 {
    let half = i64::MAX as u64 / vocab / 2;
    2 * (splitmix64(SEED.wrapping_add(GOLDEN.wrapping_mul(i + 1))) % half) + 1
}

fn splitmix64(seed: u64) -> u64 {
    let v = seed.wrapping_add(GOLDEN);
    let v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    v ^ (v >> 31)
}

/// Consecutive primes; the first is free (tiny models have small tables).
fn head_sizes(keys: Keys<'_>, heads: usize) -> Result<Vec<u64>, Error> {
    let found = array(keys, keys::PLE_HEAD_SIZES, heads, "(ple.ngram_size - 1) * ple.heads_per_ngram")?;
    let mut before = None;
    for (i, &size) in found.iter().enumerate() {
        // the bound also bounds the trial divisions
        if size > u64::from(u32::MAX) || !is_prime(size) {
            let expected = "a prime of 32 bits".into();
            return Err(hash_mismatch(keys, keys::PLE_HEAD_SIZES, i, size, expected));
        }
        if let Some(before) = before
            && next_prime(before) != size
        {
            let expected = format!("{}, the prime after {before}", next_prime(before));
            return Err(hash_mismatch(keys, keys::PLE_HEAD_SIZES, i, size, expected));
        }
        before = Some(size);
    }
    Ok(found)
}

fn hash_mismatch(keys: Keys<'_>, key: &str, i: usize, found: u64, expected: String) -> Error {
    Error::NgramHash { file: keys.file(), what: format!("`{key}[{i}]`"), found, expected }
}

fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

pub(crate) fn next_prime(n: u64) -> u64 {
    let mut candidate = n + 1;
    while !is_prime(candidate) {
        candidate += 1;
    }
    candidate
}

/// Running sum of the sizes: heads lie one behind the other.
fn head_offsets(keys: Keys<'_>, sizes: &[u64]) -> Result<Vec<u64>, Error> {
    let found = array(keys, keys::PLE_HEAD_OFFSETS, sizes.len(), "one per head")?;
    let mut expected = 0;
    for (i, (&offset, size)) in found.iter().zip(sizes).enumerate() {
        if offset != expected {
            let what = format!("`{}[{i}]`", keys::PLE_HEAD_OFFSETS);
            return Err(mismatch(keys, what, offset, format!("{expected}, the sum of the head sizes before it")));
        }
        expected += size;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// qwen4exp.md 6 prints them.
    #[test]
    fn multipliers_of_the_shipped_vocabulary_follow_from_its_size() {
        let derived: Vec<u64> = (0..3).map(|i| multiplier(248_320, i)).collect();
        assert_eq!(derived, [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071]);
    }

    /// qwen4exp.md 6 prints them.
    #[test]
    fn head_sizes_of_the_shipped_table_are_the_primes_after_19999999() {
        let mut at = 19_999_999;
        let primes: Vec<u64> = (0..16)
            .map(|_| {
                at = next_prime(at);
                at
            })
            .collect();
        assert_eq!((primes[0], primes[15]), (20_000_003, 20_000_171));
        assert_eq!(primes.iter().sum::<u64>(), 320_001_446);
    }

    #[test]
    fn multipliers_are_odd_and_products_stay_below_two_to_the_63_for_any_vocabulary() {
        for vocab in [1, 2, 3, 511, 512, 4096, 248_320, u64::from(u32::MAX)] {
            for i in 0..MAX_NGRAM {
                let m = multiplier(vocab, i);
                assert_eq!(m % 2, 1);
                assert!(u128::from(m) * u128::from(vocab - 1) < 1 << 63, "vocabulary {vocab}, multiplier {m}");
            }
        }
    }
}
