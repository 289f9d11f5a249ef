//! Routed experts and the shared expert (qwen4exp.md 7). Rows that share an expert read its weights once.

use std::cell::RefCell;

use cudafast_model::{Experts, MoeWeights};

use crate::dot::panel::LANES;
use crate::math::{self, axpy, best_first, exp, sigmoid, silu};
use crate::matmul::{Operand, Pick, Sink, outputs_into, project, project_all};
use crate::model::{Model, Rows};
use crate::pool::Pool;
use crate::probe::Probe;
use crate::simd::{self, Kernel};

/// One row sent to one expert.
#[derive(Clone, Copy)]
struct Route {
    expert: u32,
    weight: f32,
}

/// `x: [T][H]` to `[T][H]`.
pub(crate) fn forward(model: &Model, w: &MoeWeights, x: &[f32], rows: Rows, probe: &mut dyn Probe) -> Vec<f32> {
    let hp = &model.hp;
    let moe = &hp.moe;
    let n = x.len() / hp.hidden;
    let operand = model.operand(x, hp.hidden, rows.phase);

    let [logits, gate, mut shared_mid, shared_up] = project_all(
        &model.pool,
        [w.router.view(), w.shared_router.view(), w.shared_gate.view(), w.shared_up.view()],
        &operand,
    );
    probe.value(rows.layer, "moe.router", rows.position, moe.experts, &logits);
    let routes = route_rows(&model.pool, &logits, moe.experts, moe.used);
    for (t, routes) in routes.chunks_exact(moe.used).enumerate() {
        let ids: Vec<u32> = routes.iter().map(|r| r.expert).collect();
        probe.experts(rows.layer, rows.position + t, &ids);
    }
    // Slot s of row t is pair t * used + s.
    let groups = Groups::new(&routes, moe.experts);

    let mut mid = vec![0.0; routes.len() * moe.expert_ff];
    expert_pass(model, &groups, [&w.gate, &w.up], &operand, moe.used, &mut mid);
    let mut slots = vec![0.0; routes.len() * hp.hidden];
    expert_pass(model, &groups, [&w.down], &model.operand(&mid, moe.expert_ff, rows.phase), 1, &mut slots);

    swiglu(&model.pool, &mut shared_mid, &shared_up);
    let shared_operand = model.operand(&shared_mid, moe.shared_ff, rows.phase);
    let shared = project(&model.pool, w.shared_down.view(), &shared_operand);
    probe.value(rows.layer, "moe.mid", rows.position, moe.used * moe.expert_ff, &mid);
    probe.value(rows.layer, "moe.slots", rows.position, moe.used * hp.hidden, &slots);
    probe.value(rows.layer, "moe.shared", rows.position, hp.hidden, &shared);
    probe.value(rows.layer, "moe.shared_gate", rows.position, 1, &gate);

    let (used, hidden) = (moe.used, hp.hidden);
    let mut out = vec![0.0; n * hidden];
    model.pool.split(&mut out, hidden, size_of_val(&slots[..]), |first, out| {
        let (routes, slots) = (&routes[first * used..], &slots[first * used * hidden..]);
        let (shared, gate) = (&shared[first * hidden..], &gate[first..]);
        simd::run(Combine { routes, slots, shared, gate, used, hidden, out });
    });
    out
}

/// [`route`] of every row: `logits: [T][experts]` to `[T][used]`.
fn route_rows(pool: &Pool, logits: &[f32], experts: usize, used: usize) -> Vec<Route> {
    let rows = logits.len() / experts;
    let mut routes = vec![Route { expert: 0, weight: 0.0 }; rows * used];
    pool.split(&mut routes, used, 4 * size_of_val(logits), |first, routes| {
        let logits = logits[first * experts..].chunks_exact(experts);
        for (routes, logits) in routes.chunks_exact_mut(used).zip(logits) {
            routes.copy_from_slice(&route(logits, used));
        }
    });
    routes
}

/// The `used` largest logits, ties to the lower index, weighted by a softmax over themselves: the same as renormalising
/// the softmax over all.
fn route(logits: &[f32], used: usize) -> Vec<Route> {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let better = best_first(logits);
    if used < order.len() {
        order.select_nth_unstable_by(used - 1, better);
        order.truncate(used);
    }
    order.sort_unstable_by(better);
    let max = logits[order[0] as usize];
    let weights: Vec<f32> = order.iter().map(|e| exp(logits[*e as usize] - max)).collect();
    let total: f32 = weights.iter().sum();
    order.iter().zip(weights).map(|(expert, weight)| Route { expert: *expert, weight: weight / total }).collect()
}

/// The pairs of every expert that has some, ascending.
struct Groups {
    pairs: Vec<u32>,
    /// Expert and where its pairs end.
    ends: Vec<(usize, usize)>,
}

impl Groups {
    fn new(routes: &[Route], experts: usize) -> Self {
        let mut next = vec![0; experts + 1];
        for route in routes {
            next[route.expert as usize + 1] += 1;
        }
        for expert in 0..experts {
            next[expert + 1] += next[expert];
        }
        let mut pairs = vec![0; routes.len()];
        for (pair, route) in routes.iter().enumerate() {
            let at = &mut next[route.expert as usize];
            pairs[*at] = pair as u32;
            *at += 1;
        }
        // By now `next[e]` is where expert e ends.
        let ends = (0..experts).map(|e| (e, next[e]));
        let mut start = 0;
        let ends = ends.filter(|(_, end)| std::mem::replace(&mut start, *end) < *end).collect();
        Self { pairs, ends }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// The expert of a group and its pairs.
    fn get(&self, i: usize) -> (usize, &[u32]) {
        let start = if i == 0 { 0 } else { self.ends[i - 1].1 };
        let (expert, end) = self.ends[i];
        (expert, &self.pairs[start..end])
    }
}

/// One pass over the routed experts: `y[pair] = W[expert] x[pair / pairs_per_row]`, or `silu(gate) * up` where two
/// tensors are given. `y: [pairs][outputs]`.
fn expert_pass<const N: usize>(
    model: &Model,
    groups: &Groups,
    tensors: [&Experts; N],
    x: &Operand<'_>,
    pairs_per_row: usize,
    y: &mut [f32],
) {
    thread_local! {
        static SCRATCH: RefCell<(Vec<u32>, Vec<f32>)> = RefCell::default();
    }
    let outputs = tensors[0].rows;
    let expert_bytes: usize = tensors.iter().map(|t| t.data.len() / t.experts).sum();
    // A task is a run of outputs of one expert: as few as keep all threads busy.
    let tasks = model.pool.tasks(outputs * groups.len(), expert_bytes * groups.pairs.len());
    let cuts = tasks.div_ceil(groups.len().max(1)).min(outputs.div_ceil(LANES)).max(1);
    let run = outputs.div_ceil(cuts).next_multiple_of(LANES).min(outputs);
    let cuts = outputs.div_ceil(run);
    let sink = Sink::new(y, outputs, Pick::All(groups.pairs.len()));
    let work = |task: usize| {
        let (expert, pairs) = groups.get(task / cuts);
        let range = task % cuts * run..outputs.min((task % cuts + 1) * run);
        SCRATCH.with_borrow_mut(|(picks, values)| {
            picks.clear();
            picks.extend(pairs.iter().map(|p| p / pairs_per_row as u32));
            let pick = Pick::Some(picks);
            let width = range.len();
            values.resize(N * pairs.len() * width, 0.0);
            let (first, second) = values.split_at_mut(pairs.len() * width);
            for (tensor, values) in tensors.iter().zip([&mut *first, &mut *second]) {
                let sink = Sink::new(values, width, Pick::All(pairs.len())).starting_at(range.start);
                outputs_into(tensor.expert(expert), range.clone(), x, pick, sink);
            }
            if N == 2 {
                simd::run(Swiglu(first, second));
            }
            for (pair, values) in pairs.iter().zip(first.chunks_exact(width)) {
                // SAFETY: a task has its outputs to itself.
                unsafe { sink.put(*pair as usize, range.start, values) };
            }
        });
    };
    if tasks <= 1 {
        (0..groups.len() * cuts).for_each(work);
    } else {
        model.pool.run(groups.len() * cuts, work);
    }
}

/// `gate = silu(gate) * up`.
struct Swiglu<'a>(&'a mut [f32], &'a [f32]);

impl Kernel for Swiglu<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (g, u) in self.0.iter_mut().zip(self.1) {
            *g = silu(*g) * u;
        }
    }
}

fn swiglu(pool: &Pool, gate: &mut [f32], up: &[f32]) {
    math::zip_in_place(pool, gate, up, |g, u| silu(g) * u);
}

/// `out[t] = sum over slots, ascending, of weight * slot + sigmoid(gate[t]) * shared[t]`.
struct Combine<'a> {
    routes: &'a [Route],
    slots: &'a [f32],
    shared: &'a [f32],
    gate: &'a [f32],
    used: usize,
    hidden: usize,
    out: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { routes, slots, shared, gate, used, hidden, out } = self;
        let slots = slots.chunks_exact(hidden * used);
        let rows = out.chunks_exact_mut(hidden).zip(routes.chunks_exact(used)).zip(slots);
        for (((out, routes), slots), (shared, gate)) in rows.zip(shared.chunks_exact(hidden).zip(gate)) {
            for (route, slot) in routes.iter().zip(slots.chunks_exact(hidden)) {
                axpy(out, route.weight, slot);
            }
            axpy(out, sigmoid(*gate), shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_row_is_routed_by_its_own_logits_on_any_number_of_threads() {
        // Real sizes: a prompt is cut into tasks.
        let (rows, experts, used) = (128, 512, 10);
        let logits: Vec<f32> = (0..rows * experts).map(|i| (i * 7919 % 10_007) as f32 / 1000.0).collect();
        let want: Vec<(u32, f32)> =
            logits.chunks_exact(experts).flat_map(|l| crate::reference::route(l, used)).collect();
        for threads in [1, 2, 5] {
            let got = route_rows(&Pool::new(threads).unwrap(), &logits, experts, used);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                assert!(got.expert == want.0 && (got.weight - want.1).abs() < 1e-6, "{threads} threads");
            }
        }
    }

    proptest! {
        #[test]
        fn groups_hold_every_pair_of_an_expert_once_and_ascending(experts in proptest::collection::vec(0u32..9, 0..40)) {
            let routes: Vec<Route> = experts.iter().map(|e| Route { expert: *e, weight: 1.0 }).collect();
            let groups = Groups::new(&routes, 9);
            let mut seen = 0;
            for i in 0..groups.len() {
                let (expert, pairs) = groups.get(i);
                let want: Vec<u32> = (0..experts.len() as u32).filter(|p| experts[*p as usize] as usize == expert).collect();
                prop_assert_eq!(pairs, &want[..]);
                seen += pairs.len();
            }
            prop_assert_eq!(seen, experts.len());
        }

        /// Few distinct logits, so that ties are common: the lower index wins.
        #[test]
        fn routing_equals_the_reference_with_ties(logits in proptest::collection::vec((-3i8..3).prop_map(f32::from), 16), used in 1usize..16) {
            let got: Vec<Route> = route(&logits, used);
            let want = crate::reference::route(&logits, used);
            prop_assert_eq!(got.iter().map(|r| r.expert).collect::<Vec<_>>(), want.iter().map(|w| w.0).collect::<Vec<_>>());
            for (g, w) in got.iter().zip(&want) {
                prop_assert!((g.weight - w.1).abs() < 1e-6);
            }
        }
    }
}
