//! `overlay`: a submission in place of a clean tree's editable paths.

use std::fs;
use std::path::Path;

use super::archive::Submission;
use super::{refuse, tree};
use crate::args::OverlayArgs;
use crate::checkout::Checkout;
use crate::failure::Failure;
use crate::output;

/// Reviews the archive, unpacks it beside the surface, then exchanges each editable path as a whole: a file that the archive
/// does not have is gone. An optional path that it does not bring stays as it is. A tree that was cut off in between is not
/// clean, and is refused until it is checked out again.
pub(crate) fn run(args: &OverlayArgs) -> Result<(), Failure> {
    let root = args.tree.canonicalize().map_err(|source| Failure::Read { path: args.tree.clone(), source })?;
    let checkout = Checkout::at(&root);
    let manifest = checkout.manifest()?;
    let base = tree::committed(&checkout, "HEAD", &tree::editable(&manifest))?;
    let submission = Submission::open(&args.archive, &manifest, &tree::sizes(&base.iter().collect::<Vec<_>>()))?;
    let status = checkout.git("status", &["--porcelain", "--untracked-files=all"])?;
    if let Some(line) = String::from_utf8_lossy(&status).lines().next() {
        return Err(refuse(
            "OVERLAY-TREE-NOT-CLEAN",
            format!("{} in {}; check the commit out again, `git clean -fdx` included", line.trim(), root.display()),
        ));
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::Write { path, source }
    };
    let staging = tempfile::Builder::new().prefix(".benchd-overlay-").tempdir_in(&root).map_err(failed(&root))?;
    let (new, old) = (staging.path().join("new"), staging.path().join("old"));
    submission.unpack(&new)?;
    for (path, number) in manifest.editable.iter().map(|path| path.as_str()).zip(1..) {
        let (from, to) = (new.join(path), root.join(path));
        // Optional, or it would have been refused.
        if !from.exists() {
            continue;
        }
        if let Some(folder) = to.parent() {
            let inside = folder.canonicalize().is_ok_and(|found| found.starts_with(&root));
            if !inside {
                return Err(refuse(
                    "SUBMISSION-PATH-ESCAPES",
                    format!("{path} is not below the tree; a link leads out"),
                ));
            }
        }
        fs::create_dir_all(&old).map_err(failed(&old))?;
        if fs::symlink_metadata(&to).is_ok() {
            fs::rename(&to, old.join(number.to_string())).map_err(failed(&to))?;
        }
        fs::rename(&from, &to).map_err(failed(&to))?;
    }
    let pin = submission.pin();
    output::line(&format!("{} files of {} put in place ({pin})", submission.files.len(), args.archive.display()))
}
