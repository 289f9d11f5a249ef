//! `validate-golden` (benchd.md 2.2).

use bench_core::contract::Contract;
use bench_core::golden::{Demands, Golden};
use bench_core::mode::Mode;
use serde::Serialize;

use crate::args::GoldenArgs;
use crate::documents;
use crate::failure::Failure;
use crate::output;

/// What a golden that passed is.
#[derive(Serialize)]
struct Valid<'a> {
    valid: bool,
    track: &'a str,
    model_type: &'a str,
    cases: usize,
    case_count: usize,
    timed_block: bool,
    sha256: String,
    bytes: u64,
}

pub(crate) fn validate(args: &GoldenArgs) -> Result<(), Failure> {
    let contract = args.track.contract()?;
    let golden = load(args, &contract)?;
    let pin = golden.pin();
    output::json(&Valid {
        valid: true,
        track: contract.track_id.as_str(),
        model_type: golden.model_type(),
        cases: golden.cases().len(),
        case_count: golden.case_count(),
        timed_block: golden.benchmark().is_some(),
        sha256: pin.sha256.to_string(),
        bytes: pin.bytes,
    })
}

fn load(args: &GoldenArgs, contract: &Contract) -> Result<Golden, Failure> {
    let demands = contract.demands(Mode::Official).map_err(Failure::Track)?;
    let demands = Demands {
        benchmark: !args.gates_only,
        pin: args.pin.pin(),
        // Whose model it is, is asked by whoever passes the contract.
        provenance: demands.provenance.filter(|_| args.track.contract.is_some()),
        ..demands
    };
    let bytes = documents::read(&args.golden)?;
    Golden::load(&bytes, &demands).map_err(|source| Failure::Golden { path: args.golden.clone(), source })
}
