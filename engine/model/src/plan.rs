//! Every byte before it is allocated (design 4; sizes of qwen4exp.md 8 and 11).

use std::{collections::BTreeMap, fmt};

use crate::{
    error::Error,
    family::Family,
    hyperparams::{Hyperparams, LayerKind},
    weights::{DraftHead, Weights},
};

/// Where bytes live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Home {
    /// The memory that the model runs from: of the card, or of the machine on the CPU backend.
    #[default]
    Device,
    /// Page-locked host memory that the card reads directly.
    Pinned,
    /// Mapped from the file; the page cache holds what is hot.
    Disk,
}

/// One line of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLine {
    /// What the bytes are for.
    pub item: PlanItem,
    /// How many.
    pub bytes: u64,
    /// Where.
    pub home: Home,
}

/// What bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanItem {
    /// Weights of one family.
    Weights(Family),
    /// Recurrent state `S` of all GDN layers.
    GdnState,
    /// Convolution history of all GDN layers.
    GdnConvolution,
    /// Convolution history and token window of the n-gram layer.
    NgramState,
    /// Keys and values of all attention layers, for the whole context.
    KeysAndValues,
    /// Raw indexer keys of all attention layers, for the whole context.
    IndexerKeys,
    /// Pooled indexer keys of all attention layers, for the whole context.
    PooledKeys,
    /// All three caches of the draft head.
    DraftHeadCache,
    /// What the backend works in.
    Scratch,
    /// Copies of a session's state that it may go back to.
    Snapshots,
}

/// A run's memory, line by line. All sums saturate: what does not fit 64 bits does not fit a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    lines: Vec<PlanLine>,
    caches: Caches,
    /// Bytes of a snapshot's logits and residual row.
    last_row_bytes: u64,
    ctx_tokens: u64,
    snapshots: u64,
}

/// How the append-only caches grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Caches {
    /// k, v and raw indexer key of a token, in all layers and the draft head.
    token_bytes: u64,
    /// Pooled key of a QSA block, likewise.
    block_bytes: u64,
    /// Tokens of a QSA block.
    ratio: u64,
}

/// Bytes of f32 state.
const F32_BYTES: usize = 4;
/// Bytes of a token id.
const TOKEN_BYTES: usize = 4;

impl MemoryPlan {
    /// The plan for a bound model and one session of `ctx_tokens`, whose caches take `cache_value_bytes` a value: 2 by
    /// default (BF16), 4 under the f32 debug switch. The n-gram table is on the device, scratch and
    /// snapshots are none: see [`with_ngram_table`](Self::with_ngram_table), [`with_scratch`](Self::with_scratch) and
    /// [`with_snapshots`](Self::with_snapshots).
    pub fn new(
        hyperparams: &Hyperparams,
        weights: &Weights,
        head: Option<&DraftHead>,
        ctx_tokens: usize,
        cache_value_bytes: usize,
    ) -> Self {
        let head =
            head.map(|head| head.tensors().iter().fold(0_u64, |sum, (_, data)| sum.saturating_add(data.len() as u64)));
        let tensors = weights.tensors().into_iter().map(|(name, data)| (name, data.len() as u64));
        Self::of_tensors(hyperparams, tensors, head, ctx_tokens, cache_value_bytes)
    }

    /// As [`new`](Self::new) for tensors known by name and bytes alone, and a head by its bytes (`None`: no head). Names
    /// of no [`Family`] are not counted: binding refuses them.
    pub fn of_tensors<'a>(
        hyperparams: &Hyperparams,
        tensors: impl IntoIterator<Item = (&'a str, u64)>,
        head_bytes: Option<u64>,
        ctx_tokens: usize,
        cache_value_bytes: usize,
    ) -> Self {
        let mut families: BTreeMap<Family, u64> = BTreeMap::new();
        let named = tensors.into_iter().filter_map(|(name, bytes)| Some((Family::of_tensor(name)?, bytes)));
        for (family, bytes) in named.chain(head_bytes.map(|bytes| (Family::DraftHead, bytes))) {
            let sum = families.entry(family).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let weights = families.into_iter().map(|(family, bytes)| (PlanItem::Weights(family), bytes));
        let (state, caches) = session(hyperparams, head_bytes.is_some(), ctx_tokens, cache_value_bytes);
        let lines = weights.chain(state).filter(|(_, bytes)| *bytes > 0);
        let lines = lines.map(|(item, bytes)| PlanLine { item, bytes, home: Home::Device }).collect();
        let last_row_bytes =
            product(&[hyperparams.vocab, F32_BYTES]).saturating_add(product(&[hyperparams.wide(), F32_BYTES]));
        Self { lines, caches, last_row_bytes, ctx_tokens: ctx_tokens as u64, snapshots: 0 }
    }

    /// The same plan with the n-gram table in another home.
    pub fn with_ngram_table(mut self, home: Home) -> Self {
        let table = self.lines.iter_mut().filter(|line| line.item == PlanItem::Weights(Family::NgramTable));
        table.for_each(|line| line.home = home);
        self
    }

    /// The same plan with `bytes` for the backend to work in.
    pub fn with_scratch(mut self, bytes: u64) -> Self {
        self.lines.retain(|line| line.item != PlanItem::Scratch);
        if bytes > 0 {
            self.lines.push(PlanLine { item: PlanItem::Scratch, bytes, home: Home::Device });
        }
        self
    }

    /// The same plan with `count` copies of the session's state, each at most of a full context, where the state itself is.
    pub fn with_snapshots(mut self, count: usize) -> Self {
        self.lines.retain(|line| line.item != PlanItem::Snapshots);
        self.snapshots = count as u64;
        let caches = self.sum(|line| line.item.is_cache());
        let ids = self.ctx_tokens.saturating_mul(TOKEN_BYTES as u64);
        let each = self.snapshot_fixed_bytes().saturating_add(caches).saturating_add(ids);
        let bytes = each.saturating_mul(self.snapshots);
        if bytes > 0 {
            self.lines.push(PlanLine { item: PlanItem::Snapshots, bytes, home: Home::Device });
        }
        self
    }

    /// What a snapshot takes however short it is.
    fn snapshot_fixed_bytes(&self) -> u64 {
        let state = self.sum(|line| line.item.is_recurrent());
        state.saturating_add(self.last_row_bytes)
    }

    /// All lines that are not zero: weights, then state, then caches, then what was added.
    pub fn lines(&self) -> &[PlanLine] {
        &self.lines
    }

    /// Bytes of one item.
    pub fn bytes(&self, item: PlanItem) -> u64 {
        self.sum(|line| line.item == item)
    }

    /// Bytes on the device: what must fit.
    pub fn total(&self) -> u64 {
        self.total_in(Home::Device)
    }

    /// Bytes in one home.
    pub fn total_in(&self, home: Home) -> u64 {
        self.sum(|line| line.home == home)
    }

    fn sum(&self, which: impl Fn(&PlanLine) -> bool) -> u64 {
        self.lines.iter().filter(|line| which(line)).fold(0, |sum, line| sum.saturating_add(line.bytes))
    }

    /// The largest context that fits `available` bytes with everything else as planned; 0 if none does.
    pub fn largest_context(&self, available: u64) -> u64 {
        let fixed =
            self.sum(|line| line.home == Home::Device && !line.item.is_cache() && line.item != PlanItem::Snapshots);
        let fixed = fixed.saturating_add(self.snapshot_fixed_bytes().saturating_mul(self.snapshots));
        let room = available.saturating_sub(fixed);
        let Caches { token_bytes, block_bytes, ratio } = self.caches;
        // every snapshot holds the caches once more, and the ids
        let copies = self.snapshots.saturating_add(1);
        let ids = self.snapshots.saturating_mul(TOKEN_BYTES as u64);
        let token_bytes = token_bytes.saturating_mul(copies).saturating_add(ids);
        let block_bytes = block_bytes.saturating_mul(copies);
        let block = token_bytes.saturating_mul(ratio).saturating_add(block_bytes).max(1);
        // a block's last token brings its pooled key along
        let tail = (room % block / token_bytes.max(1)).min(ratio - 1);
        (room / block).saturating_mul(ratio).saturating_add(tail)
    }

    /// Refuses a plan that does not fit `available` bytes on the device, and says which lines could be shrunk.
    pub fn check(&self, available: u64) -> Result<(), Error> {
        let needed = self.total();
        if needed <= available {
            return Ok(());
        }
        Err(Error::DoesNotFit { needed, available, advice: self.advice(needed - available, available) })
    }

    /// Each single change that makes up for `short` bytes; where none does, the table and the context together.
    fn advice(&self, short: u64, available: u64) -> String {
        let mut enough = Vec::new();
        let table = PlanItem::Weights(Family::NgramTable);
        let table = self.sum(|line| line.item == table && line.home == Home::Device);
        let move_table = format!("keep the n-gram table ({}) in host memory or on disk", size(table));
        if table >= short {
            enough.push(move_table.clone());
        }
        let caches = size(self.sum(|line| line.item.is_cache()));
        let shrink =
            |context: u64| format!("shrink k/v and indexer keys ({caches}): at most {context} context tokens fit");
        match self.largest_context(available) {
            0 => {}
            context => enough.push(shrink(context)),
        }
        let head =
            self.bytes(PlanItem::Weights(Family::DraftHead)).saturating_add(self.bytes(PlanItem::DraftHeadCache));
        if head >= short {
            enough.push(format!("run without the draft head ({})", size(head)));
        }
        if !enough.is_empty() {
            return enough.join("; or ");
        }
        match self.clone().with_ngram_table(Home::Pinned).largest_context(available) {
            0 => {}
            context => return format!("{move_table}, and {}", shrink(context)),
        }
        let on_device = self.lines.iter().filter(|line| line.home == Home::Device);
        let largest = on_device.max_by_key(|line| line.bytes);
        let largest = largest.map(|line| format!("; the largest line is {} ({})", line.item, size(line.bytes)));
        format!("no context fits: use a smaller quantisation or more memory{}", largest.unwrap_or_default())
    }
}

/// State and caches of one session (qwen4exp.md 8).
fn session(hp: &Hyperparams, head: bool, ctx_tokens: usize, value_bytes: usize) -> ([(PlanItem, u64); 7], Caches) {
    let attending = hp.layers.iter().filter(|&&kind| kind == LayerKind::Attention).count();
    let recurrent = hp.layers.len() - attending;
    let (gdn, ngram, indexer) = (&hp.gdn, &hp.ngram, &hp.indexer);
    // k and v of a token, an index key: one layer
    let kv = [2, hp.attention.kv_heads, hp.attention.head_dim, value_bytes];
    let key = [indexer.head_dim, value_bytes];
    // a pooled key exists once its block is complete
    let blocks = ctx_tokens / indexer.ratio;
    let caches_of = |layers: usize| {
        let layer = |bytes: &[usize], count: usize| product(bytes).saturating_mul(product(&[layers, count]));
        [layer(&kv, ctx_tokens), layer(&key, ctx_tokens), layer(&key, blocks)]
    };
    let [k_and_v, keys, pooled] = caches_of(attending);
    let head_cache = caches_of(usize::from(head)).iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let history = product(&[ngram.conv_history(), hp.wide(), F32_BYTES]);
    let lines = [
        (PlanItem::GdnState, product(&[recurrent, gdn.value_heads, gdn.head_dim, gdn.head_dim, F32_BYTES])),
        (PlanItem::GdnConvolution, product(&[recurrent, gdn.conv_kernel - 1, gdn.qkv_channels(), F32_BYTES])),
        (PlanItem::NgramState, history.saturating_add(product(&[ngram.ngram - 1, TOKEN_BYTES]))),
        (PlanItem::KeysAndValues, k_and_v),
        (PlanItem::IndexerKeys, keys),
        (PlanItem::PooledKeys, pooled),
        (PlanItem::DraftHeadCache, head_cache),
    ];
    let layers = (attending + usize::from(head)) as u64;
    let caches = Caches {
        token_bytes: product(&kv).saturating_add(product(&key)).saturating_mul(layers),
        block_bytes: product(&key).saturating_mul(layers),
        ratio: indexer.ratio as u64,
    };
    (lines, caches)
}

fn product(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor as u64))
}

impl PlanItem {
    /// Whether it is state that has one size however many tokens it stands for.
    fn is_recurrent(self) -> bool {
        matches!(self, PlanItem::GdnState | PlanItem::GdnConvolution | PlanItem::NgramState)
    }

    /// Whether it is a cache that grows with the context.
    pub fn is_cache(self) -> bool {
        matches!(
            self,
            PlanItem::KeysAndValues | PlanItem::IndexerKeys | PlanItem::PooledKeys | PlanItem::DraftHeadCache
        )
    }
}

impl fmt::Display for PlanItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PlanItem::Weights(family) => return family.fmt(f),
            PlanItem::GdnState => "GDN state",
            PlanItem::GdnConvolution => "GDN convolution state",
            PlanItem::NgramState => "n-gram state",
            PlanItem::KeysAndValues => "k/v cache",
            PlanItem::IndexerKeys => "indexer keys",
            PlanItem::PooledKeys => "pooled indexer keys",
            PlanItem::DraftHeadCache => "draft head cache",
            PlanItem::Scratch => "scratch",
            PlanItem::Snapshots => "snapshots",
        })
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Home::Device => "device",
            Home::Pinned => "pinned host memory",
            Home::Disk => "disk",
        })
    }
}

/// One row an item, then one a home: name, exact bytes, readable size, home.
impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(String, u64, Home)> =
            self.lines.iter().map(|line| (line.item.to_string(), line.bytes, line.home)).collect();
        for home in [Home::Device, Home::Pinned, Home::Disk] {
            let total = self.total_in(home);
            if home == Home::Device || total > 0 {
                rows.push(("total".into(), total, home));
            }
        }
        let width = |column: fn(&(String, u64, Home)) -> usize| rows.iter().map(column).max().unwrap_or(0);
        let (names, bytes, sizes) =
            (width(|row| row.0.len()), width(|row| grouped(row.1).len()), width(|row| size(row.1).len()));
        for (i, (name, n, home)) in rows.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{name:<names$}  {:>bytes$} B  {:>sizes$}  {home}", grouped(*n), size(*n))?;
        }
        Ok(())
    }
}

/// `1234567` as `1,234,567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// In the largest binary unit that leaves a number of at least 1.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >> shift > 0 {
            return format!("{:.2} {unit}", bytes as f64 / f64::from(1 << shift));
        }
    }
    format!("{bytes} B")
}
