//! `cargo xtask`: the checks of the house, one command for people and CI alike.
//!
//! Start at [`check::CHECKS`]. A check that reasons about the tree is a function of plain values ([`arrows::violations`],
//! the walls of [`walls`]) with tests on made-up input; the others run cargo ([`cargo`]).

mod arrows;
mod cargo;
mod check;
mod deny;
mod tree;
mod walls;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask check [--fast] [--gpu] [--only NAME]... [--skip NAME]...

  --fast       only the checks that take seconds, and clippy
  --gpu        device tests too; refused while the tree has no engine/cuda
  --only NAME  this check only (repeatable)
  --skip NAME  all but this check (repeatable)

Checks run in this order and stop at the first that fails:
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let selected = match arguments.split_first() {
        Some((&"check", flags)) => check::select(flags),
        Some((&("help" | "--help" | "-h"), [])) => {
            print!("{USAGE}{}", check::list());
            return ExitCode::SUCCESS;
        }
        Some((other, _)) => Err(format!("no command `{other}`")),
        None => Err("no command".to_owned()),
    };
    match selected {
        Err(problem) => {
            eprintln!("xtask: {problem}\n\n{USAGE}{}", check::list());
            ExitCode::from(2)
        }
        Ok(checks) if check::run_all(&checks, root()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
    }
}

/// The repository: this crate stands two folders below it, and the alias in .cargo/config.toml works in any folder.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}
