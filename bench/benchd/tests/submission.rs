//! Submissions as files: packed, reviewed, put in place. Every tree is a repository of the test's own.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A repository with a surface, and the folder it goes with.
struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let new = Self { folder };
        for path in ["benchmark.json", "fixtures/qwen3_8_125b_a6b_track.json"] {
            new.write(path, &fs::read_to_string(repository_root().join(path)).unwrap());
        }
        new.write("engine/src/lib.rs", "// the engine\n");
        new.write("engine/old.rs", "// older\n");
        new.write("harness/main.rs", "// the worker\n");
        new.write("mtp-head/README.md", "notes\n");
        new.write("mtp-head.manifest.json", r#"{"spec":{"enabled":true,"num_speculative_tokens":3}}"#);
        new.git(&["init", "--quiet", "--initial-branch", "main"]);
        new.commit();
        new
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("tree").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").arg("-C").arg(self.path("")).args(identity).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "x"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Beside the tree, so that the tree stays clean.
    fn beside(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn benchd(&self, line: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_benchd"));
        command.args(line).current_dir(self.path("")).env_remove("MLXFAST_SUBMISSION_TRACK_ID");
        command.output().unwrap()
    }

    fn passes(&self, line: &[&str]) -> String {
        let output = self.benchd(line);
        assert!(output.status.success(), "{line:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command is refused with: one line, exit code 1.
    fn refused(&self, line: &[&str], name: &str) -> String {
        let output = self.benchd(line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(said.contains(&format!("REFUSING -- {name}")), "{line:?}: want {name}: {said}");
        said
    }
}

/// What an archive's entry is in a test.
struct Item(&'static str, EntryType, &'static [u8], u32);

fn file(path: &'static str) -> Item {
    Item(path, EntryType::Regular, b"x", 0o644)
}

/// An archive of entries as no honest packer writes them.
fn archive(path: &str, items: &[Item]) {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for Item(path, kind, content, mode) in items {
        let mut header = Header::new_gnu();
        // Past the library's own checks of a name.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        header.set_cksum();
        archive.append(&header, *content).unwrap();
    }
    fs::write(path, archive.into_inner().unwrap().finish().unwrap()).unwrap();
}

fn least() -> Vec<Item> {
    vec![file("engine/a.rs"), file("harness/b.rs"), file("mtp-head/c.md")]
}

#[test]
fn what_is_packed_passes_review_and_replaces_each_path_as_a_whole() {
    let candidate = Repository::new();
    fs::remove_file(candidate.path("engine/old.rs")).unwrap();
    fs::remove_file(candidate.path("mtp-head.manifest.json")).unwrap();
    candidate.write("engine/src/new.rs", "// newer\n");
    let out = candidate.beside("submission.tar.gz");
    let listed = candidate.passes(&["pack", "--out", &out]);
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, ["engine/src/lib.rs", "engine/src/new.rs", "harness/main.rs", "mtp-head/README.md"]);
    let note: serde_json::Value = serde_json::from_slice(&fs::read(format!("{out}.json")).unwrap()).unwrap();
    assert_eq!((note["declared"].as_str(), note["files"].as_u64()), (Some("serial"), Some(4)));
    let first = fs::read(&out).unwrap();
    candidate.passes(&["pack", "--out", &out]);
    assert_eq!(first, fs::read(&out).unwrap(), "one surface, one archive");

    let reference = Repository::new();
    reference.passes(&["check-submission", "--archive", &out]);
    let tree = reference.path("").display().to_string();
    reference.passes(&["overlay", "--archive", &out, "--tree", &tree]);
    assert_eq!(fs::read_to_string(reference.path("engine/src/new.rs")).unwrap(), "// newer\n");
    assert!(!reference.path("engine/old.rs").exists(), "replaced, not merged");
    assert!(reference.path("mtp-head.manifest.json").exists(), "optional: the trusted copy stays");
    let left: Vec<_> = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".benchd")), "{left:?}");
    // What was put in place is a change; another one goes on a clean tree only.
    reference.refused(&["overlay", "--archive", &out, "--tree", &tree], "OVERLAY-TREE-NOT-CLEAN");
}

#[test]
fn a_surface_on_disk_is_refused_for_links_build_trees_weights_and_bytes() {
    let out = |tree: &Repository| tree.beside("out.tar.gz");
    let refused = |spoil: &dyn Fn(&Repository), name: &str| {
        let tree = Repository::new();
        spoil(&tree);
        tree.refused(&["pack", "--out", &out(&tree)], name);
        tree.refused(&["check-submission", "--mode", "whole-surface"], name);
        assert!(!Path::new(&out(&tree)).exists(), "no archive of what is refused");
    };
    refused(&|tree| symlink("/etc/passwd", tree.path("engine/x")).unwrap(), "SUBMISSION-ENTRY-NOT-A-FILE");
    refused(
        &|tree| fs::hard_link(tree.path("engine/old.rs"), tree.path("engine/x")).unwrap(),
        "SUBMISSION-ENTRY-NOT-A-FILE",
    );
    refused(&|tree| tree.write("engine/target/debug/a.o", "x"), "SUBMISSION-HOLDS-ARTIFACT");
    refused(&|tree| tree.write("mtp-head/head.gguf", "x"), "SUBMISSION-HOLDS-ARTIFACT");
    refused(&|tree| tree.write("engine/big", &"x".repeat(4_473_322)), "SURFACE-BUDGET-EXCEEDED");
    refused(
        &|tree| {
            fs::remove_dir_all(tree.path("mtp-head")).unwrap();
        },
        "SUBMISSION-PATH-MISSING",
    );
    // Ignored by git and on the surface all the same.
    refused(
        &|tree| {
            tree.write(".gitignore", "target/\n");
            tree.write("engine/target/x", "x");
        },
        "SUBMISSION-HOLDS-ARTIFACT",
    );
    let tree = Repository::new();
    tree.write("mtp-head.manifest.json", r#"{"spec":{"enabled":true,"num_speculative_tokens":7}}"#);
    let said = tree.benchd(&["pack", "--out", &out(&tree)]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("is not a contract-permitted draft depth"), "{said:?}");
}

#[test]
fn each_hostile_archive_is_refused_by_name_and_no_tree_is_touched() {
    let tree = Repository::new();
    let (path, at) = (tree.beside("hostile.tar.gz"), tree.path("").display().to_string());
    for (item, name) in [
        (file("/etc/cron.d/x"), "SUBMISSION-PATH-ESCAPES"),
        (file("engine/../tools/x"), "SUBMISSION-PATH-ESCAPES"),
        (file("../x"), "SUBMISSION-PATH-ESCAPES"),
        (file("tools/build.sh"), "EDIT-OUTSIDE-SURFACE"),
        (file("benchmark.json"), "EDIT-OUTSIDE-SURFACE"),
        (file(".git/hooks/post-checkout"), "EDIT-OUTSIDE-SURFACE"),
        (file("engine/.git/config"), "SUBMISSION-HOLDS-ARTIFACT"),
        (file("engine/target/release/x"), "SUBMISSION-HOLDS-ARTIFACT"),
        (file("mtp-head/head.safetensors"), "SUBMISSION-HOLDS-ARTIFACT"),
        (file("engine/a.rs"), "SUBMISSION-ENTRY-TWICE"),
        (file("engine/A.RS"), "SUBMISSION-ENTRY-TWICE"),
        (Item("engine/l", EntryType::Symlink, b"", 0o777), "SUBMISSION-ENTRY-NOT-A-FILE"),
        (Item("engine/h", EntryType::Link, b"", 0o644), "SUBMISSION-ENTRY-NOT-A-FILE"),
        (Item("engine/p", EntryType::Fifo, b"", 0o644), "SUBMISSION-ENTRY-NOT-A-FILE"),
        (Item("engine/d", EntryType::Block, b"", 0o644), "SUBMISSION-ENTRY-NOT-A-FILE"),
        (Item("engine/s", EntryType::Regular, b"x", 0o4755), "SUBMISSION-ENTRY-NOT-A-FILE"),
    ] {
        let mut items = least();
        items.push(item);
        archive(&path, &items);
        tree.refused(&["check-submission", "--archive", &path], name);
        tree.refused(&["overlay", "--archive", &path, "--tree", &at], name);
        assert_eq!(tree.git(&["status", "--porcelain"]), "", "{name}");
    }
    archive(&path, &least()[1..]);
    tree.refused(&["check-submission", "--archive", &path], "SUBMISSION-PATH-MISSING");
    archive(&path, &least());
    let whole = fs::read(&path).unwrap();
    for (bytes, what) in [(&whole[..whole.len() / 2], "half"), (b"PK\x03\x04", "another format"), (b"", "nothing")] {
        fs::write(&path, bytes).unwrap();
        let said = tree.benchd(&["check-submission", "--archive", &path]);
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains("is no whole tar in gzip"), "{what}: {said}");
    }
    fs::write(&path, vec![0; (25 << 20) + 1]).unwrap();
    tree.refused(&["check-submission", "--archive", &path], "SURFACE-BUDGET-EXCEEDED");
}

#[test]
fn an_archive_that_unpacks_to_more_than_any_surface_is_refused_by_its_first_file() {
    let tree = Repository::new();
    let path = tree.beside("bomb.tar.gz");
    let zeros: &'static [u8] = vec![0; 5_000_000].leak();
    let mut items = least();
    items.push(Item("engine/zeros", EntryType::Regular, zeros, 0o644));
    archive(&path, &items);
    assert!(fs::metadata(&path).unwrap().len() < 100_000);
    let said = tree.refused(&["check-submission", "--archive", &path], "SURFACE-BUDGET-EXCEEDED");
    assert!(said.contains("engine/zeros has 5000000 bytes, maxFileBytes allows 4473321"), "{said}");
}

#[test]
fn no_mode_selected_is_no_review_that_passes() {
    let tree = Repository::new();
    for line in [
        &[][..],
        &["--mode", "diff"],
        &["--mode", "quick"],
        &["--base", ""],
        &["--base", "HEAD", "--mode", "whole-surface"],
    ] {
        tree.refused(&[&["check-submission"][..], line].concat(), "REVIEW-MODE-NOT-SELECTED");
    }
    let whole = ["check-submission", "--mode", "whole-surface"];
    assert_eq!(tree.passes(&whole), "ok: 5 files on the surface\n");
    for track in ["", "other-cuda-v1"] {
        tree.refused(&[&whole[..], &["--track-id", track]].concat(), "SUBMISSION-TRACK-MISMATCH");
    }
}

#[test]
fn a_change_is_reviewed_by_the_rules_of_its_base() {
    let tree = Repository::new();
    let base = tree.git(&["rev-parse", "HEAD"]);
    let review = ["check-submission", "--base", base.as_str()];
    assert_eq!(tree.passes(&review), "ok: no editable path is changed\n");
    tree.write("engine/src/lib.rs", "// faster\n");
    tree.write("tools/x.sh", "not this review's concern\n");
    fs::remove_file(tree.path("engine/old.rs")).unwrap();
    tree.commit();
    assert_eq!(tree.passes(&review), "ok: 1 changed editable files, 1 deleted\n");
    // Rules of one's own change nothing.
    let manifest = fs::read_to_string(tree.path("benchmark.json")).unwrap();
    tree.write("benchmark.json", &manifest.replace("4473321", "19550883"));
    tree.write("engine/big", &"x".repeat(4_473_322));
    tree.commit();
    let said = tree.refused(&review, "SURFACE-BUDGET-EXCEEDED");
    assert!(said.contains("is the clone older than its base?"), "{said}");
    fs::remove_file(tree.path("engine/big")).unwrap();
    symlink("/etc", tree.path("engine/etc")).unwrap();
    tree.commit();
    tree.refused(&review, "SUBMISSION-ENTRY-NOT-A-FILE");
    // The text of the change counts: three files of 4 MB are 12, and their lines once more.
    fs::remove_file(tree.path("engine/etc")).unwrap();
    for name in ["a", "b", "c"] {
        tree.write(&format!("engine/{name}.rs"), &"0123456789\n".repeat(370_000));
    }
    tree.commit();
    let said = tree.refused(&review, "SURFACE-BUDGET-EXCEEDED");
    assert!(said.contains("maxTotalBytes allows 19550883"), "{said}");
    tree.refused(&["check-submission", "--base", &base, "--head", &base], "REVIEW-HEAD-NOT-CHECKED-OUT");
}
