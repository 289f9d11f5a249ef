//! The seeds of the fuzz target `bench_documents`: a search that starts from documents that nothing reads finds nothing.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

use std::path::Path;

use bench_core::contract::Contract;
use bench_core::declaration::Declaration;
use bench_core::golden::{Demands, Golden, ModelShape};
use bench_core::manifest::Manifest;
use bench_core::tape::Tape;

fn seed(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bench-corpus").join(name)).unwrap()
}

#[test]
fn each_whole_seed_is_read_and_each_defective_one_is_refused_for_its_defect() {
    // Those of the target.
    let shape = ModelShape { model_type: "m".into(), vocab_size: 100, layers: 2, seed_tokens: 3 };
    let demands = Demands { expected_tokens: 2, decode_tokens: 2, benchmark: false, ..Demands::official(&shape) };
    let golden = |name: &str| Golden::load(&seed(name), &demands).map_err(|error| format!("{error:?}"));
    assert_eq!(golden("golden.json").unwrap().case_count(), 4);
    assert!(golden("golden-compact.json").unwrap().benchmark().is_some());
    for (name, want) in [
        ("golden-repeated-key.json", "duplicate field `version`"),
        ("golden-array-for-object.json", "expected an object"),
        ("golden-float-token.json", "invalid type: floating point `4.0`"),
        ("golden-negative-zero.json", "invalid type: floating point `-0.0`"),
    ] {
        let refused = golden(name).unwrap_err();
        assert!(refused.contains(want), "{name}: {refused}");
    }
    assert_eq!(Tape::load(&seed("tape.json"), &shape).unwrap().decode_tokens, [5, 6]);

    let declaration = |name: &str| Declaration::parse("F", &seed(name), &[1, 2, 3]).map_err(|error| error.to_string());
    assert_eq!(declaration("declaration.json").unwrap().to_string(), "mtp3");
    assert!(declaration("declaration-3.0.json").unwrap_err().contains("must be an integer"));

    let fixture = |name: &str| Contract::parse(&seed(name)).map_err(|error| error.to_string());
    let contract = fixture("fixture.json").unwrap();
    assert_eq!((contract.depth(1).unwrap().draft_tokens, contract.shape().unwrap()), (2, &shape));
    assert!(fixture("fixture-partial-group.json").unwrap_err().contains("`seed_tokens` is absent"));

    let manifest = |name: &str| Manifest::parse(&seed(name)).map_err(|error| error.to_string());
    assert_eq!(manifest("manifest.json").unwrap().editable.len(), 4);
    let refused = manifest("manifest-paths.json").unwrap_err();
    for want in ["one inside the other", "`.` or `..` segment", "begins with `:`"] {
        assert!(refused.contains(want), "{want}: {refused}");
    }
}
