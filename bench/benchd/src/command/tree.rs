//! `harness-hash` and `lint-manifest`: what the repository around a submission is.

use std::path::Path;

use bench_core::Digest;
use bench_core::digests::HarnessHash;
use bench_core::manifest::lint as lint_manifest;

use crate::args::RootArgs;
use crate::checkout::Checkout;
use crate::documents;
use crate::failure::Failure;
use crate::output;

pub(crate) fn harness_hash(args: &RootArgs) -> Result<(), Failure> {
    output::line(&harness_identity(&args.root)?.to_string())
}

/// The identity of every trusted file below a root (track-contract.md 12.1).
pub(crate) fn harness_identity(root: &Path) -> Result<Digest, Failure> {
    let checkout = Checkout::at(root);
    let mut hash = HarnessHash::default();
    for path in checkout.trusted_files(&checkout.manifest()?)? {
        hash.add(&path, &documents::read(&root.join(&path))?)?;
    }
    Ok(hash.finish())
}

pub(crate) fn lint(args: &RootArgs) -> Result<(), Failure> {
    let checkout = Checkout::at(&args.root);
    let path = checkout.manifest_path();
    let problems = lint_manifest(&documents::read(&path)?, &checkout);
    for problem in &problems {
        output::line(&format!("FAIL {problem}"))?;
    }
    match problems.len() {
        0 => output::line("ok"),
        count => Err(Failure::Lint { path, count }),
    }
}
