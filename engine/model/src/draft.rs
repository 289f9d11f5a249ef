//! Binding the MTP head against its target (gguf-qwen4exp.md 4 and the head row of 7).

use cudafast_gguf::Metadata;

use crate::{
    bind::Binder,
    error::{Difference, Error},
    hyperparams::{Hyperparams, LayerKind},
    keys::{self, Keys},
    source::WeightSource,
    weights::{DraftHead, Weights},
};

/// What a head may borrow from its target.
const SHAREABLE: [&str; 2] = ["token_embd.weight", "output.weight"];

impl DraftHead {
    /// Binds the head that `head` holds for the target that `target`, `hyperparams` and `weights` are. Refuses a head
    /// made for another model and says in what it differs.
    pub fn bind(
        head: &WeightSource,
        target: &WeightSource,
        hyperparams: &Hyperparams,
        weights: &Weights,
    ) -> Result<Self, Error> {
        let keys = Keys::open(head.metadata())?;
        let mut differences = geometry(keys.0, target.metadata(), hyperparams);
        differences.extend(schedule(keys.0, hyperparams)?);
        differences.extend(vocabulary(keys.0, target.metadata())?);
        if !differences.is_empty() {
            return Err(Error::HeadMismatch { file: keys.file(), target: target.label().into(), differences });
        }
        let shares_target = sharing(keys, head)?;

        let mut binder = Binder::new(head, hyperparams);
        let at = hyperparams.layers.len();
        let name = |part: &str| format!("blk.{at}.nextn.{part}");
        let (hidden, wide) = (hyperparams.hidden, hyperparams.wide());
        let bound = Self {
            // attention whatever the head's own compress_ratios say of it
            block: binder.layer(at, LayerKind::Attention, false)?,
            eh_proj: binder.matrix(&name("eh_proj.weight"), hidden, 2 * hidden)?,
            enorm: binder.gain(&name("enorm.weight"), hidden)?,
            hnorm: binder.gain(&name("hnorm.weight"), wide)?,
            hc_head: binder.hyper_read(&name("hc_head_"))?,
            token_embd: match shares_target {
                true => weights.token_embd.clone(),
                false => binder.vocabulary_matrix(SHAREABLE[0])?,
            },
            output: match shares_target {
                true => weights.output.clone(),
                false => binder.vocabulary_matrix(SHAREABLE[1])?,
            },
            shares_target,
        };
        binder.finish()?;
        Ok(bound)
    }
}

/// Keys that are not what this target's head has.
fn geometry(head: &Metadata, target: &Metadata, hyperparams: &Hyperparams) -> Vec<Difference> {
    let mut differences = Vec::new();
    let blocks = hyperparams.layers.len();
    for (key, expected, why) in
        [(keys::NEXTN_LAYERS, 1, "".into()), (keys::BLOCK_COUNT, blocks + 1, format!(" (the target's {blocks} and 1)"))]
    {
        if head.u64(key).ok() != Some(expected as u64) {
            differences.push(difference(key, show(head, key), format!("{expected}{why}")));
        }
    }
    let both = |key: &&&str| head.get(key).is_some() && target.get(key).is_some();
    for key in keys::SHARED.iter().chain(keys::OPTIONAL_IN_HEAD.iter().filter(both)) {
        if !same(key, head, target) {
            differences.push(difference(key, show(head, key), format!("{} (the target's)", show(target, key))));
        }
    }
    let size = keys::VOCAB_SIZE;
    if head.get(size).is_some() && head.u64(size).ok() != Some(hyperparams.vocab as u64) {
        differences.push(difference(size, show(head, size), format!("{} (the target's)", hyperparams.vocab)));
    }
    differences
}

/// The head repeats the target's ratios; the entry of its own block means nothing (gguf-qwen4exp.md 4).
fn schedule(head: &Metadata, hyperparams: &Hyperparams) -> Result<Option<Difference>, Error> {
    let ratios = head.i64_array(keys::COMPRESS_RATIOS)?;
    let blocks = hyperparams.layers.len();
    if ratios.len() != blocks + 1 {
        let expected = format!("{} entries (the target's {blocks} and 1)", blocks + 1);
        return Ok(Some(difference(keys::COMPRESS_RATIOS, format!("{} entries", ratios.len()), expected)));
    }
    if ratios[..blocks].iter().all(|&r| r == 0) {
        return Ok(None); // by the interval, which was compared
    }
    let ratio = |kind: &LayerKind| if *kind == LayerKind::Attention { hyperparams.indexer.ratio as i64 } else { 0 };
    let mut pairs = ratios.iter().zip(hyperparams.layers.iter().map(ratio)).enumerate();
    Ok(pairs.find(|(_, (found, expected))| *found != expected).map(|(at, (found, expected))| {
        difference(&format!("{}[{at}]", keys::COMPRESS_RATIOS), found.to_string(), format!("{expected} (the target's)"))
    }))
}

/// A head need not repeat the token list; one that does must mean the same tokens.
fn vocabulary(head: &Metadata, target: &Metadata) -> Result<Option<Difference>, Error> {
    let Some(found) = head.str_array_opt(keys::TOKENS)? else { return Ok(None) };
    let expected = target.str_array(keys::TOKENS)?;
    if found.len() != expected.len() {
        let expected = format!("{} tokens (the target's)", expected.len());
        return Ok(Some(difference(keys::TOKENS, format!("{} tokens", found.len()), expected)));
    }
    let mut pairs = found.iter().zip(expected.iter()).enumerate();
    Ok(pairs.find(|(_, (found, expected))| found != expected).map(|(id, (found, expected))| {
        difference(&format!("{}[{id}]", keys::TOKENS), format!("{found:?}"), format!("{expected:?} (the target's)"))
    }))
}

/// Whether the head uses the target's embedding and output; its key and its tensors must say the same.
fn sharing(keys: Keys<'_>, head: &WeightSource) -> Result<bool, Error> {
    let shared = keys.0.bool_opt(keys::NEXTN_SHARED)?.unwrap_or(false);
    for name in SHAREABLE {
        let present = head.tensor(name).is_some();
        if present == shared {
            return Err(Error::HeadSharing { file: keys.file(), key: keys::NEXTN_SHARED, shared, name, present });
        }
    }
    Ok(shared)
}

fn difference(key: &str, found: String, expected: String) -> Difference {
    Difference { key: key.into(), found, expected }
}

/// Equal values, in whatever integer widths they were written.
fn same(key: &str, a: &Metadata, b: &Metadata) -> bool {
    if let (Ok(a), Ok(b)) = (a.i64(key), b.i64(key)) {
        return a == b;
    }
    if let (Ok(a), Ok(b)) = (a.i64_array(key), b.i64_array(key)) {
        return a == b;
    }
    a.get(key) == b.get(key)
}

/// A value for a message: numbers plain, short arrays in full.
fn show(metadata: &Metadata, key: &str) -> String {
    const SHOWN: usize = 16;
    if let Ok(n) = metadata.i64(key) {
        return n.to_string();
    }
    match (metadata.i64_array(key), metadata.get(key)) {
        (Ok(values), _) if values.len() <= SHOWN => format!("{values:?}"),
        (_, Some(value)) => value.to_string(),
        (_, None) => "missing".into(),
    }
}
