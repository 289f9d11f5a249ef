//! Manifest lint (track-contract.md 9): the manifest, the tree it is the root of, and the fixture it names.

use super::{ByteBudget, Manifest, ManifestError};
use crate::contract::Contract;
use crate::paths::SurfacePath;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Whether its owner may run it.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// A symbolic link, wherever it leads.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

/// A path's kind and which file it is, however it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Device and inode.
    pub identity: (u64, u64),
}

/// A repository's files; paths are relative to its root.
pub trait Tree {
    /// What stands at a path, links not followed; `None`: nothing.
    fn look(&self, path: &str) -> Option<Node>;
    /// A file's bytes; `None`: it cannot be read.
    fn read(&self, path: &str) -> Option<Vec<u8>>;
}

/// What no submission may reach: what judges it, what builds it, what it is judged by (benchd.md 14). Each must be there,
/// or its protection would protect nothing; [`MAY_BE_ABSENT`] are those that need not be.
pub const PROTECTED: [&str; 16] = [
    ".cargo",
    ".ci",
    ".git",
    ".github",
    ".gitmodules",
    "Cargo.lock",
    "Cargo.toml",
    "app",
    "bench",
    "benchmark.json",
    "benchmark.sh",
    "correctness_prompts",
    "fixtures",
    "models",
    "setup.sh",
    "tools",
];
/// Protected for the day they appear.
pub const MAY_BE_ABSENT: [&str; 3] = [".git", ".gitmodules", "setup.sh"];

/// Goldens in the pool of the track that `benchmark.json` is of.
const POOL: usize = 8;

/// Everything that is wrong, one text each. Empty: nothing is.
pub fn lint(manifest: &[u8], tree: &impl Tree) -> Vec<String> {
    let mut problems = Vec::new();
    match Manifest::parse(manifest) {
        Ok(manifest) => {
            surface(&manifest, tree, &mut problems);
            commands(&manifest, tree, &mut problems);
            contract(&manifest, tree, &mut problems);
            let workflow = format!(".github/workflows/{}", manifest.workflow);
            if !matches!(tree.look(&workflow), Some(Node { kind: Kind::File { .. }, .. })) {
                problems.push(format!("runner.workflow: `{workflow}` is no file"));
            }
        }
        Err(ManifestError::Invalid { problems: found }) => problems.extend(found),
        Err(error) => problems.push(error.to_string()),
    }
    caps(manifest, &mut problems);
    problems
}

/// All five caps are written down, and are those that hold where none is.
fn caps(manifest: &[u8], problems: &mut Vec<String>) {
    let Ok(value) = crate::fields::parse(manifest) else { return };
    for (key, fallback) in ByteBudget::CAPS {
        let declared = &value["editableSurfaceByteBudget"][key];
        if *declared != fallback {
            problems.push(format!("editableSurfaceByteBudget.{key} is {declared}, the enforcer's own is {fallback}"));
        }
    }
}

fn surface(manifest: &Manifest, tree: &impl Tree, problems: &mut Vec<String>) {
    for path in &manifest.editable {
        match tree.look(path.as_str()).map(|node| node.kind) {
            Some(Kind::File { .. } | Kind::Folder) => {}
            Some(Kind::Link | Kind::Other) => {
                problems.push(format!("editablePaths: `{path}` is no file and no folder"))
            }
            None => problems.push(format!("editablePaths: `{path}` does not exist")),
        }
    }
    for protected in PROTECTED {
        let stands = tree.look(protected);
        if stands.is_none() && !MAY_BE_ABSENT.contains(&protected) {
            problems.push(format!("protected `{protected}` does not exist, so nothing is protected there"));
        }
        for path in &manifest.editable {
            let same = tree.look(path.as_str()).zip(stands).is_some_and(|(a, b)| a.identity == b.identity);
            if path.touches(protected) || same {
                problems.push(format!("editablePaths: `{path}` reaches protected `{protected}`"));
            }
        }
    }
}

fn commands(manifest: &Manifest, tree: &impl Tree, problems: &mut Vec<String>) {
    let commands = [
        ("setupCommand", &manifest.setup),
        ("preSubmitCommand", &manifest.pre_submit),
        ("benchmarkCommand", &manifest.benchmark),
    ];
    for (key, argv) in commands {
        let [bash, c, script] = &argv[..] else {
            problems.push(format!("{key}: is not [\"bash\", \"-c\", SCRIPT]"));
            continue;
        };
        if bash != "bash" || c != "-c" {
            problems.push(format!("{key}: is not [\"bash\", \"-c\", SCRIPT]"));
        }
        let mut targets = words(script).filter_map(|word| word.strip_prefix("./")).peekable();
        if targets.peek().is_none() {
            problems.push(format!("{key}: runs no `./` script of the repository"));
        }
        for target in targets {
            let runs = SurfacePath::parse(target).is_ok()
                && matches!(tree.look(target), Some(Node { kind: Kind::File { executable: true }, .. }));
            if !runs {
                problems.push(format!("{key}: `./{target}` is no executable file"));
            }
        }
    }
    let assignment = format!("MLXFAST_SCORE_PATH={}", manifest.score_path);
    let sets = manifest.benchmark.get(2).is_some_and(|script| words(script).any(|word| word == assignment));
    if !sets {
        problems.push(format!("benchmarkCommand: does not set {assignment}"));
    }
}

/// Words of a shell script as far as these scripts have any: no quotes, no expansions.
fn words(script: &str) -> impl Iterator<Item = &str> {
    script.split(|c: char| c.is_whitespace() || ";&|()".contains(c)).filter(|word| !word.is_empty())
}

fn contract(manifest: &Manifest, tree: &impl Tree, problems: &mut Vec<String>) {
    let path = &manifest.contract_path;
    let Some(bytes) = tree.read(path.as_str()) else {
        problems.push(format!("contractPath: `{path}` cannot be read"));
        return;
    };
    let contract = match Contract::parse(&bytes) {
        Ok(contract) => contract,
        Err(error) => {
            problems.push(format!("contractPath: `{path}`: {error}"));
            return;
        }
    };
    if contract.track_id.as_str() != manifest.track_id {
        problems.push(format!(
            "contractPath: `{path}` is of track `{}`, trackId is `{}`",
            contract.track_id, manifest.track_id
        ));
    }
    if contract.pool.len() != POOL {
        problems.push(format!("contractPath: timed_prompt_pool has {} entries, not {POOL}", contract.pool.len()));
    }
    // The fixture is scored by; the manifest repeats it for people (track-contract.md 12.2).
    let scoring = manifest.scoring;
    let number = |value: Option<f64>| value.map_or("absent".into(), |value| value.to_string());
    let copies = [
        ("pairsPerCohort", scoring.pairs.to_string(), contract.official_pairs.to_string()),
        ("decodeSpeedupFloor", number(Some(scoring.decode_floor)), number(Some(contract.floors.decode))),
        (
            "prefillSpeedupFloor",
            number(scoring.prefill_floor.or(Some(contract.floors.prefill))),
            number(Some(contract.floors.prefill)),
        ),
        ("decodeSpeedupCeiling", number(scoring.decode_ceiling), number(contract.decode_gain_ceiling)),
        (
            "scoredExponents.decodeGainExponent",
            number(Some(scoring.decode_exponent)),
            number(Some(contract.weights.decode)),
        ),
        (
            "scoredExponents.prefillGainExponent",
            number(Some(scoring.prefill_exponent)),
            number(Some(contract.weights.prefill)),
        ),
    ];
    for (key, shown, scored) in copies {
        if shown != scored {
            problems.push(format!("scoring.{key} is {shown}, the fixture's is {scored}"));
        }
    }
}
