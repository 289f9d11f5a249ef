use proptest::prelude::*;

use super::*;

fn manifest() -> Manifest {
    Manifest::parse(include_bytes!("../../../../benchmark.json")).unwrap()
}

fn file(path: &str, bytes: u64) -> Entry {
    Entry { path: path.into(), kind: EntryKind::File, bytes, mode: 0o644 }
}

/// The least that is a submission.
fn whole() -> Vec<Entry> {
    vec![file("engine/a.rs", 10), file("harness/b.rs", 20), file("mtp-head/README.md", 5)]
}

fn refused(entry: Entry) -> SurfaceError {
    let mut entries = whole();
    entries.push(entry);
    review(&manifest(), &entries).unwrap_err()
}

#[test]
fn the_least_submission_is_one_file_of_each_required_path() {
    let entries = whole();
    assert_eq!(review(&manifest(), &entries).unwrap().len(), 3);
    let mut with = whole();
    with.push(file("mtp-head.manifest.json", 90));
    with.push(Entry { kind: EntryKind::Folder, ..file("engine/x/", 0) });
    let files = review(&manifest(), &with).unwrap();
    assert_eq!(files.len(), 4);
    expect_whole(&manifest(), &files).unwrap();
    for missing in 0..3 {
        let mut entries = whole();
        entries.remove(missing);
        let files = review(&manifest(), &entries).unwrap();
        let error = expect_whole(&manifest(), &files).unwrap_err();
        assert_eq!(error.refusal(), Refusal::SubmissionPathMissing);
    }
}

#[test]
fn each_entry_that_may_not_be_there_is_refused_by_its_name() {
    for (path, name) in [
        ("tools/build.sh", "EDIT-OUTSIDE-SURFACE"),
        ("engine.rs", "EDIT-OUTSIDE-SURFACE"),
        ("Cargo.toml", "EDIT-OUTSIDE-SURFACE"),
        ("Engine/a.rs", "EDIT-OUTSIDE-SURFACE"),
        ("/etc/passwd", "SUBMISSION-PATH-ESCAPES"),
        ("engine/../tools/x", "SUBMISSION-PATH-ESCAPES"),
        ("engine/./x", "SUBMISSION-PATH-ESCAPES"),
        ("engine\\x", "SUBMISSION-PATH-ESCAPES"),
        ("engine/a\nb", "SUBMISSION-PATH-ESCAPES"),
        ("", "SUBMISSION-PATH-ESCAPES"),
        ("engine/a.rs", "SUBMISSION-ENTRY-TWICE"),
        ("engine//A.rs", "SUBMISSION-ENTRY-TWICE"),
        ("engine/target/debug/x", "SUBMISSION-HOLDS-ARTIFACT"),
        ("engine/TARGET/x", "SUBMISSION-HOLDS-ARTIFACT"),
        ("harness/.build/x", "SUBMISSION-HOLDS-ARTIFACT"),
        ("engine/.git/config", "SUBMISSION-HOLDS-ARTIFACT"),
        ("mtp-head/head.gguf", "SUBMISSION-HOLDS-ARTIFACT"),
        ("engine/x.SAFETENSORS", "SUBMISSION-HOLDS-ARTIFACT"),
        ("engine/botany.golden.json", "SUBMISSION-HOLDS-ARTIFACT"),
        ("harness/score.local-iterate.json", "SUBMISSION-HOLDS-ARTIFACT"),
        ("harness/benchmark-integrity.json", "SUBMISSION-HOLDS-ARTIFACT"),
    ] {
        let error = refused(file(path, 1));
        assert!(error.to_string().starts_with(&format!("{name}: ")), "{path:?}: {error}");
        assert_eq!(error.refusal().name(), name);
        assert!(!error.to_string().contains('\n'));
    }
    for kind in [EntryKind::Symlink, EntryKind::HardLink, EntryKind::Other] {
        let entry = Entry { kind, ..file("engine/link", 0) };
        assert_eq!(refused(entry).refusal(), Refusal::SubmissionEntryNotAFile, "{kind:?}");
    }
    for mode in [0o4755, 0o2644] {
        let entry = Entry { mode, ..file("engine/run", 1) };
        assert_eq!(refused(entry).refusal(), Refusal::SubmissionEntryNotAFile);
    }
    // A stale build tree is named by its folder too.
    let folder = Entry { kind: EntryKind::Folder, ..file("engine/target", 0) };
    assert_eq!(refused(folder).refusal(), Refusal::SubmissionHoldsArtifact);
    review(&manifest(), &[whole(), vec![file("engine/targets/score.rs", 1)]].concat()).unwrap();
}

fn sizes(files: &[(&str, u64)]) -> Vec<(String, u64)> {
    files.iter().map(|(path, bytes)| ((*path).to_owned(), *bytes)).collect()
}

#[test]
fn exactly_a_cap_passes_and_one_byte_more_is_named_the_file_before_the_total() {
    let budget =
        ByteBudget { total: 100, file: 60, growth: 50, exempt_total: 200, exempt_file: 150, exempt: Vec::new() };
    let judge = |files: &[(&str, u64)], base: &[(&str, u64)]| budget.judge(&sizes(files), &sizes(base), 0);
    judge(&[("engine/a", 60), ("engine/b", 40)], &[("engine/a", 50)]).unwrap();
    let over = |files: &[(&str, u64)], base: &[(&str, u64)]| judge(files, base).unwrap_err().to_string();
    assert!(over(&[("engine/a", 61), ("engine/b", 60)], &[]).contains("engine/a has 61 bytes, maxFileBytes allows 60"));
    assert!(over(&[("engine/a", 60), ("engine/b", 41)], &[("x", 90)]).contains("101 bytes, maxTotalBytes allows 100"));
    assert!(over(&[("engine/a", 60), ("engine/b", 40)], &[("engine/a", 49)]).contains("51 bytes more than the base"));
    assert_eq!(judge(&[], &[]), Err(SurfaceError::Nothing));
    budget.judge(&sizes(&[("engine/a", 40)]), &[], 60).unwrap();
    let error = budget.judge(&sizes(&[("engine/a", 40)]), &[], 61).unwrap_err().to_string();
    assert!(error.contains("101 bytes, maxTotalBytes"), "{error}");
    let exempt = ByteBudget { exempt: vec![SurfacePath::parse("mtp-head").unwrap()], ..budget.clone() };
    exempt.judge(&sizes(&[("mtp-head/x", 150), ("engine/a", 60)]), &sizes(&[("engine/a", 10)]), 0).unwrap();
    let error = exempt.judge(&sizes(&[("mtp-head/x", 151)]), &[], 0).unwrap_err().to_string();
    assert!(error.contains("exemptPathMaxFileBytes allows 150"), "{error}");
    let error = exempt.judge(&sizes(&[("mtp-head/x", 150), ("mtp-head/y", 51)]), &[], 0).unwrap_err().to_string();
    assert!(error.contains("201 bytes, exemptPathMaxBytes allows 200"), "{error}");
    expect_archive_size(MAX_ARCHIVE_BYTES).unwrap();
    assert_eq!(expect_archive_size(MAX_ARCHIVE_BYTES + 1).unwrap_err().refusal(), Refusal::SurfaceBudgetExceeded);
}

proptest! {
    #[test]
    fn what_passes_the_review_stays_on_the_surface(path in "[a-z./ \\\\]{0,12}|(engine|harness|tools)/[a-zA-Z./]{0,10}") {
        let mut entries = whole();
        entries.push(file(&path, 1));
        if let Ok(files) = review(&manifest(), &entries) {
            prop_assert!(files.iter().all(|file| manifest().editable.iter().any(|editable| editable.holds(&file.path))));
            prop_assert!(!path.split('/').any(|segment| segment == ".." || segment == "target"));
        }
    }

    #[test]
    fn a_surface_that_passes_passes_with_fewer_bytes(bytes in prop::collection::vec(0_u64..80, 1..6), less in 0_u64..80) {
        let budget = ByteBudget { total: 100, file: 60, growth: 50, exempt_total: 1, exempt_file: 1, exempt: Vec::new() };
        let files: Vec<_> = bytes.iter().enumerate().map(|(n, bytes)| (format!("engine/{n}"), *bytes)).collect();
        let mut smaller = files.clone();
        smaller[0].1 = smaller[0].1.saturating_sub(less);
        let base = sizes(&[("engine/0", 40)]);
        prop_assert!(budget.judge(&files, &base, 0).is_err() || budget.judge(&smaller, &base, 0).is_ok());
    }
}
