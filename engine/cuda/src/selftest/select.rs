//! Which blocks are kept, against a full sort. Scores are sums of small integers, so they are exact in any order and ties, at
//! zero and elsewhere, are the rule.

use cudafast_model::IndexerParams;

use super::{
    Bench,
    plain::{bf16, wide},
};
use crate::{
    error::CudaError,
    launch::select::{self, Select},
};

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted("select") {
        return Ok(());
    }
    let real = IndexerParams { heads: 4, head_dim: 128, budget_tokens: 2048, ratio: 4 };
    // Levels of the integers: 1 makes most scores zero or equal, 7 hardly any.
    for (visible, rows, levels) in [
        (2047, 7, 2),
        (2050, 7, 1),
        (2052, 1, 7),
        (2056, 7, 1),
        (2060, 3, 0),
        (8191, 2, 2),
        (8192, 7, 7),
        (40_000, 5, 1),
        (3000, 70, 2),
        (262_140, 2, 1),
    ] {
        kept(b, &real, visible, rows, levels)?;
    }
    let odd = IndexerParams { heads: 3, head_dim: 20, budget_tokens: 15, ratio: 3 };
    for (visible, rows) in [(15, 7), (16, 4), (20, 7), (1000, 7)] {
        kept(b, &odd, visible, rows, 1)?;
    }
    let one = IndexerParams { heads: 1, head_dim: 128, budget_tokens: 4, ratio: 4 };
    kept(b, &one, 500, 3, 1)?;
    continuous(b, &real)
}

fn small(b: &mut Bench<'_>, n: usize, levels: u64) -> Vec<f32> {
    (0..n).map(|_| (b.rng.next() % (2 * levels + 1)) as f32 - levels as f32).collect()
}

fn to_bf16(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&v| half::bf16::from_f32(v).to_bits()).collect()
}

fn run(
    b: &Bench<'_>,
    indexer: &IndexerParams,
    visible: usize,
    queries: &[f32],
    pooled: &[u16],
    bucket: usize,
) -> Result<Vec<i32>, CudaError> {
    let rows = queries.len() / (indexer.heads * indexer.head_dim);
    let (at, queries, pooled) = (b.up(&[visible as u32 - 1, 0, 0, 0])?, b.up(queries)?, b.up(pooled)?);
    let blocks = b.poisoned::<i32>(rows * indexer.budget_blocks())?;
    let scratch = b.poisoned::<f32>(select::scratch(rows, bucket, indexer))?;
    let args = Select {
        at: at.all(),
        queries: queries.all(),
        pooled: pooled.all(),
        blocks: blocks.all(),
        scratch: scratch.all(),
        visible: bucket,
        indexer,
    };
    select::select(b.stream, b.kernels, args)?;
    b.stream.download(blocks.all())
}

fn scores(indexer: &IndexerParams, query: &[f32], pooled: &[u16], whole: usize) -> Vec<f64> {
    let (query, dim) = (wide(query), indexer.head_dim);
    let key = |k: &[u16], q: &[f64]| k.iter().zip(q).map(|(k, q)| bf16(*k) * q).sum::<f64>().max(0.0);
    pooled.chunks_exact(dim).take(whole).map(|k| query.chunks_exact(dim).map(|q| key(k, q)).sum()).collect()
}

fn kept(b: &mut Bench<'_>, indexer: &IndexerParams, visible: usize, rows: usize, levels: u64) -> Result<(), CudaError> {
    let (width, budget) = (indexer.heads * indexer.head_dim, indexer.budget_blocks());
    let bucket = visible + rows + 9;
    let queries = small(b, rows * width, levels);
    let mut keys = small(b, bucket.div_ceil(indexer.ratio) * indexer.head_dim, levels.min(2));
    // What lies behind the last whole block was never written.
    let seen = (visible + rows - 1) / indexer.ratio * indexer.head_dim;
    keys[seen..].fill(f32::NAN);
    let pooled = to_bf16(&keys);
    let mut want = vec![-1_i32; rows * budget];
    for (t, want) in want.chunks_exact_mut(budget).enumerate() {
        let whole = (visible + t) / indexer.ratio;
        if whole <= budget {
            continue;
        }
        let scores = scores(indexer, &queries[t * width..(t + 1) * width], &pooled, whole);
        let mut order: Vec<usize> = (0..whole).collect();
        order.sort_by(|&x, &y| scores[y].total_cmp(&scores[x]).then(x.cmp(&y)));
        order.truncate(budget);
        order.sort_unstable();
        want.iter_mut().zip(order).for_each(|(w, i)| *w = i as i32);
    }
    let got = run(b, indexer, visible, &queries, &pooled, bucket)?;
    let name = format!("{} x {}, {rows} rows from {visible} tokens, levels {levels}", indexer.heads, indexer.head_dim);
    b.bits("select", &name, &got, &want);
    Ok(())
}

/// Scores that no two blocks share: what is left out is not better than what is kept, and rows alone choose the same.
fn continuous(b: &mut Bench<'_>, indexer: &IndexerParams) -> Result<(), CudaError> {
    let (visible, rows, width) = (6001, 7, indexer.heads * indexer.head_dim);
    let queries = b.rng.floats(rows * width, 1.0);
    let keys = b.rng.floats((visible + rows) / indexer.ratio * indexer.head_dim, 1.0);
    let pooled = to_bf16(&keys);
    let got = run(b, indexer, visible, &queries, &pooled, visible + rows)?;
    let (mut best, mut same) = (true, true);
    for (t, kept) in got.chunks_exact(indexer.budget_blocks()).enumerate() {
        let query = &queries[t * width..(t + 1) * width];
        let scores = scores(indexer, query, &pooled, (visible + t) / indexer.ratio);
        let ascending = kept.windows(2).all(|w| w[0] < w[1]) && kept.iter().all(|&i| (i as usize) < scores.len());
        if !ascending {
            best = false;
            continue;
        }
        let worst = kept.iter().map(|&i| scores[i as usize]).fold(f64::INFINITY, f64::min);
        let left = (0..scores.len()).filter(|i| kept.binary_search(&(*i as i32)).is_err());
        best &= left.map(|i| scores[i]).all(|s| s <= worst + 1e-5);
        same &= run(b, indexer, visible + t, query, &pooled, visible + t)? == kept;
    }
    b.holds("select", "continuous scores", best, "a block left out scores higher than one kept");
    b.holds("select", "continuous scores, rows alone", same, "a row's choice depends on the rows beside it");
    Ok(())
}
