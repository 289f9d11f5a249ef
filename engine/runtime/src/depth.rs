//! How many drafts the next round should verify.
//!
//! The best depth follows from two things that only running can tell: what a round costs at each depth, and how often
//! the draft at each place of the chain is accepted. Both are measured on the rounds themselves. Whatever is chosen, the
//! text is the same (see [`crate::sampler`]): depth is about speed alone.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::MAX_DEPTH;
use crate::error::Error;

/// Who decides the draft depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepthPolicy {
    /// Always this many drafts, 0 = serial.
    Fixed(usize),
    /// As many as pay for themselves, 0 where drafting is slower than not drafting.
    Adaptive {
        /// Never more than this.
        max: usize,
    },
}

impl Default for DepthPolicy {
    /// Serial.
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl DepthPolicy {
    /// The deepest draft this policy may ask for.
    pub fn max(&self) -> usize {
        match *self {
            Self::Fixed(depth) => depth,
            Self::Adaptive { max } => max,
        }
    }
}

/// What one round told: its drafts, those accepted, how many it chained for the next round, and how long all that took.
#[derive(Debug, Clone, Copy)]
pub struct RoundCost {
    /// Drafts verified.
    pub drafted: usize,
    /// Drafts accepted.
    pub accepted: usize,
    /// Drafts chained for the next round.
    pub chained: usize,
    /// Wall time of the round.
    pub took: Duration,
}

/// Costs kept per depth; their median is the cost. A mean would let one page fault or one burst of another program decide.
const COSTS: usize = 5;
/// Rounds a depth is measured for. The round that changes depth verifies one count and chains another: it is no depth's cost.
const LOOK_ROUNDS: usize = 3;
/// Rounds between two looks at another depth, so that about one round in 17 is spent on looking.
const LOOK_EVERY: u64 = 64;
/// The same while drafting is off: each look that changes nothing doubles the gap, up to this.
const LOOK_EVERY_OFF: u64 = 1024;
/// Gain below which the depth stays: less is noise of the measurement.
const WORTH_A_CHANGE: f64 = 1.03;

/// Share of drafts accepted at one place of the chain, given that all before it were.
#[derive(Debug, Clone, Copy)]
struct Acceptance {
    share: f64,
    seen: u32,
}

impl Acceptance {
    /// A mean over two imagined drafts at the first guess and the real ones; past 30 an exponential average, as text changes.
    fn add(&mut self, accepted: bool) {
        self.seen = (self.seen + 1).min(30);
        let outcome = if accepted { 1.0 } else { 0.0 };
        self.share += (outcome - self.share) / f64::from(self.seen + 2);
    }
}

/// A depth under measurement, and the rounds it still needs.
#[derive(Debug, Clone, Copy)]
struct Look {
    depth: usize,
    left: usize,
}

/// Chooses depths from what rounds cost and yield. Deterministic: the same observations give the same depths.
#[derive(Debug, Clone)]
pub struct DepthChooser {
    policy: DepthPolicy,
    acceptance: [Acceptance; MAX_DEPTH],
    costs: [VecDeque<f64>; MAX_DEPTH + 1],
    /// Round at which each depth was last measured.
    measured_at: [u64; MAX_DEPTH + 1],
    rounds: u64,
    best: usize,
    look: Option<Look>,
    next_look: u64,
    gap: u64,
}

impl DepthChooser {
    /// A chooser that has seen nothing. Refuses a policy deeper than [`MAX_DEPTH`].
    pub fn new(policy: DepthPolicy) -> Result<Self, Error> {
        if policy.max() > MAX_DEPTH {
            return Err(Error::InvalidDepth { found: policy.max(), max: MAX_DEPTH });
        }
        Ok(Self::unchecked(policy))
    }

    fn unchecked(policy: DepthPolicy) -> Self {
        // Two drafts pay on most text, and tell of the first two places of the chain at once.
        let best = policy.max().min(2);
        Self {
            policy,
            acceptance: [Acceptance { share: 0.7, seen: 0 }; MAX_DEPTH],
            costs: Default::default(),
            measured_at: [0; MAX_DEPTH + 1],
            rounds: 0,
            best,
            look: Some(Look { depth: best, left: LOOK_ROUNDS }),
            next_look: LOOK_EVERY,
            gap: LOOK_EVERY,
        }
    }

    /// The policy it was made with.
    pub fn policy(&self) -> DepthPolicy {
        self.policy
    }

    /// Drafts to chain now.
    pub fn depth(&self) -> usize {
        match self.policy {
            DepthPolicy::Fixed(depth) => depth,
            DepthPolicy::Adaptive { .. } => self.look.map_or(self.best, |look| look.depth),
        }
    }

    /// Learns from a round. Rounds cut short by a budget may be given too.
    pub fn observe(&mut self, round: RoundCost) {
        let DepthPolicy::Adaptive { max } = self.policy else { return };
        self.rounds += 1;
        for (place, acceptance) in self.acceptance.iter_mut().enumerate().take(round.drafted) {
            acceptance.add(place < round.accepted);
            if place == round.accepted {
                break;
            }
        }
        if round.drafted == round.chained && round.drafted <= max {
            self.measure(round.drafted, round.took);
        }
        if self.look.is_none() {
            self.decide(max);
        }
    }

    fn measure(&mut self, depth: usize, took: Duration) {
        let costs = &mut self.costs[depth];
        if costs.len() == COSTS {
            costs.pop_front();
        }
        costs.push_back(took.as_secs_f64());
        self.measured_at[depth] = self.rounds;
        if let Some(look) = self.look.as_mut().filter(|look| look.depth == depth) {
            look.left -= 1;
            if look.left == 0 {
                self.look = None;
            }
        }
    }

    fn decide(&mut self, max: usize) {
        if self.costs[0].is_empty() {
            self.look_at(0); // the yardstick: without the serial cost nothing can be said to pay
            return;
        }
        let better = |best, depth| if self.rate(depth) > self.rate(best) { depth } else { best };
        let found = (0..=max).fold(self.best, better);
        if self.rate(found) > WORTH_A_CHANGE * self.rate(self.best) {
            if self.costs[found].is_empty() {
                self.look_at(found);
            } else {
                self.best = found;
                self.gap = LOOK_EVERY;
                self.next_look = self.rounds + self.gap;
            }
        } else if self.rounds >= self.next_look {
            let others = [0, self.best.saturating_sub(1), (self.best + 1).min(max)];
            let stalest = others.into_iter().filter(|d| *d != self.best).min_by_key(|d| self.measured_at[*d]);
            if let Some(depth) = stalest {
                self.look_at(depth);
            }
            self.gap = if self.best == 0 { (self.gap * 2).min(LOOK_EVERY_OFF) } else { LOOK_EVERY };
            self.next_look = self.rounds + self.gap;
        }
    }

    fn look_at(&mut self, depth: usize) {
        self.look = Some(Look { depth, left: LOOK_ROUNDS });
    }

    /// Tokens per second expected at a depth.
    fn rate(&self, depth: usize) -> f64 {
        let mut run = 1.0;
        let mut share = self.acceptance[0].share;
        let mut tokens = 1.0;
        for acceptance in &self.acceptance[..depth] {
            if acceptance.seen > 0 {
                share = acceptance.share; // an unseen place is taken to be as good as the one before it
            }
            run *= share;
            tokens += run;
        }
        tokens / self.cost(depth)
    }

    /// Seconds of a round: the median where measured, else on the straight line through the nearest measured depths.
    fn cost(&self, depth: usize) -> f64 {
        if let Some(cost) = median(&self.costs[depth]) {
            return cost.max(f64::MIN_POSITIVE);
        }
        let mut known = (0..=MAX_DEPTH).filter_map(|d| Some((d, median(&self.costs[d])?))).collect::<Vec<_>>();
        known.sort_by_key(|(d, _)| d.abs_diff(depth));
        match known[..] {
            [(d0, c0), (d1, c1), ..] => {
                let slope = (c1 - c0) / (d1 as f64 - d0 as f64);
                let cost = c0 + slope * (depth as f64 - d0 as f64);
                cost.max(0.5 * c0).max(f64::MIN_POSITIVE) // two noisy points may point below zero
            }
            _ => f64::INFINITY,
        }
    }
}

impl Default for DepthChooser {
    /// Serial: no drafts, ever.
    fn default() -> Self {
        Self::unchecked(DepthPolicy::Fixed(0))
    }
}

fn median(costs: &VecDeque<f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = costs.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drafts at place `j` are accepted with chance `accept[j]`; a round costs `cost[depth]` milliseconds, the drafted half
    /// of it by what it verifies and the other by what it chains.
    struct World {
        accept: [f64; MAX_DEPTH],
        cost: [f64; MAX_DEPTH + 1],
    }

    impl World {
        fn run(&self, chooser: &mut DepthChooser, rounds: std::ops::Range<usize>) -> Vec<usize> {
            let mut drafted = chooser.depth();
            let mut depths = Vec::new();
            for round in rounds {
                let accepted =
                    (0..drafted).take_while(|j| crate::sampler::uniform(*j as u64, round) < self.accept[*j]).count();
                let chained = chooser.depth();
                let jitter = 1.0 + 0.02 * crate::sampler::uniform(99, round);
                let took = Duration::from_secs_f64((self.cost[drafted] + self.cost[chained]) / 2000.0 * jitter);
                depths.push(drafted);
                chooser.observe(RoundCost { drafted, accepted, chained, took });
                drafted = chained;
            }
            depths
        }
        fn rate(&self, depth: usize) -> f64 {
            let run = |n: usize| self.accept[..n].iter().product::<f64>();
            (0..=depth).map(run).sum::<f64>() / self.cost[depth]
        }
        fn best(&self, max: usize) -> usize {
            (0..=max).fold(0, |b, d| if self.rate(d) > self.rate(b) { d } else { b })
        }
    }

    fn linear(serial: f64, draft: f64) -> [f64; MAX_DEPTH + 1] {
        std::array::from_fn(|d| serial + draft * d as f64)
    }

    fn adaptive(max: usize) -> DepthChooser {
        DepthChooser::new(DepthPolicy::Adaptive { max }).unwrap()
    }

    #[test]
    fn a_fixed_depth_stays_whatever_rounds_cost() {
        let mut chooser = DepthChooser::new(DepthPolicy::Fixed(3)).unwrap();
        let world = World { accept: [0.0; 6], cost: linear(1.0, 10.0) };
        assert!(world.run(&mut chooser, 0..300).iter().all(|d| *d == 3));
    }

    #[test]
    fn a_policy_deeper_than_a_round_is_refused() {
        for policy in [DepthPolicy::Fixed(7), DepthPolicy::Adaptive { max: 7 }] {
            assert!(matches!(DepthChooser::new(policy), Err(Error::InvalidDepth { found: 7, max: 6 })));
        }
    }

    /// vllm-project/recipes#923: drafting made answers slower than no drafting.
    #[test]
    fn drafting_that_does_not_pay_is_switched_off_and_hardly_looked_at_again() {
        for world in [
            World { accept: [0.1; 6], cost: linear(1.0, 0.35) },
            World { accept: [0.9; 6], cost: linear(1.0, 1.0) },
            World { accept: [0.0; 6], cost: linear(1.0, 0.05) },
        ] {
            let depths = world.run(&mut adaptive(6), 0..3000);
            let drafting = depths.iter().filter(|d| **d > 0).count();
            assert!(drafting < 120, "{drafting} of 3000 rounds drafted");
        }
    }

    #[test]
    fn the_depth_settles_within_a_twentieth_of_the_best_rate() {
        for share in [0.3, 0.5, 0.65, 0.8, 0.9, 0.97] {
            for draft in [0.05, 0.2, 0.35, 0.6] {
                for max in [1, 2, 4, 6] {
                    let world = World { accept: [share; 6], cost: linear(1.0, draft) };
                    let depths = world.run(&mut adaptive(max), 0..2000);
                    assert!(depths.iter().all(|d| *d <= max));
                    let tail = &depths[1000..];
                    let got = tail.iter().map(|d| world.rate(*d)).sum::<f64>() / tail.len() as f64;
                    let best = world.rate(world.best(max));
                    assert!(got > 0.95 * best, "share {share} draft {draft} max {max}: {got} of {best}");
                }
            }
        }
    }

    #[test]
    fn a_change_of_text_is_noticed_in_both_directions() {
        let good = World { accept: [0.95; 6], cost: linear(1.0, 0.3) };
        let bad = World { accept: [0.05; 6], cost: linear(1.0, 0.3) };
        let mut chooser = adaptive(6);
        good.run(&mut chooser, 0..500);
        assert!(chooser.depth() >= 4);
        let off = bad.run(&mut chooser, 500..1500);
        assert!(off[900..].iter().filter(|d| **d == 0).count() > 90);
        let on = good.run(&mut chooser, 1500..5000);
        assert!(on[3400..].iter().filter(|d| **d >= 3).count() > 80, "{:?}", &on[3400..]);
    }

    #[test]
    fn one_slow_round_changes_nothing() {
        let world = World { accept: [0.9; 6], cost: linear(1.0, 0.2) };
        let mut chooser = adaptive(4);
        world.run(&mut chooser, 0..400);
        let before = chooser.depth();
        chooser.observe(RoundCost { drafted: before, accepted: before, chained: before, took: Duration::from_secs(9) });
        assert_eq!(chooser.depth(), before);
    }

    #[test]
    fn the_same_observations_give_the_same_depths() {
        let world = World { accept: [0.7; 6], cost: linear(1.0, 0.35) };
        assert_eq!(world.run(&mut adaptive(6), 0..500), world.run(&mut adaptive(6), 0..500));
    }

    #[test]
    fn rounds_of_no_time_at_all_do_no_harm() {
        let world = World { accept: [0.7; 6], cost: [0.0; 7] };
        assert!(world.run(&mut adaptive(6), 0..500).iter().all(|d| *d <= 6));
    }
}
