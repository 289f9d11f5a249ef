//! Any bytes as each closed document of the benchmark: what is read obeys its rules and comes back from its own bytes, what
//! is not is one line.
#![no_main]

use std::path::{Component, Path};

use bench_core::contract::Contract;
use bench_core::declaration::Declaration;
use bench_core::golden::author::Recording;
use bench_core::golden::{Capture, Demands, Golden, ModelShape, negative_control, per_depth_oracle};
use bench_core::manifest::{Manifest, ManifestError};
use bench_core::mode::Mode;
use bench_core::tape::{self, Tape};
use bench_core::timed::TimedOracle;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Small demands, so that small inputs are goldens.
    let shape = ModelShape { model_type: "m".into(), vocab_size: 100, layers: 2, seed_tokens: 3 };
    let demands = Demands { expected_tokens: 2, decode_tokens: 2, benchmark: false, ..Demands::official(&shape) };
    golden(bytes, &demands);
    let _ = tape::kind(bytes).map_err(one_line);
    match Tape::load(bytes, &shape) {
        Ok(tape) => {
            assert_eq!(TimedOracle::of_tape(&tape, tape.decode_tokens.len()).unwrap().stream[0], tape.seed_token)
        }
        Err(error) => one_line(error),
    }
    contract(bytes);
    manifest(bytes);
    match Declaration::parse("F", bytes, &[1, 2, 3]) {
        Ok(declared) => assert!(declared.draft_len() <= 3),
        Err(error) => one_line(error),
    }
});

fn one_line(error: impl std::error::Error) {
    assert!(!error.to_string().contains('\n'), "{error}");
}

fn golden(bytes: &[u8], demands: &Demands<'_>) {
    let golden = match Golden::load(bytes, demands) {
        Ok(golden) => golden,
        Err(error) => return one_line(error),
    };
    let pinned = Demands { pin: Some(golden.pin()), ..demands.clone() };
    assert_eq!(Golden::load(bytes, &pinned).unwrap(), golden);

    // What it holds is authored again, and comes back; gates are not authored.
    let recording = Recording {
        provenance: golden.provenance().cloned(),
        cases: golden.cases().to_vec(),
        benchmark: golden.benchmark().cloned(),
    };
    let (_, again) = recording.author(demands).unwrap();
    assert_eq!((again.cases(), again.benchmark()), (golden.cases(), golden.benchmark()));

    let Some(block) = golden.benchmark() else { return };
    let capture = Capture {
        seed_token: block.expected_decode_seed_token,
        tokens: block.expected_decode_tokens.clone(),
        drafted_total: 0,
        accepted_total: 0,
    };
    assert_eq!(per_depth_oracle(bytes, &capture, demands).unwrap(), (bytes.to_vec(), golden.clone()));
    let wrong = negative_control(bytes, demands).unwrap();
    assert_eq!(wrong.len(), bytes.len());
    assert!(Golden::load(&wrong, &pinned).is_err());
}

fn contract(bytes: &[u8]) {
    let contract = match Contract::parse(bytes) {
        Ok(contract) => contract,
        Err(error) => return one_line(error),
    };
    assert_eq!(contract.pin.bytes, bytes.len() as u64);
    for depth in 0..8 {
        match contract.depth(depth) {
            Ok(found) => assert_eq!(found.draft_tokens, depth + 1),
            Err(error) => one_line(error),
        }
    }
    for mode in Mode::ALL {
        let _ = contract.demands(mode).map_err(one_line);
    }
    let _ = contract.regime().map_err(one_line);
    let _ = contract.bands().map_err(one_line);
}

fn manifest(bytes: &[u8]) {
    let manifest = match Manifest::parse(bytes) {
        Ok(manifest) => manifest,
        Err(ManifestError::Invalid { problems }) => {
            assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.contains('\n')), "{problems:?}");
            return;
        }
        Err(error) => return one_line(error),
    };
    for path in manifest.editable.iter().chain([&manifest.contract_path, &manifest.score_path]) {
        assert!(Path::new(path.as_str()).components().all(|part| matches!(part, Component::Normal(_))));
    }
    assert!(manifest.optional.iter().all(|path| manifest.editable.contains(path)));
}
