use bench_core::engine::{Answer, Engine};

use super::{SessionError, WorkerSession};

/// Correctness, recording and replay run on a session (benchd.md 4.3, 10 and 11).
impl Engine for WorkerSession {
    type Error = SessionError;

    fn next_phase(&mut self) -> Result<(), SessionError> {
        if self.phase_is_open() {
            self.close_phase()?;
        }
        Ok(())
    }

    fn begin(&mut self, prompt: &[i64]) -> Result<Answer, SessionError> {
        Ok(self.correctness_begin(prompt)?.value)
    }

    fn step(&mut self, token: i64) -> Result<Answer, SessionError> {
        Ok(self.correctness_step(token)?.value)
    }

    fn free_run(&mut self, prompt: &[i64], steps: usize) -> Result<Vec<i64>, SessionError> {
        Ok(self.correctness(prompt, steps)?.value)
    }
}
