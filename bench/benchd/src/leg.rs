//! One timed leg of a local run: warm-up, prefill, decode, each in a fresh worker (benchd.md 6). All clocks are ours.

use bench_core::contract::{DecodeFigure, Window};
use bench_core::timed::TimedOracle;
use bench_protocol::{Hello, SpecConfig};
use bench_runner::{FreeRun, Launch};

use crate::engine::in_fresh_worker;
use crate::failure::Failure;

/// What a leg took and what came out of it.
pub(crate) struct Leg {
    pub(crate) hello: Hello,
    /// How it was held.
    pub(crate) sandbox: String,
    /// Mean of the timed prefills.
    pub(crate) prefill_seconds: f64,
    pub(crate) prefill_tokens: usize,
    pub(crate) prefill_token: i64,
    /// `free_decode_begin`.
    pub(crate) seed_seconds: f64,
    /// `free_decode_run`.
    pub(crate) run_seconds: f64,
    pub(crate) effective_spec: Option<SpecConfig>,
    pub(crate) run: FreeRun,
    /// Seed token first.
    pub(crate) stream: Vec<i64>,
    pub(crate) peak_ram_gb: f64,
}

impl Leg {
    /// Seconds a prompt token takes.
    pub(crate) fn prefill_seconds_per_token(&self) -> f64 {
        self.prefill_seconds / self.prefill_tokens as f64
    }

    /// Seconds a token takes.
    pub(crate) fn decode_seconds_per_token(&self, figure: DecodeFigure) -> f64 {
        let seconds = match figure {
            DecodeFigure::DecodeWindow => self.run_seconds,
            DecodeFigure::WholeWindow => self.seed_seconds + self.run_seconds,
        };
        seconds / self.run.tokens.len() as f64
    }

    /// Of the drafts; `None` when there were none.
    pub(crate) fn acceptance_rate(&self) -> Option<f64> {
        let drafted = self.run.drafted_total;
        (drafted > 0).then(|| self.run.accepted_total as f64 / drafted as f64)
    }

    /// Tokens of a round.
    pub(crate) fn mean_draft_len(&self) -> f64 {
        self.run.tokens.len() as f64 / self.run.rounds().max(1) as f64
    }
}

/// Runs a leg. Tokens are collected, not judged.
pub(crate) fn run(
    launch: &Launch,
    oracle: &TimedOracle,
    spec: Option<&SpecConfig>,
    window: &Window,
) -> Result<Leg, Failure> {
    let steps = u32::try_from(oracle.steps()).unwrap_or(u32::MAX);
    // Unmeasured: what only a first time costs.
    in_fresh_worker(launch, "warm-up", |session| {
        let refused = || Failure::session("warm-up");
        session.expect_free_run(spec).map_err(refused())?;
        session.prefill(&oracle.prefill_prompt).map_err(refused())?;
        session.close_phase().map_err(refused())?;
        session.record_tape(&oracle.seed_tokens, steps, spec).map_err(refused())
    })?;

    let (mut prefill_seconds, mut prefill_token) = (0.0, oracle.prefill_token);
    for _ in 0..window.prefill_timed_runs {
        let reply = in_fresh_worker(launch, "timed prefill", |session| {
            let refused = || Failure::session("timed prefill");
            let reply = session.prefill(&oracle.prefill_prompt).map_err(refused())?;
            session.close_phase().map_err(refused())?;
            Ok(reply)
        })?;
        prefill_seconds += reply.elapsed().as_secs_f64() / f64::from(window.prefill_timed_runs);
        prefill_token = reply.value;
    }

    in_fresh_worker(launch, "timed decode", |session| {
        let refused = || Failure::session("timed decode");
        let hello = session.hello().clone();
        session.expect_free_run(spec).map_err(refused())?;
        let seed = session.free_decode_begin(&oracle.seed_tokens, spec).map_err(refused())?;
        let run = session.free_decode_run(steps).map_err(refused())?;
        let report = session.close_phase().map_err(refused())?;
        // One clock read closes the seed's window and opens the run's (engine-protocol-v1.md 8).
        let run_seconds = run.received.saturating_duration_since(seed.received).as_secs_f64();
        Ok(Leg {
            hello,
            sandbox: session.sandbox().to_string(),
            prefill_seconds,
            prefill_tokens: oracle.prefill_prompt.len(),
            prefill_token,
            seed_seconds: seed.elapsed().as_secs_f64(),
            run_seconds,
            effective_spec: seed.value.effective_spec,
            stream: [&[seed.value.seed_token][..], &run.value.tokens].concat(),
            run: run.value,
            peak_ram_gb: report.peak_ram_gb,
        })
    })
}
