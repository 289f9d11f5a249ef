//! A prompt that no engine has seen: what is only fast on the scored prompt is slower here (benchd.md 6, house addition b).

use super::{Leg, LegError, LegPhase, LegReport, at};

/// Tokens behind it.
pub const FRESH_STEPS: usize = 32;

/// What was measured on it. Nobody but a replay can say whether its tokens are right.
#[derive(Debug, Clone, PartialEq)]
pub struct FreshProbe {
    /// The golden's seed in an order of our own random numbers.
    pub prompt: Vec<i64>,
    /// Seed token first.
    pub stream: Vec<i64>,
    /// Of its prefill phase.
    pub prefill_seconds_per_token: f64,
    /// Of its run.
    pub decode_seconds_per_round: f64,
}

impl Leg<'_, '_> {
    /// Runs one, at the leg's spec, and holds it to the scored leg.
    pub(super) fn fresh(&mut self, scored: &LegReport) -> Result<FreshProbe, LegError> {
        let phase = LegPhase::Fresh;
        let prompt = shuffled(&self.plan.oracle.seed_tokens)?;
        let mut session = self.connect(phase)?;
        let prefill = at(phase, session.prefill(&prompt))?;
        self.close(phase, &mut session)?;
        let (seed_token, _, run, windows) = self.free_run(phase, &mut session, &prompt, FRESH_STEPS)?;
        at(phase, session.finish())?;
        if seed_token != prefill.value {
            return Err(LegError::FreshInconsistent);
        }
        let probe = FreshProbe {
            prefill_seconds_per_token: prefill.elapsed().as_secs_f64() / prompt.len() as f64,
            decode_seconds_per_round: windows.run_seconds / run.rounds() as f64,
            stream: [&[seed_token], &run.tokens[..]].concat(),
            prompt,
        };
        let most = self.plan.limits.fresh_prompt_max_ratio;
        let axes = [
            ("token of the prefill", probe.prefill_seconds_per_token, scored.prefill_seconds_per_token()),
            ("round of the decode", probe.decode_seconds_per_round, scored.decode_seconds_per_round()),
        ];
        for (unit, fresh, scored) in axes {
            if fresh.is_nan() || fresh > most * scored {
                return Err(LegError::FreshSlower { unit, fresh, scored, most });
            }
        }
        Ok(probe)
    }
}

/// Every order is as likely as any other, but for the bias of a remainder of 64 bits.
fn shuffled(tokens: &[i64]) -> Result<Vec<i64>, LegError> {
    let mut order = tokens.to_vec();
    for at in (1..order.len()).rev() {
        let random = getrandom::u64().map_err(|error| LegError::Random(error.to_string()))?;
        order.swap(at, (random % (at as u64 + 1)) as usize);
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_prompt_has_the_tokens_of_the_seed_in_another_order() {
        let seed: Vec<i64> = (0..1024).collect();
        let (first, second) = (shuffled(&seed).unwrap(), shuffled(&seed).unwrap());
        assert!(first != seed && first != second);
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, seed);
    }
}
