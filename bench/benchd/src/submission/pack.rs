//! `pack`: the archive that is submitted.

use std::fs;
use std::path::{Path, PathBuf};

use bench_core::declaration::Declaration;
use bench_core::sha256;
use bench_core::surface::{expect_archive_size, expect_whole, review};
use serde::Serialize;

use super::{archive, tree};
use crate::args::PackArgs;
use crate::checkout::Checkout;
use crate::command::declaration;
use crate::failure::Failure;
use crate::{documents, output};

/// What a submission says of itself.
#[derive(Serialize)]
struct Note {
    track_id: String,
    /// The commit that it was made on; the surface may differ from it.
    base_commit: String,
    declared: String,
    archive: String,
    archive_bytes: u64,
    archive_sha256: String,
    files: usize,
    surface_bytes: u64,
}

/// Reviews the surface as it is on the disk, then packs it.
pub(crate) fn run(args: &PackArgs) -> Result<(), Failure> {
    let root = &args.root.root;
    let checkout = Checkout::at(root);
    let manifest = checkout.manifest()?;
    let entries = tree::entries(root, &manifest)?;
    let files = review(&manifest, &entries)?;
    expect_whole(&manifest, &files)?;
    let committed = tree::committed(&checkout, "HEAD", &tree::editable(&manifest))?;
    manifest.budget.judge(&tree::sizes(&files), &tree::sizes(&committed.iter().collect::<Vec<_>>()), 0)?;
    let contract = documents::contract(&root.join(manifest.contract_path.as_str()))?;
    let declared: Declaration = declaration::read(&root.join("mtp-head.manifest.json"), contract.permitted_depths())?;
    let head = checkout.git("rev-parse", &["HEAD"])?;

    let packed = archive::pack(root, &files)?;
    expect_archive_size(packed.len() as u64)?;
    let note = Note {
        track_id: manifest.track_id.clone(),
        base_commit: String::from_utf8_lossy(&head).trim().to_owned(),
        declared: declared.to_string(),
        archive: args.out.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        archive_bytes: packed.len() as u64,
        archive_sha256: sha256(&packed).to_string(),
        files: files.len(),
        surface_bytes: files.iter().map(|file| file.bytes).sum(),
    };
    for file in &files {
        output::line(&format!("{:>10}  {}", file.bytes, file.path))?;
    }
    let text = serde_json::to_string_pretty(&note).map_err(|source| Failure::Json { source })?;
    let mut beside = args.out.as_os_str().to_owned();
    beside.push(".json");
    whole(&args.out, &packed)?;
    whole(Path::new(&beside), format!("{text}\n").as_bytes())?;
    output::say(&format!(
        "{} files of {} bytes, {} declared, packed into {} ({} bytes, sha256 {})",
        note.files,
        note.surface_bytes,
        note.declared,
        args.out.display(),
        note.archive_bytes,
        note.archive_sha256
    ));
    Ok(())
}

/// The whole file or none.
fn whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What is left of it would never be used.
        let _ = fs::remove_file(&part);
    }
    written.map_err(|source| Failure::Write { path: path.to_owned(), source })
}
