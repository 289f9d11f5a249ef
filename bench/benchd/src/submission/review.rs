//! `check-submission`: the static review (track-contract.md 8). What lies outside the editable paths is not its concern: the
//! overlay replaces nothing else, and an official run refuses a tree that differs elsewhere.

use bench_core::manifest::Manifest;
use bench_core::surface::{SurfaceError, expect_whole, review};

use super::archive::Submission;
use super::{refuse, tree};
use crate::args::ReviewArgs;
use crate::checkout::{Checkout, MANIFEST};
use crate::failure::Failure;
use crate::output;

const NO_MODE: &str = "REVIEW-MODE-NOT-SELECTED";

/// Reviews what was chosen. Nothing chosen, or a choice that contradicts itself, is no review that passes.
pub(crate) fn run(args: &ReviewArgs) -> Result<(), Failure> {
    let checkout = Checkout::at(&args.root.root);
    let found = match (&args.archive, args.base.as_deref(), args.mode.as_deref()) {
        (Some(_), ..) => archive(args, &checkout)?,
        (None, Some(base), _) if base.trim().is_empty() => {
            return Err(refuse(NO_MODE, "--base is empty; give the commit before the change"));
        }
        (None, Some(base), None | Some("diff")) => change(args, &checkout, base)?,
        (None, Some(_), Some(mode)) => {
            return Err(refuse(NO_MODE, format!("--mode {mode:?} has no base; leave --base out, or give `diff`")));
        }
        (None, None, Some("whole-surface")) => whole(args, &checkout)?,
        (None, None, _) => {
            return Err(refuse(NO_MODE, "give --archive, --base with the commit before it, or --mode whole-surface"));
        }
    };
    output::line(&format!("ok: {found}"))
}

/// The caller's track is the manifest's.
fn expect_track(args: &ReviewArgs, manifest: &Manifest) -> Result<(), Failure> {
    match args.track_id.as_deref() {
        Some(given) if given != manifest.track_id => {
            let text = format!("{given:?} is given, benchmark.json says {}", manifest.track_id);
            Err(refuse("SUBMISSION-TRACK-MISMATCH", text))
        }
        _ => Ok(()),
    }
}

fn archive(args: &ReviewArgs, checkout: &Checkout) -> Result<String, Failure> {
    let manifest = checkout.manifest()?;
    expect_track(args, &manifest)?;
    let base = tree::committed(checkout, "HEAD", &tree::editable(&manifest))?;
    let path = args.archive.as_deref().unwrap_or(std::path::Path::new(""));
    let submission = Submission::open(path, &manifest, &tree::sizes(&base.iter().collect::<Vec<_>>()))?;
    Ok(format!("{} files in {}", submission.files.len(), path.display()))
}

fn whole(args: &ReviewArgs, checkout: &Checkout) -> Result<String, Failure> {
    let manifest = checkout.manifest()?;
    expect_track(args, &manifest)?;
    let root = &args.root.root;
    for path in &manifest.editable {
        if std::fs::symlink_metadata(root.join(path.as_str())).is_err() {
            return Err(SurfaceError::Missing { path: path.to_string() }.into());
        }
    }
    let entries = tree::entries(root, &manifest)?;
    let files = review(&manifest, &entries)?;
    expect_whole(&manifest, &files)?;
    manifest.budget.judge(&tree::sizes(&files), &tree::sizes(&files), 0)?;
    Ok(format!("{} files on the surface", files.len()))
}

/// What changed between two commits, by the rules of the first.
fn change(args: &ReviewArgs, checkout: &Checkout, base: &str) -> Result<String, Failure> {
    let [base, head, checked_out] = [base, &args.head, "HEAD"].map(|name| commit(checkout, name));
    let (base, head) = (base?, head?);
    if checked_out? != head {
        return Err(refuse("REVIEW-HEAD-NOT-CHECKED-OUT", format!("{head} is to be reviewed; check it out")));
    }
    let rules = checkout.git("show", &[&format!("{base}:{MANIFEST}")])?;
    let manifest =
        Manifest::parse(&rules).map_err(|source| Failure::Manifest { path: checkout.manifest_path(), source })?;
    expect_track(args, &manifest)?;
    let surface = tree::editable(&manifest);
    let diff = |format: &[&str]| {
        let plain = ["--no-renames", "--no-color", "--no-ext-diff", "--no-textconv"];
        checkout.git("diff", &[&plain[..], format, &[&base, &head, "--"], &surface].concat())
    };
    let names = diff(&["--name-only", "-z"])?;
    let names = String::from_utf8_lossy(&names);
    let changed: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    if changed.is_empty() {
        return Ok("no editable path is changed".into());
    }
    let of = |commit: &str| -> Result<Vec<_>, Failure> {
        let all = tree::committed(checkout, commit, &surface)?;
        Ok(all.into_iter().filter(|entry| changed.contains(&entry.path.as_str())).collect())
    };
    let (before, after) = (of(&base)?, of(&head)?);
    let files = review(&manifest, &after)?;
    let deleted = before.iter().filter(|entry| !after.iter().any(|other| other.path == entry.path)).count();
    let text = diff(&[])?.len() as u64;
    let sizes = tree::sizes(&files);
    let judged = match sizes.is_empty() {
        // Deletions alone.
        true => Ok(()),
        false => manifest.budget.judge(&sizes, &tree::sizes(&before.iter().collect::<Vec<_>>()), text),
    };
    judged.map_err(|error| match deleted {
        0 => Failure::from(error),
        _ => refuse(
            error.refusal().name(),
            format!("{error}; {deleted} editable files are deleted: is the clone older than its base?"),
        ),
    })?;
    Ok(format!("{} changed editable files, {deleted} deleted", files.len()))
}

/// A commit's 40 digits.
fn commit(checkout: &Checkout, name: &str) -> Result<String, Failure> {
    let found = checkout.git("rev-parse", &["--verify", "--end-of-options", &format!("{name}^{{commit}}")])?;
    Ok(String::from_utf8_lossy(&found).trim().to_owned())
}
