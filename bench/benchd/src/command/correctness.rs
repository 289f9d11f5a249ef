//! `correctness`: the full set of a golden, no score (benchd.md 2 and 11).

use bench_core::correctness::{Conformance, run_conformance};
use bench_core::engine::Engine as _;
use bench_core::golden::{Demands, Golden};
use bench_core::mode::Mode;
use serde::Serialize;

use crate::args::CorrectnessArgs;
use crate::failure::Failure;
use crate::{documents, engine, output, signals};

/// What is printed, whether it passed or not.
#[derive(Serialize)]
struct Verdict {
    passed: bool,
    case_count: usize,
    first_failing_case: Option<String>,
    first_failing_step: Option<usize>,
    error: Option<String>,
}

impl Verdict {
    fn of(found: &Conformance) -> Self {
        let failure = found.failure.as_ref();
        Self {
            passed: found.passed(),
            case_count: found.case_count,
            first_failing_case: failure.map(|failure| failure.case.clone()),
            first_failing_step: failure.map(|failure| failure.step),
            error: failure.map(|failure| failure.kind.to_string()),
        }
    }
}

pub(crate) fn run(args: &CorrectnessArgs) -> Result<(), Failure> {
    let contract = args.track.contract()?;
    let demands = contract.demands(Mode::Official).map_err(Failure::Track)?;
    let (window, vocab_size) = (contract.window().map_err(Failure::Track)?, demands.shape.vocab_size);
    let demands = Demands { benchmark: false, pin: args.pin.pin(), ..demands };
    let golden = Golden::load(&documents::read(&args.golden)?, &demands);
    let golden = golden.map_err(|source| Failure::Golden { path: args.golden.clone(), source })?;
    let launch = args.engine.launch(signals::listen()?)?;

    let steps = window.correctness_steps as usize;
    let found = engine::in_fresh_worker(&launch, "correctness", |session| {
        let found = run_conformance(session, &golden, steps, Mode::Official.scope(true), vocab_size);
        let found = found.map_err(|error| match error {
            bench_core::correctness::ConformanceError::Engine(error) => Failure::session("correctness")(error),
            other => Failure::Correctness { verdict: other.to_string() },
        })?;
        session.next_phase().map_err(Failure::session("correctness"))?;
        Ok(found)
    });
    let found = match found {
        Ok(found) => found,
        Err(failure) => {
            let case_count = golden.case_count();
            output::json(&Verdict {
                passed: false,
                case_count,
                first_failing_case: None,
                first_failing_step: None,
                error: Some(failure.line()),
            })?;
            return Err(failure);
        }
    };
    output::json(&Verdict::of(&found))?;
    match &found.failure {
        None => {
            let (checked, tolerated) = (found.checked_steps, found.tolerated);
            output::say(&format!("passed: {checked} steps, {tolerated} of them other tokens within the budget"));
            Ok(())
        }
        Some(failure) => Err(Failure::Correctness { verdict: failure.to_string() }),
    }
}
