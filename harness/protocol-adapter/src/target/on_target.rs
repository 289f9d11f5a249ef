//! A phase's verbs over any target: how a free run is made of cycles, and what of it must hold (engine-protocol-v1.md 6.1).

use bench_protocol::ResidentIdentity;

use crate::Error;
use crate::worker::{Backend, Depth, FreeRun, Identity};

use super::{Counters, Drafting, Facts, Target, TargetError, Token};

/// A run of so many tokens has room for drafts in its first round.
const DRAFTS_EXPECTED_FROM: u32 = 3;

const BYTES_PER_GB: f64 = 1e9;

/// The worker's engine over any [`Target`]. A phase begins with a target without tokens; nothing else outlives one.
#[derive(Debug)]
pub struct OnTarget<T> {
    target: T,
    /// The token that a free run feeds next.
    pending: Token,
    depth: Depth,
}

impl<T: Target> OnTarget<T> {
    /// Takes the target over.
    pub fn new(target: T) -> Self {
        Self { target, pending: 0, depth: Depth::Serial }
    }

    fn serial(&mut self, count: u32) -> Result<FreeRun, TargetError> {
        let mut run = FreeRun::default();
        for _ in 0..count {
            self.pending = self.target.eval(self.pending)?;
            run.tokens.push(self.pending);
            run.acceptance_lengths.push(1);
        }
        run.committed = u64::from(count);
        Ok(run)
    }

    fn drafting(&mut self, count: u32) -> Result<FreeRun, TargetError> {
        let before = self.counters()?;
        let mut run = FreeRun::default();
        let mut left = count;
        while left > 0 {
            let cycle = self.target.eval_speculative(self.pending, left)?;
            let drafts = match cycle.committed.split_first() {
                Some((first, drafts)) if *first == self.pending => drafts,
                first => {
                    let found = first.map(|(first, _)| *first);
                    return Err(TargetError::ForeignCycle { fed: self.pending, found });
                }
            };
            let length = u32::try_from(cycle.committed.len()).ok().filter(|length| *length <= left);
            let length = length.ok_or(TargetError::CycleTooLong { committed: cycle.committed.len(), budget: left })?;
            // What the cycle brought: the drafts it accepted, and the choice behind them.
            run.tokens.extend_from_slice(drafts);
            run.tokens.push(cycle.next);
            run.acceptance_lengths.push(length);
            run.committed += u64::from(length);
            self.pending = cycle.next;
            left -= length;
        }
        let after = self.counters()?;
        let grown = |counter, before: u64, after: u64| {
            after.checked_sub(before).ok_or(TargetError::CounterWentBack { counter, before, after })
        };
        let times = grown("quenches", before.quenches, after.quenches)?;
        if times > 0 {
            return Err(TargetError::Quenched { times });
        }
        run.drafted = grown("drafts", before.drafts, after.drafts)?;
        run.accepted = grown("hits", before.hits, after.hits)?;
        run.disagreements = Some(grown("disagreements", before.disagreements, after.disagreements)?);
        if run.drafted == 0 && count >= DRAFTS_EXPECTED_FROM {
            return Err(TargetError::NothingDrafted { count });
        }
        Ok(run)
    }

    fn counters(&mut self) -> Result<Counters, TargetError> {
        let counters = self.target.counters();
        self.target.fault()?;
        Ok(counters)
    }
}

/// What a worker says of itself over this target.
fn identity_of(facts: &Facts) -> Identity {
    Identity {
        backend: facts.backend.clone(),
        device: facts.device.clone(),
        resident: facts.resident_pid.map(|pid| ResidentIdentity { pid, load_epoch: pid.into() }),
        ..Identity::default()
    }
}

impl<T: Target> Backend for OnTarget<T> {
    fn identity(&self) -> Identity {
        identity_of(self.target.facts())
    }

    fn why_serial_only(&self) -> Option<String> {
        let facts = self.target.facts();
        (facts.drafting == Drafting::None).then(|| format!("{} was opened without a drafter", facts.backend))
    }

    fn mtp_depth(&self, requested: Option<u32>) -> Result<u32, Error> {
        let drafting = self.target.facts().drafting;
        let depth = requested.or(drafting.default_depth()).unwrap_or(0);
        drafting.check(depth)?;
        Ok(depth)
    }

    fn open(&mut self) -> Result<u64, Error> {
        self.target.invalidate();
        self.target.fault()?;
        Ok(0)
    }

    fn close(&mut self) {
        (self.pending, self.depth) = (0, Depth::Serial);
    }

    fn prefill(&mut self, prompt: &[Token]) -> Result<Token, Error> {
        Ok(self.target.sync(prompt)?)
    }

    fn begin(&mut self, seed: &[Token], depth: Depth) -> Result<Token, Error> {
        if let Depth::Mtp(depth) = depth {
            self.target.arm(depth)?;
        }
        (self.pending, self.depth) = (self.target.sync(seed)?, depth);
        Ok(self.pending)
    }

    fn step(&mut self, token: Token) -> Result<Token, Error> {
        Ok(self.target.eval(token)?)
    }

    fn top_logits(&mut self, count: usize) -> Result<Vec<(Token, f32)>, Error> {
        let top = self.target.top_logits(count);
        self.target.fault()?;
        Ok(top)
    }

    fn free_run(&mut self, count: u32) -> Result<FreeRun, Error> {
        Ok(match self.depth {
            Depth::Serial => self.serial(count)?,
            Depth::Mtp(_) => self.drafting(count)?,
        })
    }

    fn is_stop(&self, token: Token) -> bool {
        self.target.facts().stop_ids.contains(&token)
    }

    fn peak_ram_gb(&self) -> f64 {
        // Reported, never scored: 0 where the system does not say.
        self.target.peak_ram_bytes().map_or(0.0, |bytes| bytes as f64 / BYTES_PER_GB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Cycle, Stub};

    const SEED: [Token; 3] = [11, 12, 13];
    const STREAM: [Token; 6] = [11, 555, 921, 735, 1021, 467];

    fn run(target: impl Target, depth: Depth, count: u32) -> Result<FreeRun, Error> {
        let mut backend = OnTarget::new(target);
        assert_eq!(backend.open()?, 0);
        assert_eq!(backend.begin(&SEED, depth)?, 653);
        backend.free_run(count)
    }

    #[test]
    fn a_free_run_of_the_stub_has_the_vectors_serial_and_drafting() {
        let serial = run(Stub::new(1, 8192, &[], ""), Depth::Serial, 6).unwrap();
        assert_eq!((serial.tokens, serial.acceptance_lengths), (STREAM.to_vec(), vec![1; 6]));
        assert_eq!((serial.drafted, serial.accepted, serial.committed, serial.disagreements), (0, 0, 6, None));
        let drafting = run(Stub::new(2, 8192, &[], ""), Depth::Mtp(1), 6).unwrap();
        assert_eq!((drafting.tokens, drafting.acceptance_lengths), (STREAM.to_vec(), vec![2, 2, 2]));
        assert_eq!((drafting.drafted, drafting.accepted, drafting.committed), (3, 3, 6));
        assert_eq!(drafting.disagreements, Some(0));
    }

    #[test]
    fn a_depth_is_run_as_opened_or_refused_and_the_own_choice_is_that_depth() {
        let backend = OnTarget::new(Stub::new(4, 8192, &[], ""));
        assert_eq!(backend.why_serial_only(), None);
        assert_eq!((backend.mtp_depth(None).unwrap(), backend.mtp_depth(Some(3)).unwrap()), (3, 3));
        for other in [1, 2, 4, 6] {
            let refused = backend.mtp_depth(Some(other)).unwrap_err().to_string();
            assert!(refused.contains("opened with 4 draft tokens, which is depth 3"), "{refused}");
        }
        let serial = OnTarget::new(Stub::new(1, 8192, &[], "")).why_serial_only().unwrap();
        assert!(serial.contains("without a drafter"), "{serial}");
    }

    #[test]
    fn a_correctness_run_ends_behind_a_stop_id() {
        let mut backend = OnTarget::new(Stub::new(1, 8192, &[921], ""));
        backend.open().unwrap();
        assert_eq!(backend.correctness(&SEED, 6).unwrap(), [653, 11, 555, 921]);
    }

    /// A stub whose cycles and counters are bent.
    struct Bent<C, N> {
        stub: Stub,
        cycle: C,
        counters: N,
    }

    impl<C: FnMut(&mut Cycle), N: FnMut(&mut Counters)> Target for Bent<C, N> {
        fn facts(&self) -> &Facts {
            self.stub.facts()
        }
        fn invalidate(&mut self) {
            self.stub.invalidate();
        }
        fn sync(&mut self, tokens: &[Token]) -> Result<Token, TargetError> {
            self.stub.sync(tokens)
        }
        fn eval(&mut self, token: Token) -> Result<Token, TargetError> {
            self.stub.eval(token)
        }
        fn argmax(&mut self) -> Option<Token> {
            self.stub.argmax()
        }
        fn top_logits(&mut self, k: usize) -> Vec<(Token, f32)> {
            self.stub.top_logits(k)
        }
        fn arm(&mut self, depth: u32) -> Result<(), TargetError> {
            self.stub.arm(depth)
        }
        fn eval_speculative(&mut self, first: Token, budget: u32) -> Result<Cycle, TargetError> {
            let mut cycle = self.stub.eval_speculative(first, budget)?;
            (self.cycle)(&mut cycle);
            Ok(cycle)
        }
        fn counters(&mut self) -> Counters {
            let mut counters = self.stub.counters();
            (self.counters)(&mut counters);
            counters
        }
    }

    fn bent(cycle: impl FnMut(&mut Cycle), counters: impl FnMut(&mut Counters), count: u32) -> Result<FreeRun, Error> {
        run(Bent { stub: Stub::new(2, 8192, &[], ""), cycle, counters }, Depth::Mtp(1), count)
    }

    #[test]
    fn a_cycle_that_is_not_the_one_asked_for_is_a_fault() {
        let fault = |bend: fn(&mut Cycle)| bent(bend, |_| {}, 6).unwrap_err().to_string();
        assert!(fault(|cycle| cycle.committed.clear()).contains("fed token 653 and committed nothing first"));
        assert!(fault(|cycle| cycle.committed[0] = 7).contains("fed token 653 and committed 7 first"));
        assert!(fault(|cycle| cycle.committed = vec![653; 7]).contains("committed 7 tokens, 6 were left"));
    }

    #[test]
    fn counters_that_do_not_tell_of_drafting_are_a_fault() {
        let mut asked = 0;
        let quenched = |counters: &mut Counters| {
            counters.quenches = asked;
            asked += 1;
        };
        assert!(bent(|_| {}, quenched, 6).unwrap_err().to_string().contains("gave up drafting 1 times"));

        let mut before = true;
        let back = |counters: &mut Counters| counters.hits = if std::mem::take(&mut before) { 9 } else { 3 };
        assert!(bent(|_| {}, back, 6).unwrap_err().to_string().contains("hits went from 9 to 3"));

        let idle = |counters: &mut Counters| *counters = Counters::default();
        assert!(bent(|_| {}, idle, 3).unwrap_err().to_string().contains("proposed nothing in a run of 3 tokens"));
        assert_eq!(bent(|_| {}, idle, 2).unwrap().drafted, 0, "two tokens have no room to draft for sure");
    }
}
