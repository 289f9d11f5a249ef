//! The house's manifest in a tree that has all it names, and one defect at a time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

fn data(name: &str) -> Value {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/track");
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// The published manifest with the house's changes (track-contract.md 12.2).
fn house() -> Value {
    let mut manifest = data("benchmark.json");
    manifest["editablePaths"][0] = json!("engine");
    manifest["scoring"]["pairsPerCohort"] = json!(2);
    manifest["scoring"]["minPairsPerCohort"] = json!(2);
    manifest["scoring"]["decodeSpeedupFloor"] = json!(0.95);
    for (key, script) in [
        ("setupCommand", "./tools/fetch-benchd.sh && ./setup.sh"),
        ("preSubmitCommand", "./tools/measure-and-score.sh --preflight-only"),
        ("benchmarkCommand", "MLXFAST_SCORE_PATH=score.json ./tools/measure-and-score.sh"),
    ] {
        manifest[key] = json!(["bash", "-c", script]);
    }
    manifest
}

struct Files(BTreeMap<String, Node>);

impl Files {
    fn of_house() -> Self {
        let folders = [
            "engine",
            "harness",
            "mtp-head",
            ".cargo",
            ".ci",
            ".github",
            "app",
            "bench",
            "correctness_prompts",
            "fixtures",
            "models",
            "tools",
        ];
        let scripts = ["benchmark.sh", "setup.sh", "tools/fetch-benchd.sh", "tools/measure-and-score.sh"];
        let texts =
            ["mtp-head.manifest.json", "Cargo.lock", "Cargo.toml", "benchmark.json", ".github/workflows/benchmark.yml"];
        let folders = folders.map(|path| (path, Kind::Folder)).into_iter();
        let scripts = scripts.map(|path| (path, Kind::File { executable: true })).into_iter();
        let texts = texts.map(|path| (path, Kind::File { executable: false })).into_iter();
        let nodes = folders.chain(scripts).chain(texts).enumerate();
        Self(nodes.map(|(inode, (path, kind))| (path.to_owned(), Node { kind, identity: (1, inode as u64) })).collect())
    }
}

impl Tree for Files {
    fn look(&self, path: &str) -> Option<Node> {
        self.0.get(path).copied()
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut fixture =
            (path == "fixtures/qwen3_8_125b_a6b_track.json").then(|| data("qwen3_8_125b_a6b_track.json"))?;
        fixture["decode_gain_ceiling"] = json!(5.0);
        serde_json::to_vec(&fixture).ok()
    }
}

fn lint_of(manifest: &Value, tree: &Files) -> Vec<String> {
    lint(&serde_json::to_vec(manifest).unwrap(), tree)
}

#[test]
fn the_houses_manifest_is_read_and_nothing_is_wrong_with_it() {
    assert_eq!(lint_of(&house(), &Files::of_house()), [""; 0]);
    let manifest = Manifest::parse(&serde_json::to_vec(&house()).unwrap()).unwrap();
    assert_eq!(
        manifest.editable.iter().map(SurfacePath::as_str).collect::<Vec<_>>(),
        ["engine", "harness", "mtp-head", "mtp-head.manifest.json"]
    );
    assert_eq!((manifest.budget.total, manifest.budget.file, manifest.optional.len()), (19_550_883, 4_473_321, 1));
    assert_eq!((manifest.score_path.as_str(), manifest.workflow.as_str()), ("score.json", "benchmark.yml"));
}

#[test]
fn the_published_manifests_stale_scoring_is_named_line_by_line() {
    let found = lint_of(&data("benchmark.json"), &Files::of_house());
    for want in [
        "editablePaths: `ds4` does not exist",
        "preSubmitCommand: `./tools/qwen38-125b-a6b-measure-and-score.sh` is no executable file",
        "scoring.pairsPerCohort is 4, the fixture's is 2",
        "scoring.decodeSpeedupFloor is 0.9, the fixture's is 0.95",
    ] {
        assert!(found.iter().any(|problem| problem == want), "{want}: {found:#?}");
    }
}

#[test]
fn each_defect_of_the_document_is_named() {
    for (pointer, value, want) in [
        ("/schemaVersion", json!(2), "`schemaVersion` is 2; must be 1"),
        ("/direction", json!("-"), "`direction` is \"-\""),
        ("/extra", json!(1), "`extra` is no key of a manifest"),
        ("/staticReviewTrackId", json!("x-cuda-v1"), "`staticReviewTrackId` is not `trackId`"),
        ("/leaderboard/namespace", json!("x-cuda-v1"), "`leaderboard.namespace` is not `trackId`"),
        ("/editablePaths", json!([]), "editablePaths: is absent or empty"),
        ("/editablePaths", json!(["engine", 1]), "`editablePaths` is a list of 2; must be a list of texts"),
        ("/editablePaths/0", json!("../engine"), "\"../engine\" has a `.` or `..` segment"),
        ("/editablePaths/0", json!(":engine"), "begins with `:`"),
        ("/editablePaths/0", json!("harness"), "`harness` stands twice"),
        ("/editablePaths/0", json!("harness/protocol-adapter"), "lie one inside the other"),
        ("/editablePaths/0", json!("Bench/core"), "`Bench/core` reaches protected `bench`"),
        ("/editablePaths/0", json!("BENCHMARK.JSON"), "reaches protected `benchmark.json`"),
        ("/editablePaths/0", json!("nowhere"), "editablePaths: `nowhere` does not exist"),
        ("/optionalEditablePaths", json!(["docs"]), "optionalEditablePaths: `docs` is not one of editablePaths"),
        ("/editableSurfaceByteBudget/exemptPaths", json!(["docs"]), "exemptPaths: `docs` is not one of editablePaths"),
        ("/editableSurfaceByteBudget/maxFileBytes", Value::Null, "`editableSurfaceByteBudget.maxFileBytes` is null"),
        ("/editableSurfaceByteBudget/maxFileBytes", json!("1"), "`editableSurfaceByteBudget.maxFileBytes` is \"1\""),
        ("/editableSurfaceByteBudget/maxFileBytes", json!(1.5), "`editableSurfaceByteBudget.maxFileBytes` is 1.5"),
        ("/editableSurfaceByteBudget/maxFileBytes", json!(0), "`editableSurfaceByteBudget.maxFileBytes` is 0"),
        ("/editableSurfaceByteBudget/maxFileBytes", json!(19_550_884), "more than all files together may have"),
        ("/editableSurfaceByteBudget/maxFileBytes", json!(5), "maxFileBytes is 5, the enforcer's own is 4473321"),
        ("/editableSurfaceByteBudget/maxfilebytes", json!(5), "`editableSurfaceByteBudget.maxfilebytes` is no key"),
        ("/contractPath", json!("fixtures/other.json"), "`fixtures/other.json` cannot be read"),
        ("/contractPath", json!("/etc/passwd"), "is absolute"),
        ("/setupCommand", json!([]), "`setupCommand` is a list of 0"),
        ("/setupCommand", json!(["sh", "-c", "./setup.sh"]), "setupCommand: is not [\"bash\", \"-c\", SCRIPT]"),
        ("/setupCommand", json!(["bash", "-c", "echo"]), "setupCommand: runs no `./` script"),
        ("/setupCommand", json!(["bash", "-c", "./Cargo.toml"]), "`./Cargo.toml` is no executable file"),
        ("/setupCommand", json!(["bash", "-c", "./tools/../setup.sh"]), "is no executable file"),
        ("/benchmarkCommand", json!(["bash", "-c", "./benchmark.sh"]), "does not set MLXFAST_SCORE_PATH=score.json"),
        ("/runner/workflow", json!("other.yml"), "`.github/workflows/other.yml` is no file"),
        ("/scoring/minPairsPerCohort", json!(1), "`scoring.minPairsPerCohort` is 1"),
        ("/scoring/decodeSpeedupCeiling", json!(6.0), "scoring.decodeSpeedupCeiling is 6, the fixture's is 5"),
        ("/scoring/prefillSpeedupFloor", json!(0.5), "scoring.prefillSpeedupFloor is 0.5"),
        ("/scoring/scoredExponents/decodeGainExponent", json!(1), "decodeGainExponent is 1, the fixture's is 0.75"),
    ] {
        let mut manifest = house();
        let (folder, key) = pointer.rsplit_once('/').unwrap();
        match manifest.pointer_mut(folder).unwrap() {
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
            object => object[key] = value,
        }
        let found = lint_of(&manifest, &Files::of_house());
        assert!(found.iter().any(|problem| problem.contains(want)), "{pointer}: {want}: {found:#?}");
    }
    for key in ["trackId", "editableSurfaceByteBudget", "contractPath", "benchmarkCommand", "scoring", "leaderboard"] {
        let mut manifest = house();
        manifest.as_object_mut().unwrap().remove(key);
        let found = lint_of(&manifest, &Files::of_house());
        assert!(found.iter().any(|problem| problem.starts_with(&format!("`{key}` is absent"))), "{key}: {found:#?}");
    }
    assert!(lint(b"[]", &Files::of_house())[0].contains("must be a JSON object"));
    assert!(lint(br#"{"name":"a","name":"b"}"#, &Files::of_house())[0].contains("is not valid JSON"));
}

#[test]
fn an_absent_cap_is_the_enforcers_own_to_the_reader_and_a_problem_to_lint() {
    let mut manifest = house();
    manifest["editableSurfaceByteBudget"].as_object_mut().unwrap().remove("maxGrowthBytes");
    let bytes = serde_json::to_vec(&manifest).unwrap();
    assert_eq!(Manifest::parse(&bytes).unwrap().budget.growth, 19_550_883);
    let want = "editableSurfaceByteBudget.maxGrowthBytes is null, the enforcer's own is 19550883";
    assert_eq!(lint_of(&manifest, &Files::of_house()), [want]);
}

#[test]
fn a_path_that_is_a_protected_file_by_another_name_is_found_by_its_inode() {
    let mut tree = Files::of_house();
    let bench = tree.0["bench"];
    tree.0.insert("engine".into(), bench);
    assert_eq!(lint_of(&house(), &tree), ["editablePaths: `engine` reaches protected `bench`"]);
    tree.0.insert("engine".into(), Node { kind: Kind::Link, identity: (2, 2) });
    assert_eq!(lint_of(&house(), &tree), ["editablePaths: `engine` is no file and no folder"]);
}

#[test]
fn a_protected_path_that_is_not_there_protects_nothing() {
    let mut tree = Files::of_house();
    tree.0.remove("correctness_prompts");
    assert_eq!(
        lint_of(&house(), &tree),
        ["protected `correctness_prompts` does not exist, so nothing is protected there"]
    );
}
