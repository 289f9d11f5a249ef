//! `build` and `stage-engine` (track-contract.md 7.7).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{BuildArgs, StageArgs};
use crate::failure::Failure;
use crate::output;

/// The benchmarker and the engine with its CPU backend: what `build` makes.
const PRODUCT: [&str; 6] = ["--package", "benchd", "--package", "cuda-engine", "--features", "cuda-engine/engine"];
/// The adapter alone, a mock and a resident of another build.
const ADAPTER_ALONE: [&str; 2] = ["--package", "cuda-engine"];

/// Builds, then stages; with `--cpu-check` compiles each pairing of the parts and stages nothing.
pub(crate) fn build(args: &BuildArgs) -> Result<(), Failure> {
    if args.cpu_check {
        for parts in [&ADAPTER_ALONE[..], &PRODUCT] {
            cargo("check", &args.stage.profile, parts)?;
        }
        return output::line("ok: benchd, the adapter alone, and the adapter with its CPU engine compile");
    }
    cargo("build", &args.stage.profile, &PRODUCT)?;
    stage(&args.stage)
}

/// Copies the engine; the copy stands whole in its place or not at all.
pub(crate) fn stage(args: &StageArgs) -> Result<(), Failure> {
    // Cargo keeps the profile `dev` in a folder of another name.
    let folder = if args.profile == "dev" { "debug" } else { &args.profile };
    let built = || args.target_dir.join(folder).join("cuda-engine");
    let source = args.engine.clone().unwrap_or_else(built);
    if !source.is_file() {
        return Err(Failure::NoEngine { path: source });
    }
    let to = &args.to;
    let written = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::Write { path, source }
    };
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(written(folder))?;
    }
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part: PathBuf = to.with_file_name(name);
    let staged = fs::copy(&source, &part)
        .and_then(|_| fs::set_permissions(&part, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&part, to));
    if staged.is_err() {
        // What is left of it would never be used.
        let _ = fs::remove_file(&part);
    }
    staged.map_err(written(to))?;
    output::say(&format!("staged {} as {}", source.display(), to.display()));
    Ok(())
}

fn cargo(what: &str, profile: &str, parts: &[&str]) -> Result<(), Failure> {
    let status = Command::new("cargo").args([what, "--locked", "--profile", profile]).args(parts).status();
    let failed = |how: String| Failure::Cargo { what: format!("{what} {}", parts.join(" ")), how };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string())),
        Err(error) => Err(failed(format!("cannot be run: {error}"))),
    }
}
