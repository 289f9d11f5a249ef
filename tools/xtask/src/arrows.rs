//! Room arrows: which crate may depend on which (ARCHITECTURE.md, "Rooms").
//!
//! Ordinary and build dependencies must be an arrow of [`ROOMS`]. A dev-dependency may be anything the arrows reach, as
//! tests look further down than code does; an engine room's tests may also use the rooms that know nobody (vectors come in
//! GGUF files, and the model is one), which can close no circle.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::check::{Verdict, verdict};

/// A room and the rooms its code may name. `x/*` is any folder right below `x`.
struct Room {
    dir: &'static str,
    knows: &'static [&'static str],
}

const MODEL_BYTES: &str = "models/tiny";

const ROOMS: &[Room] = &[
    Room { dir: "engine/gguf", knows: &[] },
    Room { dir: "engine/quant", knows: &[] },
    Room { dir: "engine/text", knows: &[] },
    Room { dir: "engine/model", knows: &["engine/gguf", "engine/quant"] },
    Room { dir: "engine/runtime", knows: &["engine/model", "engine/text"] },
    Room { dir: "engine/cpu", knows: &["engine/runtime", "engine/model", "engine/quant"] },
    Room { dir: "engine/cuda", knows: &["engine/runtime", "engine/model", "engine/quant"] },
    Room { dir: MODEL_BYTES, knows: &[] },
    // The bench judges the engine, so it shares no code with it.
    Room { dir: "bench/*", knows: &["bench/*"] },
    Room { dir: "harness/protocol-adapter", knows: &["engine/*", MODEL_BYTES, "bench/protocol"] },
    Room { dir: "app/server", knows: &["engine/*", MODEL_BYTES] },
    Room { dir: "app/cli", knows: &["engine/*", MODEL_BYTES, "app/server", "bench/pins"] },
    Room { dir: "tests", knows: &["engine/*", MODEL_BYTES, "bench/*", "harness/*", "app/*"] },
    Room { dir: "tools/xtask", knows: &[] },
];

fn matches(pattern: &str, dir: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(parent) => dir.rsplit_once('/').is_some_and(|(folder, _)| folder == parent),
        None => pattern == dir,
    }
}

fn room_of(dir: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| matches(room.dir, dir))
}

/// Whether arrows lead from a room to a folder, over any number of rooms.
fn reaches(from: &'static Room, dir: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(room) = open.pop() {
        if room.knows.iter().any(|pattern| matches(pattern, dir)) {
            return true;
        }
        if seen.insert(room.dir) {
            let known = |next: &&Room| room.knows.iter().any(|pattern| matches(pattern, next.dir));
            open.extend(ROOMS.iter().filter(known));
        }
    }
    false
}

fn is_engine(dir: &str) -> bool {
    matches("engine/*", dir)
}

/// Rooms below all others: the engine's, and the bytes of the model.
fn knows_nobody(dir: &str) -> bool {
    (is_engine(dir) || dir == MODEL_BYTES) && room_of(dir).is_some_and(|room| room.knows.is_empty())
}

/// Every dependency between crates of the repository that no arrow allows, and every crate without a room.
/// `metadata` is the output of `cargo metadata --no-deps`.
pub(crate) fn violations(metadata: &Value) -> Result<Vec<String>, String> {
    let text = |value: &Value, key: &str| {
        value[key].as_str().map(str::to_owned).ok_or(format!("cargo metadata: no string `{key}`"))
    };
    let list =
        |value: &Value, key: &str| value[key].as_array().cloned().ok_or(format!("cargo metadata: no list `{key}`"));
    let root = text(metadata, "workspace_root")?;
    let below_root =
        |path: &str| Path::new(path).strip_prefix(&root).ok().map(|dir| dir.to_string_lossy().into_owned());

    let mut problems = Vec::new();
    for package in list(metadata, "packages")? {
        let name = text(&package, "name")?;
        let manifest = text(&package, "manifest_path")?;
        let dir = below_root(manifest.trim_end_matches("/Cargo.toml")).unwrap_or(manifest);
        let Some(room) = room_of(&dir) else {
            problems
                .push(format!("{name}: `{dir}` is no room of the plan; add it to ROOMS in tools/xtask/src/arrows.rs"));
            continue;
        };
        for dependency in list(&package, "dependencies")? {
            let Some(path) = dependency["path"].as_str() else { continue }; // from the registry: deny.toml's business
            let other = text(&dependency, "name")?;
            let Some(target) = below_root(path) else {
                problems.push(format!("{name} -> {other}: {path} is outside the repository"));
                continue;
            };
            let for_tests = dependency["kind"].as_str() == Some("dev");
            let allowed = room.knows.iter().any(|pattern| matches(pattern, &target))
                || for_tests && (reaches(room, &target) || is_engine(&dir) && knows_nobody(&target));
            if !allowed {
                let kind = if for_tests { " (in tests)" } else { "" };
                let knows = if room.knows.is_empty() { "nobody".to_owned() } else { room.knows.join(", ") };
                problems.push(format!("{name} -> {other}{kind}: {dir} may know {knows}, not {target}"));
            }
        }
    }
    Ok(problems)
}

pub(crate) fn check(root: &Path) -> Verdict {
    let one = |problem: String| vec![problem];
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let output = Command::new("cargo").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| one(format!("cargo cannot be run: {error}")))?;
    if !output.status.success() {
        return Err(one(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| one(format!("cargo metadata: {error}")))?;
    let crates = metadata["packages"].as_array().map_or(0, Vec::len);
    verdict(violations(&metadata).map_err(one)?, format!("{crates} crates"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Folder of a crate, and of its dependencies with their kind (`""` is an ordinary one).
    type Crate<'a> = (&'a str, &'a [(&'a str, &'a str)]);

    /// A workspace at /r.
    fn workspace(crates: &[Crate<'_>]) -> Value {
        let dependency = |&(dir, kind): &(&str, &str)| {
            let kind = if kind.is_empty() { Value::Null } else { json!(kind) };
            match dir {
                "serde" => json!({ "name": dir, "kind": kind }),
                _ => json!({ "name": dir, "kind": kind, "path": format!("/r/{dir}") }),
            }
        };
        let package = |(dir, dependencies): &Crate<'_>| {
            let dependencies: Vec<_> = dependencies.iter().map(dependency).collect();
            json!({ "name": dir, "manifest_path": format!("/r/{dir}/Cargo.toml"), "dependencies": dependencies })
        };
        json!({ "workspace_root": "/r", "packages": crates.iter().map(package).collect::<Vec<_>>() })
    }

    fn found(crates: &[Crate<'_>]) -> Vec<String> {
        violations(&workspace(crates)).unwrap()
    }

    #[test]
    fn arrows_of_the_plan_and_registry_crates_pass() {
        let crates: &[Crate<'_>] = &[
            ("engine/gguf", &[("serde", "")]),
            ("engine/model", &[("engine/gguf", ""), ("engine/quant", "")]),
            ("engine/cuda", &[("engine/runtime", ""), ("engine/quant", "build")]),
            ("bench/runner", &[("bench/core", "")]),
            ("harness/protocol-adapter", &[("engine/cpu", ""), ("bench/protocol", "")]),
            ("app/cli", &[("engine/gguf", ""), ("models/tiny", ""), ("bench/pins", "")]),
        ];
        assert_eq!(found(crates), [""; 0]);
    }

    #[test]
    fn an_arrow_against_the_plan_is_named() {
        let got = found(&[("engine/gguf", &[("engine/model", "")])]);
        assert_eq!(got, ["engine/gguf -> engine/model: engine/gguf may know nobody, not engine/model"]);
        assert_eq!(found(&[("engine/model", &[("engine/runtime", "")])]).len(), 1);
        assert_eq!(found(&[("engine/cpu", &[("engine/gguf", "build")])]).len(), 1);
    }

    #[test]
    fn the_bench_knows_no_engine_not_even_in_tests() {
        assert_eq!(found(&[("bench/core", &[("engine/gguf", "")])]).len(), 1);
        assert_eq!(found(&[("bench/core", &[("engine/gguf", "dev")])]).len(), 1);
        assert_eq!(found(&[("app/server", &[("bench/protocol", "")])]).len(), 1);
    }

    #[test]
    fn tests_may_use_what_the_arrows_reach_and_rooms_that_know_nobody() {
        assert_eq!(found(&[("engine/cpu", &[("engine/gguf", "dev"), ("models/tiny", "dev")])]), [""; 0]);
        assert_eq!(found(&[("engine/text", &[("engine/gguf", "dev")])]), [""; 0]);
        assert_eq!(found(&[("engine/runtime", &[("engine/cpu", "dev")])]).len(), 1);
        assert_eq!(found(&[("engine/gguf", &[("models/tiny", "")])]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_room_is_named() {
        let got = found(&[("engine/common2", &[])]);
        assert!(got[0].starts_with("engine/common2: `engine/common2` is no room"), "{got:?}");
        assert_eq!(found(&[("engine/gguf/inner", &[])]).len(), 1);
    }

    #[test]
    fn a_path_outside_the_repository_is_named() {
        let mut metadata = workspace(&[("engine/gguf", &[("engine/quant", "")])]);
        metadata["packages"][0]["dependencies"][0]["path"] = json!("/elsewhere/quant");
        assert_eq!(
            violations(&metadata).unwrap(),
            ["engine/gguf -> engine/quant: /elsewhere/quant is outside the repository"]
        );
    }

    #[test]
    fn metadata_of_another_shape_is_an_error() {
        assert!(violations(&json!({})).is_err());
        assert!(violations(&json!({ "workspace_root": "/r", "packages": [{}] })).is_err());
    }

    #[test]
    fn no_room_reaches_itself_but_the_bench() {
        for room in ROOMS.iter().filter(|room| room.dir != "bench/*") {
            assert!(!reaches(room, room.dir), "{}", room.dir);
        }
    }
}
