//! The verbs, and what each answer must have (engine-protocol-v1.md 5 to 7).

use bench_core::engine::Answer;
use bench_core::tape::Tape;
use bench_protocol::{ExpertStats, FREE_RUN_DECODE, Request, Response, SpecConfig, SpecMode, TOP_LOGITS, Verb};

use super::{Phase, Reply, SessionError, WorkerSession};

/// What `free_decode_begin` is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedReply {
    /// What follows the prompt.
    pub seed_token: i64,
    /// How the engine says it will decode.
    pub effective_spec: Option<SpecConfig>,
}

/// What `free_decode_run` is answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreeRun {
    /// What follows the seed token.
    pub tokens: Vec<i64>,
    /// Tokens of each round.
    pub acceptance_lengths: Vec<u32>,
    /// Drafts.
    pub drafted_total: u64,
    /// Drafts that became tokens.
    pub accepted_total: u64,
    /// Tokens.
    pub committed_total: u64,
    /// Drafts that a replay would have decided otherwise; `None` is not reported.
    pub verify_replay_disagreements: Option<u64>,
}

impl FreeRun {
    /// How many rounds there were.
    pub fn rounds(&self) -> usize {
        self.acceptance_lengths.len()
    }

    /// The sums that must hold, in the order of engine-protocol-v1.md 7; `work` is the barrier's count.
    pub fn check(&self, count: u32, work: u64) -> Result<(), SessionError> {
        let count = u64::from(count);
        let committed: u64 = self.acceptance_lengths.iter().map(|&length| u64::from(length)).sum();
        let (drafted, accepted) = (self.drafted_total, self.accepted_total);
        let rounds = self.rounds() as u64;
        let left = drafted.saturating_sub(accepted);
        let detail = if self.tokens.len() as u64 != count {
            format!("{count} tokens were asked for and {} came", self.tokens.len())
        } else if self.committed_total != count {
            format!("committed_total is {}, not {count}", self.committed_total)
        } else if drafted < accepted {
            format!("{accepted} drafts were accepted of {drafted}")
        } else if committed != count {
            format!("acceptance_lengths add up to {committed}, not {count}")
        } else if work != rounds + 1 {
            format!("completed_work is {work} behind {rounds} rounds; it must be one more than they")
        } else if self.verify_replay_disagreements.is_some_and(|disagreements| disagreements > left) {
            format!("more disagreements than the {left} drafts that were not accepted")
        } else {
            return Ok(());
        };
        Err(SessionError::FreeRunConsistency { detail })
    }
}

/// What a barrier reports.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseReport {
    /// Forwards and rounds.
    pub completed_work: u64,
    /// Of the process with the weights, as the engine says; never scored.
    pub peak_ram_gb: f64,
    /// As the engine says; never scored.
    pub expert_stats: ExpertStats,
}

fn request(verb: Verb) -> Request {
    Request { kind: verb.name().into(), ..Request::default() }
}

fn prompted(verb: Verb, tokens: &[i64]) -> Request {
    Request { prompt_tokens: Some(tokens.into()), ..request(verb) }
}

impl WorkerSession {
    /// A full forward of a prompt, in a phase of its own: the token that follows.
    pub fn prefill(&mut self, prompt: &[i64]) -> Result<Reply<i64>, SessionError> {
        self.phase = Some(Phase::Steps(0));
        let reply = self.ask(prompted(Verb::Prefill, prompt))?;
        self.take(reply, |response| field(response.token, Verb::Prefill, "token"))
    }

    /// Prefills a seed for a free run. Refuses, before anything is sent, what hello does not offer, and then an echo that is
    /// not what was asked for. Without a `spec` nothing of it is sent and no echo is looked at.
    pub fn free_decode_begin(
        &mut self,
        seed: &[i64],
        spec: Option<&SpecConfig>,
    ) -> Result<Reply<SeedReply>, SessionError> {
        self.expect_free_run(spec)?;
        self.phase = Some(Phase::Free(None));
        let verb = Verb::FreeDecodeBegin;
        let asked = Request { seed_tokens: Some(seed.into()), spec: spec.cloned(), ..request(verb) };
        let reply = self.ask(asked)?;
        self.take(reply, |response| {
            let seed_token = field(response.seed_token, verb, "seed_token")?;
            if let Some(spec) = spec {
                check_echo(spec, response.effective_spec.as_ref())?;
            }
            Ok(SeedReply { seed_token, effective_spec: response.effective_spec })
        })
    }

    /// Refuses a free run, or a way of decoding, that hello does not offer; to be asked before a gate or a clock.
    pub fn expect_free_run(&mut self, spec: Option<&SpecConfig>) -> Result<(), SessionError> {
        let hello = self.hello();
        if !hello.capabilities.iter().any(|offered| offered == FREE_RUN_DECODE) {
            let capability = FREE_RUN_DECODE.into();
            return Err(self.discard(SessionError::CapabilityNotAdvertised { capability }));
        }
        let mode = spec.map_or(SpecMode::Serial, |spec| spec.mode);
        if mode != SpecMode::Serial && !hello.spec_modes.iter().any(|offered| offered == mode.name()) {
            let offered = hello.spec_modes.join(", ");
            return Err(self.discard(SessionError::SpecModeNotRunnable { mode: mode.name().into(), offered }));
        }
        Ok(())
    }

    /// Commits `count` tokens behind the seed.
    pub fn free_decode_run(&mut self, count: u32) -> Result<Reply<FreeRun>, SessionError> {
        let verb = Verb::FreeDecodeRun;
        let reply = self.ask(Request { count: Some(count), ..request(verb) })?;
        let reply = self.take(reply, |response| {
            Ok(FreeRun {
                tokens: field(response.tokens, verb, "tokens")?,
                acceptance_lengths: field(response.acceptance_lengths, verb, "acceptance_lengths")?,
                drafted_total: field(response.drafted_total, verb, "drafted_total")?,
                accepted_total: field(response.accepted_total, verb, "accepted_total")?,
                committed_total: field(response.committed_total, verb, "committed_total")?,
                verify_replay_disagreements: response.verify_replay_disagreements,
            })
        })?;
        self.phase = Some(Phase::Free(Some((count, reply.value.clone()))));
        Ok(reply)
    }

    /// What follows a prompt, with candidates.
    pub fn correctness_begin(&mut self, prompt: &[i64]) -> Result<Reply<Answer>, SessionError> {
        self.phase = Some(Phase::Steps(1));
        let reply = self.ask(prompted(Verb::CorrectnessBegin, prompt))?;
        self.take(reply, |response| answer(response, Verb::CorrectnessBegin))
    }

    /// What follows the caller's token, with candidates.
    pub fn correctness_step(&mut self, token: i64) -> Result<Reply<Answer>, SessionError> {
        if let Some(Phase::Steps(issued)) = &mut self.phase {
            *issued += 1;
        }
        let reply = self.ask(Request { token: Some(token), ..request(Verb::CorrectnessStep) })?;
        self.take(reply, |response| answer(response, Verb::CorrectnessStep))
    }

    /// The engine's own greedy run, which a stop id may end early.
    pub fn correctness(&mut self, prompt: &[i64], steps: usize) -> Result<Reply<Vec<i64>>, SessionError> {
        self.phase = Some(Phase::Steps(0));
        let wanted = i64::try_from(steps).unwrap_or(i64::MAX);
        let reply = self.ask(Request { steps: Some(wanted), ..prompted(Verb::Correctness, prompt) })?;
        self.take(reply, |response| field(response.tokens, Verb::Correctness, "tokens"))
    }

    /// The barrier behind a phase: what was done must be what was asked, and nothing may be left.
    pub fn close_phase(&mut self) -> Result<PhaseReport, SessionError> {
        let phase = self.phase.take();
        let verb = Verb::PhaseDiagnostics;
        let reply = self.ask(request(verb))?;
        let report = self.take(reply, |response| {
            if let Some(reported @ 1..) = response.cache_memory {
                return Err(SessionError::AllocatorCacheNotDrained { reported });
            }
            let completed_work = field(response.completed_work, verb, "completed_work")?;
            match phase {
                Some(Phase::Free(Some((count, run)))) => run.check(count, completed_work)?,
                Some(Phase::Free(None)) => expect_work(1, completed_work)?,
                Some(Phase::Steps(issued)) => expect_work(issued, completed_work)?,
                None => {}
            }
            let peak_ram_gb = field(response.peak_ram_gb, verb, "peak_ram_gb")?;
            Ok(PhaseReport {
                completed_work,
                peak_ram_gb,
                expert_stats: field(response.expert_stats, verb, "expert_stats")?,
            })
        })?;
        Ok(report.value)
    }

    /// The free run that a golden's timed block, or a depth's oracle, is authored from (benchd.md 4.3).
    pub fn record_tape(
        &mut self,
        prompt: &[i64],
        steps: u32,
        spec: Option<&SpecConfig>,
    ) -> Result<(Tape, FreeRun), SessionError> {
        let seed_token = self.free_decode_begin(prompt, spec)?.value.seed_token;
        let run = self.free_decode_run(steps)?.value;
        self.close_phase()?;
        Ok((Tape { seed_tokens: prompt.to_vec(), seed_token, decode_tokens: run.tokens.clone() }, run))
    }

    pub(super) fn phase_is_open(&self) -> bool {
        self.phase.is_some()
    }

    /// An answer that lacks something ends the session like any other error.
    fn take<T>(
        &mut self,
        reply: Reply<Response>,
        read: impl FnOnce(Response) -> Result<T, SessionError>,
    ) -> Result<Reply<T>, SessionError> {
        let Reply { value, sent, received } = reply;
        match read(value) {
            Ok(value) => Ok(Reply { value, sent, received }),
            Err(error) => Err(self.discard(error)),
        }
    }
}

fn field<T>(value: Option<T>, verb: Verb, name: &str) -> Result<T, SessionError> {
    value.ok_or_else(|| SessionError::Protocol(format!("{}: the response has no `{name}`", verb.name())))
}

fn answer(response: Response, verb: Verb) -> Result<Answer, SessionError> {
    let top_logits = field(response.top_logits, verb, "top_logits")?;
    if top_logits.len() != TOP_LOGITS {
        let found = top_logits.len();
        return Err(SessionError::Protocol(format!("{}: {found} top_logits, not {TOP_LOGITS}", verb.name())));
    }
    Ok(Answer { token: field(response.token, verb, "token")?, top_logits })
}

fn expect_work(issued: u64, reported: u64) -> Result<(), SessionError> {
    if issued == reported { Ok(()) } else { Err(SessionError::CompletedWorkMismatch { issued, reported }) }
}

/// What was asked for is what runs: the mode, the blocks, the depth; a depth left to the engine is filled in.
fn check_echo(asked: &SpecConfig, echoed: Option<&SpecConfig>) -> Result<(), SessionError> {
    let honoured = echoed.is_some_and(|echo| {
        let depth = |spec: &SpecConfig| spec.mtp.as_ref().map(|block| block.depth);
        let depth_is_kept = match (depth(asked), depth(echo)) {
            (None, None) => true,
            (Some(Some(asked)), Some(echoed)) => echoed == Some(asked),
            (Some(None), Some(echoed)) => echoed.is_some(),
            _ => false,
        };
        let others = |spec: &SpecConfig| (spec.dflash.is_some(), spec.dspark.is_some());
        asked.mode == echo.mode && others(asked) == others(echo) && depth_is_kept
    });
    let text = |spec: &SpecConfig| serde_json::to_string(spec).unwrap_or_else(|error| error.to_string());
    match honoured {
        true => Ok(()),
        false => Err(SessionError::SpecEchoDivergence {
            asked: text(asked),
            echoed: echoed.map_or_else(|| "nothing it names".into(), text),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_honoured_only_with_the_mode_the_blocks_and_the_depth() {
        let (serial, two, open) = (SpecConfig::serial(), SpecConfig::mtp(Some(2)), SpecConfig::mtp(None));
        let ok = |asked: &SpecConfig, echo: Option<&SpecConfig>| check_echo(asked, echo).is_ok();
        assert!(ok(&serial, Some(&serial)) && ok(&two, Some(&two)) && ok(&open, Some(&two)));
        assert!(!ok(&two, Some(&SpecConfig::mtp(Some(3)))) && !ok(&two, Some(&serial)) && !ok(&serial, Some(&two)));
        assert!(!ok(&open, Some(&open)) && !ok(&two, None));
        assert!(!ok(&two, Some(&SpecConfig { mtp: None, ..two.clone() })));
    }

    #[test]
    fn a_run_is_refused_at_the_first_sum_that_does_not_hold() {
        let good = FreeRun {
            tokens: vec![1; 7],
            acceptance_lengths: vec![3, 1, 3],
            drafted_total: 6,
            accepted_total: 4,
            committed_total: 7,
            verify_replay_disagreements: Some(2),
        };
        assert!(good.check(7, 4).is_ok());
        let refused = |change: fn(&mut FreeRun), work, text: &str| {
            let mut run = good.clone();
            change(&mut run);
            let error = run.check(7, work).unwrap_err();
            assert!(error.name() == "FreeRunConsistency" && error.to_string().contains(text), "{error}");
        };
        refused(|run| run.tokens.truncate(6), 4, "tokens");
        refused(|run| run.committed_total = 8, 4, "committed_total");
        refused(|run| run.accepted_total = 7, 4, "accepted");
        refused(|run| run.acceptance_lengths[0] = 2, 4, "acceptance_lengths");
        refused(|_| (), 3, "completed_work");
        refused(|run| run.verify_replay_disagreements = Some(3), 4, "disagreements");
    }
}
