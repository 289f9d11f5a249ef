//! `spec-declaration` (track-contract.md 4).

use std::io;
use std::path::Path;

use bench_core::declaration::Declaration;

use crate::args::DeclarationArgs;
use crate::checkout::Checkout;
use crate::documents;
use crate::failure::Failure;
use crate::output;

/// Validates first, whatever was asked for.
pub(crate) fn run(args: &DeclarationArgs) -> Result<(), Failure> {
    let declared = read(&args.manifest, &permitted(args))?;
    match args.verb.as_deref() {
        Some("speculative") => output::line(if declared.is_speculative() { "1" } else { "0" }),
        Some("draft-len") => output::line(&declared.draft_len().to_string()),
        Some("describe") => output::line(&declared.to_string()),
        Some("validate") => Ok(()),
        Some(other) => Err(usage(&format!("{other:?} is no verb"))),
        None => Err(usage("no verb")),
    }
}

fn usage(what: &str) -> Failure {
    Failure::Usage { what: format!("spec-declaration: {what}; give speculative, draft-len, describe or validate") }
}

/// A declaration's file. Absent, it declares serial.
pub(crate) fn read(path: &Path, permitted: &[u32]) -> Result<Declaration, Failure> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Declaration::parse(&path.display().to_string(), &bytes, permitted)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Declaration::SERIAL),
        Err(source) => Err(Failure::Read { path: path.to_owned(), source }),
    }
}

/// Depths of the contract. One that cannot be read permits none, so that it refuses a depth and never a serial run.
fn permitted(args: &DeclarationArgs) -> Vec<u32> {
    let path = args.contract.clone().or_else(|| {
        let manifest = Checkout::at(Path::new(".")).manifest().ok()?;
        Some(manifest.contract_path.as_str().into())
    });
    let contract = path.and_then(|path| documents::contract(&path).ok());
    contract.map(|contract| contract.permitted_depths().to_vec()).unwrap_or_default()
}
