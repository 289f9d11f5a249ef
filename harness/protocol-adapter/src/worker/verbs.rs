//! What each verb asks of the engine and says about it (engine-protocol-v1.md 6, the table).

use bench_protocol::{ExpertStats, Response, TOP_LOGITS, TopLogit, Verb};

use crate::Error;
use crate::worker::backend::{Backend, Depth, FreeRun, TokenId};
use crate::worker::fields::{Asked, AskedSpec};
use crate::worker::phase::{Effect, Phase, PhaseKind, effect};
use crate::worker::serve::Worker;

impl<B: Backend> Worker<B> {
    /// Carries out a request whose fields are in order. Errors leave the phase to be discarded by the caller.
    pub(super) fn carry_out(&mut self, verb: Verb, asked: Asked, response: Response) -> Result<Response, Error> {
        let depth = self.enter(verb, &asked)?;
        Ok(match asked {
            Asked::Prefill { prompt } => {
                Response { token: Some(self.backend.prefill(&engine_ids(&prompt)?)?.into()), ..response }
            }
            Asked::DecodeBegin { seed } | Asked::FreeDecodeBegin { seed, .. } => {
                let token = self.backend.begin(&engine_ids(&seed)?, depth)?;
                self.completed(1);
                Response { seed_token: Some(token.into()), effective_spec: Some(depth.echo()), ..response }
            }
            Asked::DecodeStep { token } => {
                let token = self.backend.step(engine_id(token)?)?;
                self.completed(1);
                Response { token: Some(token.into()), ..response }
            }
            Asked::Correctness { prompt, steps } => {
                let tokens = self.backend.correctness(&engine_ids(&prompt)?, steps)?;
                Response { tokens: Some(wire_ids(&tokens)), peak_ram_gb: Some(self.backend.peak_ram_gb()), ..response }
            }
            Asked::CorrectnessBegin { prompt } => {
                let token = self.backend.prefill(&engine_ids(&prompt)?)?;
                self.with_logits(token, response)?
            }
            Asked::CorrectnessStep { token } => {
                let token = self.backend.step(engine_id(token)?)?;
                self.with_logits(token, response)?
            }
            Asked::FreeDecodeRun { count } => {
                let run = self.backend.free_run(count)?;
                check(&run, count)?;
                self.completed(run.acceptance_lengths.len() as u64);
                Response {
                    tokens: Some(wire_ids(&run.tokens)),
                    acceptance_lengths: Some(run.acceptance_lengths),
                    drafted_total: Some(run.drafted),
                    accepted_total: Some(run.accepted),
                    committed_total: Some(run.committed),
                    verify_replay_disagreements: run.disagreements,
                    ..response
                }
            }
            Asked::PhaseDiagnostics => {
                let response = Response {
                    expert_stats: Some(ExpertStats::default()),
                    peak_ram_gb: Some(self.backend.peak_ram_gb()),
                    completed_work: self.phase.as_ref().map(|phase| phase.completed_work),
                    ..response
                };
                self.discard();
                response
            }
        })
    }

    /// Holds the verb against the phase and opens one if it does. Returns how the phase is to decode.
    fn enter(&mut self, verb: Verb, asked: &Asked) -> Result<Depth, Error> {
        let open = self.phase.as_ref().map(|phase| phase.kind);
        let kind = verb.name();
        match (effect(verb), open) {
            (Effect::Opens(arrived), Some(open)) => Err(Error::DoubleOpen { arrived, open }),
            (Effect::Opens(arrived), None) => self.open(arrived, asked),
            (Effect::Closes, None) => Err(Error::NothingToClose),
            (Effect::Needs(_), None) => Err(Error::NoOpenPhase { kind }),
            (Effect::Needs(needed), Some(open)) if open != needed => {
                Err(Error::NoMatchingOpener { kind, open, needed })
            }
            (Effect::Needs(_) | Effect::Closes, Some(_)) => Ok(Depth::Serial),
        }
    }

    fn open(&mut self, kind: PhaseKind, asked: &Asked) -> Result<Depth, Error> {
        let depth = match asked {
            Asked::FreeDecodeBegin { spec: AskedSpec::Mtp { depth }, .. } => match self.backend.why_serial_only() {
                Some(why) => return Err(Error::NotRunnable { why }),
                None => Depth::Mtp(self.backend.mtp_depth(*depth)?),
            },
            _ => Depth::Serial,
        };
        // Before the engine is up: if it does not come up, there is still something to discard.
        self.phase = Some(Phase { kind, completed_work: 0 });
        match self.backend.open()? {
            0 => Ok(depth),
            bytes => Err(Error::NotDrained { bytes }),
        }
    }

    fn with_logits(&mut self, token: TokenId, response: Response) -> Result<Response, Error> {
        let top = self.backend.top_logits(TOP_LOGITS)?;
        if top.len() != TOP_LOGITS {
            return Err(Error::TopLogits { found: top.len() });
        }
        self.completed(1);
        let widen = |(token, logit): (TokenId, f32)| TopLogit { token: token.into(), logit: logit.into() };
        Ok(Response {
            token: Some(token.into()),
            top_logits: Some(top.into_iter().map(widen).collect()),
            expert_stats: Some(ExpertStats::default()),
            peak_ram_gb: Some(self.backend.peak_ram_gb()),
            ..response
        })
    }

    fn completed(&mut self, work: u64) {
        if let Some(phase) = &mut self.phase {
            phase.completed_work += work;
        }
    }
}

fn engine_id(token: i64) -> Result<TokenId, Error> {
    TokenId::try_from(token).map_err(|_| Error::TokenTooWide { token })
}

fn engine_ids(tokens: &[i64]) -> Result<Vec<TokenId>, Error> {
    tokens.iter().map(|&token| engine_id(token)).collect()
}

fn wire_ids(tokens: &[TokenId]) -> Vec<i64> {
    tokens.iter().map(|&token| token.into()).collect()
}

/// Whether a run adds up (engine-protocol-v1.md 6, rule 10). A round that committed nothing is no error.
fn check(run: &FreeRun, count: u32) -> Result<(), Error> {
    let wanted = u64::from(count);
    let lengths: u64 = run.acceptance_lengths.iter().map(|&length| u64::from(length)).sum();
    let wrong = |text: String| Err(Error::RunInconsistent(text));
    if run.committed != wanted {
        return wrong(format!("committed_total is {}, count {wanted}", run.committed));
    }
    if run.tokens.len() as u64 != wanted {
        return wrong(format!("it has {} tokens, count {wanted}", run.tokens.len()));
    }
    if lengths != wanted {
        return wrong(format!("acceptance_lengths add up to {lengths}, count {wanted}"));
    }
    let Some(rejected) = run.drafted.checked_sub(run.accepted) else {
        return wrong(format!("accepted_total {} is above drafted_total {}", run.accepted, run.drafted));
    };
    match run.disagreements {
        Some(found) if found > rejected => {
            wrong(format!("verify_replay_disagreements {found} is above the {rejected} drafts that were not accepted"))
        }
        _ => Ok(()),
    }
}
