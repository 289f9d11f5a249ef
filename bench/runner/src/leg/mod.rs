//! A timed leg: warm-up, prefill phase, decode phase, and a prompt that nobody has seen (benchd.md 6).
//!
//! Every phase has a worker of its own, reaped before the next, on one resident. The clock is ours.

mod certify;
mod error;
mod fresh;

use std::time::Instant;

use bench_core::contract::{DecodeFigure, Limits};
use bench_core::timed::{TimedOracle, TokenMismatch};
use bench_protocol::{Hello, ResidentIdentity, SpecConfig};

use crate::launch::Launch;
use crate::machine::{CoolError, CoolState};
use crate::sandbox::SandboxReport;
use crate::session::{FreeRun, SessionError, WorkerSession};

pub use self::certify::{CrossCheck, PrefillFigure, Windows, certify};
pub use self::error::LegError;
pub use self::fresh::{FRESH_STEPS, FreshProbe};

/// Where a leg stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegPhase {
    /// Not measured; tokens are not looked at.
    WarmUp,
    /// The timed prefill.
    Prefill,
    /// The timed free run.
    Decode,
    /// The fresh prompt.
    Fresh,
}

impl LegPhase {
    /// For people, and for the cool gate's records.
    pub fn name(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Fresh => "fresh-prompt",
        }
    }
}

/// What a wrong token means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// The end of the leg: a control leg is its oracle's stream.
    Exact,
    /// Nothing yet: the stream is judged by [`bench_core::fidelity::judge_timed`].
    Collect,
}

/// What is to be timed.
#[derive(Debug, Clone)]
pub struct LegPlan<'a> {
    /// Workers; with the socket of the leg's resident, and a deadline for runs of the oracle's steps.
    pub launch: &'a Launch,
    /// Prompts and tokens.
    pub oracle: &'a TimedOracle,
    /// How to decode; a control leg says nothing.
    pub spec: Option<SpecConfig>,
    /// What a wrong token means.
    pub verify: Verify,
    /// Whether an unmeasured pass comes first.
    pub warm_up: bool,
    /// Timed prefills, at least one is run.
    pub prefill_timed_runs: u32,
    /// Of the track.
    pub limits: &'a Limits,
    /// The resident that was booted: a worker that names one must name this.
    pub resident: Option<ResidentIdentity>,
    /// Whether a fresh prompt is run: candidates.
    pub fresh_probe: bool,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct LegReport {
    /// Of the decode phase's worker.
    pub hello: Hello,
    /// What held the workers.
    pub sandbox: SandboxReport,
    /// The prefill phase.
    pub prefill: PrefillFigure,
    /// The decode phase.
    pub windows: Windows,
    /// What followed the prefill phase's prompt.
    pub prefill_token: i64,
    /// Seed token first.
    pub stream: Vec<i64>,
    /// Where the stream leaves the oracle, if it does.
    pub mismatch: Option<TokenMismatch>,
    /// The engine's echo; the request is not evidence.
    pub effective_spec: Option<SpecConfig>,
    /// The timed run.
    pub run: FreeRun,
    /// Of the windows.
    pub certification: CrossCheck,
    /// The prompt nobody has seen.
    pub fresh: Option<FreshProbe>,
    /// Gates that were passed.
    pub cool: Vec<(LegPhase, CoolState)>,
    /// The process with the weights, as the workers name it.
    pub resident: Option<ResidentIdentity>,
    /// The most that a phase reported; never scored.
    pub peak_ram_gb: f64,
    /// All of the leg.
    pub wall_seconds: f64,
}

impl LegReport {
    /// The prefill phase's figure.
    pub fn prefill_seconds_per_token(&self) -> f64 {
        self.prefill.seconds_per_token()
    }

    /// The decode phase's figure, of the window that the track scores (engine-protocol-v1.md 8).
    pub fn decode_seconds_per_token(&self, figure: DecodeFigure) -> f64 {
        let seconds = match figure {
            DecodeFigure::DecodeWindow => self.windows.run_seconds,
            DecodeFigure::WholeWindow => self.windows.seed_seconds + self.windows.run_seconds,
        };
        seconds / self.windows.steps as f64
    }

    /// Drafts that became tokens; `None` when nothing was drafted.
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.run.drafted_total > 0).then(|| self.run.accepted_total as f64 / self.run.drafted_total as f64)
    }

    /// Tokens of a round in the mean.
    pub fn effective_mean_draft_len(&self) -> f64 {
        self.run.committed_total as f64 / self.run.rounds() as f64
    }

    /// Seconds of a round in the mean.
    pub fn decode_seconds_per_round(&self) -> f64 {
        self.windows.run_seconds / self.run.rounds() as f64
    }
}

/// Asked before the two timed phases, with the phase's worker already there.
pub type Gate<'a> = dyn FnMut(LegPhase) -> Result<CoolState, CoolError> + 'a;

/// Times a leg. Whatever it ends with, no worker is left.
pub fn run_leg(plan: &LegPlan<'_>, gate: &mut Gate<'_>) -> Result<LegReport, LegError> {
    let begun = Instant::now();
    let oracle = plan.oracle;
    let prompts = [("prefill prompt", oracle.prefill_prompt.is_empty()), ("seed", oracle.seed_tokens.is_empty())];
    if let Some((field, _)) = prompts.into_iter().chain([("stream", oracle.stream.len() < 2)]).find(|(_, none)| *none) {
        return Err(LegError::Plan { field });
    }
    let mut leg = Leg { plan, gate, cool: Vec::new(), resident: None, peak_ram_gb: 0.0 };
    if plan.warm_up {
        leg.warm_up()?;
    }
    let (prefill, prefill_token) = leg.prefill()?;
    let decode = leg.decode()?;
    let stream = [&[decode.seed_token], &decode.run.tokens[..]].concat();
    leg.judge_prefill(prefill_token, &stream)?;
    let mismatch = oracle.stream_mismatch(&stream);
    if let (Verify::Exact, Some(mismatch)) = (plan.verify, mismatch) {
        return Err(LegError::Token(mismatch));
    }
    let certification = certify(&prefill, &decode.windows, None, plan.limits)?;
    let mut report = LegReport {
        hello: decode.hello,
        sandbox: decode.sandbox,
        prefill,
        windows: decode.windows,
        prefill_token,
        stream,
        mismatch,
        effective_spec: decode.effective_spec,
        run: decode.run,
        certification,
        fresh: None,
        cool: Vec::new(),
        resident: None,
        peak_ram_gb: 0.0,
        wall_seconds: 0.0,
    };
    if plan.fresh_probe {
        report.fresh = Some(leg.fresh(&report)?);
    }
    report.cool = leg.cool;
    report.resident = leg.resident.flatten();
    report.peak_ram_gb = leg.peak_ram_gb;
    report.wall_seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

struct Leg<'a, 'g> {
    plan: &'a LegPlan<'a>,
    gate: &'a mut Gate<'g>,
    cool: Vec<(LegPhase, CoolState)>,
    /// What the first worker said.
    resident: Option<Option<ResidentIdentity>>,
    peak_ram_gb: f64,
}

struct Decode {
    hello: Hello,
    sandbox: SandboxReport,
    seed_token: i64,
    effective_spec: Option<SpecConfig>,
    run: FreeRun,
    windows: Windows,
}

/// An error of a worker, with where it happened.
fn at<T>(phase: LegPhase, result: Result<T, SessionError>) -> Result<T, LegError> {
    result.map_err(|error| LegError::Session { phase, error })
}

impl Leg<'_, '_> {
    /// A worker of its own, on the one resident of the leg.
    fn connect(&mut self, phase: LegPhase) -> Result<WorkerSession, LegError> {
        let session = at(phase, self.plan.launch.connect())?;
        let found = session.hello().resident;
        let booted = self.plan.resident.filter(|_| found.is_some());
        if *self.resident.get_or_insert(found) != found || booted.is_some_and(|booted| found != Some(booted)) {
            return Err(LegError::ResidentChanged { phase });
        }
        Ok(session)
    }

    fn close(&mut self, phase: LegPhase, session: &mut WorkerSession) -> Result<(), LegError> {
        let report = at(phase, session.close_phase())?;
        self.peak_ram_gb = self.peak_ram_gb.max(report.peak_ram_gb);
        Ok(())
    }

    fn pass_gate(&mut self, phase: LegPhase) -> Result<(), LegError> {
        let state = (self.gate)(phase).map_err(|error| LegError::Cool { phase, error })?;
        self.cool.push((phase, state));
        Ok(())
    }

    fn warm_up(&mut self) -> Result<(), LegError> {
        let (phase, plan) = (LegPhase::WarmUp, self.plan);
        let mut session = self.connect(phase)?;
        at(phase, session.prefill(&plan.oracle.prefill_prompt))?;
        self.close(phase, &mut session)?;
        self.free_run(phase, &mut session, &plan.oracle.seed_tokens, plan.oracle.steps())?;
        at(phase, session.finish())
    }

    fn prefill(&mut self) -> Result<(PrefillFigure, i64), LegError> {
        let phase = LegPhase::Prefill;
        let prompt = &self.plan.oracle.prefill_prompt;
        let mut session = self.connect(phase)?;
        self.pass_gate(phase)?;
        let (mut seconds, mut token) = (Vec::new(), None);
        for _ in 0..self.plan.prefill_timed_runs.max(1) {
            let reply = at(phase, session.prefill(prompt))?;
            seconds.push(reply.elapsed().as_secs_f64());
            self.close(phase, &mut session)?;
            if *token.get_or_insert(reply.value) != reply.value {
                return Err(LegError::Token(TokenMismatch::Prefill));
            }
        }
        at(phase, session.finish())?;
        let token = token.ok_or(LegError::Plan { field: "prefill prompt" })?;
        Ok((PrefillFigure { seconds, tokens: prompt.len() }, token))
    }

    /// A token that is not the oracle's is judged with the stream, when it is the one that the stream begins with and the
    /// prompts are one.
    fn judge_prefill(&self, token: i64, stream: &[i64]) -> Result<(), LegError> {
        let oracle = self.plan.oracle;
        let Some(mismatch) = oracle.prefill_mismatch(token) else { return Ok(()) };
        let judged = oracle.prefill_prompt == oracle.seed_tokens && stream.first() == Some(&token);
        match self.plan.verify {
            Verify::Collect if judged => Ok(()),
            _ => Err(LegError::Token(mismatch)),
        }
    }

    fn decode(&mut self) -> Result<Decode, LegError> {
        let (phase, plan) = (LegPhase::Decode, self.plan);
        let mut session = self.connect(phase)?;
        at(phase, session.expect_free_run(plan.spec.as_ref()))?;
        self.pass_gate(phase)?;
        let (seed_token, effective_spec, run, windows) =
            self.free_run(phase, &mut session, &plan.oracle.seed_tokens, plan.oracle.steps())?;
        let (hello, sandbox) = (session.hello().clone(), *session.sandbox());
        at(phase, session.finish())?;
        Ok(Decode { hello, sandbox, seed_token, effective_spec, run, windows })
    }

    /// A seed and a run behind it, with the barrier. The clock is read once between the two, so no time is in neither.
    fn free_run(
        &mut self,
        phase: LegPhase,
        session: &mut WorkerSession,
        seed: &[i64],
        steps: usize,
    ) -> Result<(i64, Option<SpecConfig>, FreeRun, Windows), LegError> {
        let count = u32::try_from(steps).map_err(|_| LegError::Plan { field: "stream" })?;
        let whole = Instant::now();
        let begun = at(phase, session.free_decode_begin(seed, self.plan.spec.as_ref()))?;
        let wrong = begun.value.seed_token != self.plan.oracle.stream.first().copied().unwrap_or_default();
        if phase == LegPhase::Decode && self.plan.verify == Verify::Exact && wrong {
            return Err(LegError::Token(TokenMismatch::Seed));
        }
        let between = Instant::now();
        let run = at(phase, session.free_decode_run(count))?;
        let whole_seconds = whole.elapsed().as_secs_f64();
        let windows = Windows {
            seed_seconds: between.saturating_duration_since(begun.sent).as_secs_f64(),
            run_seconds: run.received.saturating_duration_since(between).as_secs_f64(),
            whole_seconds,
            seed_tokens: seed.len(),
            steps,
        };
        self.close(phase, session)?;
        Ok((begun.value.seed_token, begun.value.effective_spec, run.value, windows))
    }
}
