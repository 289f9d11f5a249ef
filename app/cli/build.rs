//! Tells the program which commit it was built from, for records of measurements.

use std::path::Path;
use std::process::Command;

fn main() {
    // Everything that is compiled into the program; git's own state for commits that change none of it.
    for part in ["app", "engine", "models", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed=../../{part}");
    }
    let head = output("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if Path::new(&head).exists() {
        println!("cargo::rerun-if-changed={head}");
    }
    let dirty = !output("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    println!("cargo::rustc-env=CUDAFAST_COMMIT={}", output("git", &["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=CUDAFAST_DIRTY={}", u8::from(dirty));
    println!("cargo::rustc-env=CUDAFAST_RUSTC={}", output(&rustc, &["--version"]));
}

/// What a command prints; empty where it cannot be run or fails.
fn output(program: &str, args: &[&str]) -> String {
    match Command::new(program).args(args).output() {
        Ok(ran) if ran.status.success() => String::from_utf8_lossy(&ran.stdout).trim().to_owned(),
        _ => String::new(),
    }
}
