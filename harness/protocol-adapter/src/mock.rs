//! A backend that computes nothing: every answer is arithmetic on the request (engine-protocol-v1.md 6.2), so that the
//! protocol can be tested to the byte. It names itself `mock` on device `none`.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;
use crate::worker::{Backend, Depth, FreeRun, Identity, TokenId};

/// First of the greedy tokens after a prompt.
const AFTER_PROMPT: TokenId = 100_000;
/// First of the greedy tokens after a seed.
const AFTER_SEED: TokenId = 200_000;
/// What the engine picks when `mtp` comes without a depth.
const OWN_DEPTH: u32 = 2;

/// What happened to the mock's instances, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An instance came up.
    Created,
    /// It was emptied.
    Drained,
    /// It ran this many tokens.
    Forward(usize),
    /// It went.
    Dropped,
}

/// The log, shared by the mock and whoever watches it.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle(Arc<Mutex<Vec<Event>>>);

impl Lifecycle {
    /// What has happened so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// How the mock misbehaves; by default it does not.
#[derive(Debug, Clone, Default)]
pub struct Knobs {
    /// Bytes that an emptied instance still holds.
    pub residual_bytes: u64,
    /// A token it cannot run, wherever it comes from.
    pub fault_on: Option<TokenId>,
    /// Whether it has no draft head.
    pub serial_only: bool,
}

/// The mock.
#[derive(Debug, Default)]
pub struct Mock {
    knobs: Knobs,
    lifecycle: Lifecycle,
    instance: Option<Instance>,
}

/// What a phase knows.
#[derive(Debug)]
struct Instance {
    lifecycle: Lifecycle,
    last: TokenId,
    depth: Depth,
    rounds: u64,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.lifecycle.push(Event::Dropped);
    }
}

impl Mock {
    /// A mock that misbehaves as told.
    pub fn new(knobs: Knobs) -> Self {
        Self { knobs, ..Self::default() }
    }

    /// Its log, which outlives it.
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.clone()
    }

    fn instance(&mut self) -> Result<&mut Instance, Error> {
        self.instance.as_mut().ok_or_else(|| Error::Fault("no instance of the mock is up".to_owned()))
    }

    /// "Runs" tokens: the first of them that it cannot is the fault.
    fn run(&self, tokens: &[TokenId]) -> Result<(), Error> {
        if let Some(token) = tokens.iter().find(|token| self.knobs.fault_on == Some(**token)) {
            return Err(Error::Fault(format!("token {token} faults, as the mock was told")));
        }
        self.lifecycle.push(Event::Forward(tokens.len()));
        Ok(())
    }

    fn prompt(&mut self, first: TokenId, tokens: &[TokenId], depth: Depth) -> Result<TokenId, Error> {
        self.run(tokens)?;
        let last = add(first, tokens.len())?;
        let instance = self.instance()?;
        (instance.last, instance.depth) = (last, depth);
        Ok(last)
    }
}

/// The token so many further on.
fn add(token: TokenId, steps: usize) -> Result<TokenId, Error> {
    let sum = TokenId::try_from(steps).ok().and_then(|steps| token.checked_add(steps));
    sum.ok_or_else(|| Error::Fault(format!("token {token} has no {steps} tokens behind it")))
}

impl Backend for Mock {
    fn identity(&self) -> Identity {
        Identity { backend: "mock".to_owned(), device: "none".to_owned(), ..Identity::default() }
    }

    fn why_serial_only(&self) -> Option<String> {
        self.knobs.serial_only.then(|| "the mock was told to have no draft head".to_owned())
    }

    fn mtp_depth(&self, requested: Option<u32>) -> Result<u32, Error> {
        Ok(requested.unwrap_or(OWN_DEPTH))
    }

    fn open(&mut self) -> Result<u64, Error> {
        let lifecycle = self.lifecycle.clone();
        self.lifecycle.push(Event::Created);
        self.instance = Some(Instance { lifecycle, last: 0, depth: Depth::Serial, rounds: 0 });
        self.lifecycle.push(Event::Drained);
        Ok(self.knobs.residual_bytes)
    }

    fn close(&mut self) {
        self.instance = None;
    }

    fn prefill(&mut self, prompt: &[TokenId]) -> Result<TokenId, Error> {
        self.prompt(AFTER_PROMPT, prompt, Depth::Serial)
    }

    fn begin(&mut self, seed: &[TokenId], depth: Depth) -> Result<TokenId, Error> {
        self.prompt(AFTER_SEED, seed, depth)
    }

    fn step(&mut self, token: TokenId) -> Result<TokenId, Error> {
        self.run(&[token])?;
        let next = add(token, 1)?;
        self.instance()?.last = next;
        Ok(next)
    }

    fn top_logits(&mut self, count: usize) -> Result<Vec<(TokenId, f32)>, Error> {
        let last = self.instance()?.last;
        (0..count).map(|i| Ok((add(last, i)?, 10.0 - i as f32))).collect()
    }

    /// Round `r` proposes `depth` drafts and accepts all of them when `r` is even, else none. What the end cuts off still
    /// counts as accepted.
    fn free_run(&mut self, count: u32) -> Result<FreeRun, Error> {
        let mut run = FreeRun::default();
        while run.committed < u64::from(count) {
            let remaining = u64::from(count) - run.committed;
            let instance = self.instance()?;
            let (last, depth) = (instance.last, instance.depth);
            let (drafted, accepted) = match depth {
                Depth::Serial => (0, 0),
                Depth::Mtp(depth) if instance.rounds.is_multiple_of(2) => (depth, depth),
                Depth::Mtp(depth) => (depth, 0),
            };
            let length = remaining.min(u64::from(accepted) + 1) as u32;
            let fed = (0..length as usize).map(|i| add(last, i)).collect::<Result<Vec<_>, _>>()?;
            self.run(&fed)?;
            for token in fed {
                run.tokens.push(add(token, 1)?);
            }
            run.acceptance_lengths.push(length);
            run.drafted += u64::from(drafted);
            run.accepted += u64::from(accepted);
            run.committed += u64::from(length);
            let instance = self.instance()?;
            instance.rounds += 1;
            instance.last = add(last, length as usize)?;
        }
        Ok(run)
    }

    fn is_stop(&self, _token: TokenId) -> bool {
        false
    }

    fn peak_ram_gb(&self) -> f64 {
        18.5
    }

    fn correctness(&mut self, prompt: &[TokenId], steps: u32) -> Result<Vec<TokenId>, Error> {
        self.run(prompt)?;
        (0..steps as usize).map(|step| add(AFTER_PROMPT, step)).collect()
    }
}
