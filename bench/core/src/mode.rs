//! Ways to run a benchmark (benchd.md 2.1): what each times, demands of its golden and checks of its engine.

use crate::contract::Window;
use crate::correctness::Scope;

/// Which run this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The default: fast, never scored.
    LocalIterate,
    /// The longer one, before a submission.
    LocalSubmit,
    /// The scored one.
    Official,
}

impl Mode {
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::LocalIterate, Self::LocalSubmit, Self::Official];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::LocalIterate => "local-iterate",
            Self::LocalSubmit => "local-submit",
            Self::Official => "official",
        }
    }

    /// As it is sealed, under `runtime`.
    pub fn runtime(self) -> &'static str {
        match self {
            Self::LocalIterate => "rust-local-iterate",
            Self::LocalSubmit => "rust-local-submit",
            Self::Official => "rust",
        }
    }

    /// Timed steps.
    pub fn decode_steps(self, window: &Window) -> u32 {
        match self {
            Self::LocalIterate | Self::Official => window.decode_steps,
            Self::LocalSubmit => window.local_submit_decode_steps,
        }
    }

    /// Least `expected_tokens` of a case. Local runs may be timed against a case, whose first token follows the prompt.
    pub fn expected_tokens(self, window: &Window) -> usize {
        match self {
            Self::LocalIterate | Self::LocalSubmit => self.decode_steps(window) as usize + 1,
            Self::Official => window.correctness_steps as usize,
        }
    }

    /// How much of the golden the engine is checked by; `strict` is the flag of the local modes.
    pub fn scope(self, strict: bool) -> Scope {
        match self {
            Self::Official => Scope::Full,
            Self::LocalIterate | Self::LocalSubmit if strict => Scope::Full,
            Self::LocalIterate | Self::LocalSubmit => Scope::Cases,
        }
    }

    /// Whether the cool gate is on when no flag says so.
    pub fn cool_gate(self) -> bool {
        self != Self::LocalIterate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_are_those_of_the_specifications_table() {
        let window = Window {
            correctness_steps: 64,
            decode_steps: 128,
            local_submit_decode_steps: 1023,
            prefill_warmup_runs: 0,
            prefill_timed_runs: 1,
        };
        let rows = Mode::ALL.map(|mode| {
            let (steps, expected) = (mode.decode_steps(&window), mode.expected_tokens(&window));
            (mode.name(), steps, expected, mode.scope(false), mode.scope(true), mode.cool_gate(), mode.runtime())
        });
        let (cases, full) = (Scope::Cases, Scope::Full);
        let want = [
            ("local-iterate", 128, 129, cases, full, false, "rust-local-iterate"),
            ("local-submit", 1023, 1024, cases, full, true, "rust-local-submit"),
            ("official", 128, 64, full, full, true, "rust"),
        ];
        assert_eq!(rows, want);
    }
}
