//! Routing against a full sort, and the lists of each expert against a scan.

use super::Bench;
use crate::{
    error::CudaError,
    launch::router::{self, Group},
};

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted("router") {
        return Ok(());
    }
    for (rows, experts, used) in
        [(7, 512, 10), (1, 512, 10), (600, 512, 10), (3, 6, 2), (2, 6, 6), (5, 1024, 32), (4, 33, 8)]
    {
        for levels in [0, 3, 1000] {
            route(b, rows, experts, used, levels)?;
        }
    }
    for (rows, experts, used) in [(600, 512, 10), (1, 512, 10), (300, 6, 2), (257, 3, 3)] {
        group(b, rows, experts, used)?;
    }
    Ok(())
}

/// `levels` integers, so that few mean ties; the last row has NaN and infinities.
fn route(b: &mut Bench<'_>, rows: usize, experts: usize, used: usize, levels: u64) -> Result<(), CudaError> {
    let mut logits: Vec<f32> = (0..rows * experts).map(|_| (b.rng.next() % (levels + 1)) as f32 / 16.0).collect();
    if levels == 1000 && experts > used {
        logits[(rows - 1) * experts] = f32::NAN;
        logits[rows * experts - 1] = f32::NEG_INFINITY;
    }
    let (mut want_ids, mut want_weights) = (vec![], vec![]);
    for row in logits.chunks_exact(experts) {
        let value = |e: &usize| if row[*e].is_nan() { f32::NEG_INFINITY } else { row[*e] };
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|x, y| value(y).total_cmp(&value(x)).then(x.cmp(y)));
        order.truncate(used);
        let weights: Vec<f64> = order.iter().map(|e| f64::from(value(e) - value(&order[0])).exp()).collect();
        let total: f64 = weights.iter().sum();
        want_ids.extend(order.iter().map(|&e| e as i32));
        want_weights.extend(weights.iter().map(|w| w / total));
    }
    let (d, ids, weights) = (b.up(&logits)?, b.poisoned::<i32>(rows * used)?, b.poisoned::<f32>(rows * used)?);
    router::route(b.stream, b.kernels, d.all(), ids.all(), weights.all(), experts, used)?;
    let (ids, weights) = (b.stream.download(ids.all())?, b.stream.download(weights.all())?);
    let name = format!("{rows} rows, {used} of {experts}, {levels} levels");
    b.bits("router.route", &name, &ids, &want_ids);
    b.close("router.route", &format!("{name}, weights"), &weights, &want_weights, 1e-6);
    let mut same = true;
    for row in 0..rows.min(7) {
        let one = b.up(&logits[row * experts..(row + 1) * experts])?;
        let (id, weight) = (b.poisoned::<i32>(used)?, b.poisoned::<f32>(used)?);
        router::route(b.stream, b.kernels, one.all(), id.all(), weight.all(), experts, used)?;
        let part = row * used..(row + 1) * used;
        same &= b.stream.download(id.all())? == ids[part.clone()] && b.stream.download(weight.all())? == weights[part];
    }
    b.holds("router.route", &format!("{name}, rows alone"), same, "a row's bits depend on the rows beside it");
    Ok(())
}

fn group(b: &mut Bench<'_>, rows: usize, experts: usize, used: usize) -> Result<(), CudaError> {
    let pairs = rows * used;
    let ids: Vec<i32> = (0..pairs).map(|_| (b.rng.next() % experts as u64) as i32).collect();
    let (mut counts, mut starts, mut list) = (vec![], vec![0_i32], vec![]);
    for e in 0..experts as i32 {
        let own: Vec<i32> = (0..pairs).filter(|&p| ids[p] == e).map(|p| p as i32).collect();
        counts.push(own.len() as i32);
        list.extend(own);
        starts.push(list.len() as i32);
    }
    let d = b.up(&ids)?;
    let (got_counts, got_starts) = (b.poisoned::<i32>(experts)?, b.poisoned::<i32>(experts + 1)?);
    let got_list = b.poisoned::<i32>(pairs)?;
    let args = Group { ids: d.all(), counts: got_counts.all(), starts: got_starts.all(), list: got_list.all() };
    router::group(b.stream, b.kernels, args)?;
    let name = format!("{pairs} pairs, {experts} experts");
    let (c, s, l) = (
        b.stream.download(got_counts.all())?,
        b.stream.download(got_starts.all())?,
        b.stream.download(got_list.all())?,
    );
    b.bits("router.group", &format!("{name}, counts"), &c, &counts);
    b.bits("router.group", &format!("{name}, starts"), &s, &starts);
    b.bits("router.group", &format!("{name}, list"), &l, &list);
    Ok(())
}
