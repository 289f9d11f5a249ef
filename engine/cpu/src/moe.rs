//! Routed experts and the shared expert (qwen4exp.md 7). Rows that share an expert read its weights once.

use cudafast_model::{Experts, MoeWeights};

use crate::math::{self, axpy, best_first, exp, sigmoid, silu};
use crate::matmul::{Operand, Pick, matmul, rows_into};
use crate::model::{Model, Rows};
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
    let operand = Operand::new(x, hp.hidden, model.precision);

    let mut logits = vec![0.0; n * moe.experts];
    matmul(&model.pool, w.router.view(), &operand, &mut logits);
    probe.value(rows.layer, "moe.router", rows.position, moe.experts, &logits);
    let routes: Vec<Route> = logits.chunks_exact(moe.experts).flat_map(|l| route(l, moe.used)).collect();
    for (t, routes) in routes.chunks_exact(moe.used).enumerate() {
        let ids: Vec<u32> = routes.iter().map(|r| r.expert).collect();
        probe.experts(rows.layer, rows.position + t, &ids);
    }
    // Slot s of row t is pair t * used + s; an expert's pairs are ascending.
    let groups = group_by_expert(&routes, moe.experts);

    let mut mid = vec![0.0; routes.len() * moe.expert_ff];
    expert_pass(model, &groups, &[&w.gate, &w.up], &operand, moe.used, &mut mid);
    let mut slots = vec![0.0; routes.len() * hp.hidden];
    let mid_operand = Operand::new(&mid, moe.expert_ff, model.precision);
    expert_pass(model, &groups, &[&w.down], &mid_operand, 1, &mut slots);

    probe.value(rows.layer, "moe.mid", rows.position, moe.used * moe.expert_ff, &mid);
    probe.value(rows.layer, "moe.slots", rows.position, moe.used * hp.hidden, &slots);

    let shared = shared_expert(model, w, &operand, n);
    let mut gate = vec![0.0; n];
    matmul(&model.pool, w.shared_router.view(), &operand, &mut gate);
    probe.value(rows.layer, "moe.shared", rows.position, hp.hidden, &shared);
    probe.value(rows.layer, "moe.shared_gate", rows.position, 1, &gate);

    let mut out = vec![0.0; n * hp.hidden];
    simd::run(Combine {
        routes: &routes,
        slots: &slots,
        shared: &shared,
        gate: &gate,
        used: moe.used,
        hidden: hp.hidden,
        out: &mut out,
    });
    out
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

/// Pairs of one expert.
struct Group {
    expert: usize,
    pairs: Vec<u32>,
}

fn group_by_expert(routes: &[Route], experts: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut of_expert = vec![usize::MAX; experts];
    for (pair, route) in routes.iter().enumerate() {
        let expert = route.expert as usize;
        if of_expert[expert] == usize::MAX {
            of_expert[expert] = groups.len();
            groups.push(Group { expert, pairs: Vec::new() });
        }
        groups[of_expert[expert]].pairs.push(pair as u32);
    }
    groups
}

/// One pass over the routed experts: `y[pair] = W[expert] x[pair / pairs_per_row]`, or `silu(gate) * up` where two
/// tensors are given. `y: [pairs][outputs]`.
fn expert_pass(
    model: &Model,
    groups: &[Group],
    tensors: &[&Experts],
    x: &Operand<'_>,
    pairs_per_row: usize,
    y: &mut [f32],
) {
    let outputs = tensors[0].rows;
    // Work items of one expert and a run of outputs; small enough to spread, large enough to keep rows together.
    let run = outputs.div_ceil(model.pool.threads().max(1)).max(16).min(outputs);
    struct Item<'a> {
        group: &'a Group,
        first: usize,
        by_output: Vec<f32>,
    }
    let mut items: Vec<Item<'_>> = groups
        .iter()
        .flat_map(|group| {
            (0..outputs).step_by(run).map(move |first| {
                let count = run.min(outputs - first);
                Item { group, first, by_output: vec![0.0; count * group.pairs.len()] }
            })
        })
        .collect();
    let expert_bytes: usize = tensors.iter().map(|t| t.data.len() / t.experts).sum();
    model.pool.split(&mut items, 1, expert_bytes * groups.len(), |_, items| {
        for item in items {
            let picks: Vec<u32> = item.group.pairs.iter().map(|p| p / pairs_per_row as u32).collect();
            let expert = item.group.expert;
            rows_into(tensors[0].expert(expert), item.first, x, Pick::Some(&picks), &mut item.by_output);
            if let Some(up) = tensors.get(1) {
                let mut by_output = vec![0.0; item.by_output.len()];
                rows_into(up.expert(expert), item.first, x, Pick::Some(&picks), &mut by_output);
                swiglu(&mut item.by_output, &by_output);
            }
        }
    });
    for item in &items {
        let pairs = &item.group.pairs;
        for (r, values) in item.by_output.chunks_exact(pairs.len()).enumerate() {
            for (pair, v) in pairs.iter().zip(values) {
                y[*pair as usize * outputs + item.first + r] = *v;
            }
        }
    }
}

fn shared_expert(model: &Model, w: &MoeWeights, x: &Operand<'_>, n: usize) -> Vec<f32> {
    let ff = model.hp.moe.shared_ff;
    let mut gate = vec![0.0; n * ff];
    matmul(&model.pool, w.shared_gate.view(), x, &mut gate);
    let mut up = vec![0.0; n * ff];
    matmul(&model.pool, w.shared_up.view(), x, &mut up);
    swiglu(&mut gate, &up);
    let mut y = vec![0.0; n * model.hp.hidden];
    matmul(&model.pool, w.shared_down.view(), &Operand::new(&gate, ff, model.precision), &mut y);
    y
}

/// `gate = silu(gate) * up`.
fn swiglu(gate: &mut [f32], up: &[f32]) {
    math::zip_in_place(gate, up, |g, u| silu(g) * u);
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

    proptest! {
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
