//! The commands that start no engine, as programs: results, exit codes, refusals by name.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a helper that fails, fails its test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TINY: &str = "qwen4exp-tiny-story-cpu-v1";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn benchd_in(folder: &Path, line: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_benchd"));
    command.args(line).current_dir(folder);
    for name in ["MLXFAST_QWEN_MTP_TRACK_ID", "MLXFAST_MAX_WEIGHTS_BYTES", "SPEC_DECLARATION_MANIFEST"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn benchd(line: &[&str]) -> Output {
    benchd_in(&root(), line)
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// The exit code and what was said; a refusal is one line.
fn refused(output: &Output) -> (i32, String) {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    (output.status.code().unwrap(), said)
}

fn golden() -> String {
    root().join("correctness_prompts/stories.golden.json").display().to_string()
}

#[test]
fn a_command_line_that_cannot_be_followed_is_exit_2_and_help_is_0() {
    for line in [&[][..], &["frobnicate"], &["validate-golden"], &["transform"], &["submit"], &["official"]] {
        let output = benchd(line);
        assert_eq!(output.status.code(), Some(2), "{line:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{line:?}");
    }
    for line in [&["--help"][..], &["-h"], &["help"], &["validate-golden", "--help"]] {
        let output = benchd(line);
        assert_eq!(output.status.code(), Some(0), "{line:?}");
        assert!(stdout(&output).contains("Usage: benchd"), "{line:?}");
    }
}

#[test]
fn the_paired_flow_of_other_tracks_is_refused_by_name() {
    for (command, code) in [("measure-job", 5), ("overlay-timing", 6), ("prefill-decompose", 8)] {
        let (found, said) = refused(&benchd(&[command, "--whatever", "x"]));
        assert_eq!(found, code);
        assert!(said.contains("REFUSING -- PAIRED-FLOW-RETIRED-FOR-TRACK"), "{said}");
    }
}

#[test]
fn a_golden_is_valid_with_its_pin_and_one_digit_of_it_is_not() {
    let valid = benchd(&["validate-golden", "--golden", &golden(), "--track", TINY]);
    assert!(valid.status.success());
    let found: serde_json::Value = serde_json::from_slice(&valid.stdout).unwrap();
    let (sha256, bytes) = (found["sha256"].as_str().unwrap(), found["bytes"].to_string());

    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("stories.golden.json");
    let text = fs::read_to_string(golden()).unwrap();
    let at = text.rfind("expected_decode_tokens").unwrap()
        + text[text.rfind("expected_decode_tokens").unwrap()..].find(char::is_numeric).unwrap();
    let mut wrong = text.clone();
    let digit = if &text[at..=at] == "1" { "2" } else { "1" };
    wrong.replace_range(at..=at, digit);
    fs::write(&copy, wrong).unwrap();

    let check = |golden: &str| {
        benchd(&[
            "validate-golden",
            "--golden",
            golden,
            "--track",
            TINY,
            "--golden-sha256",
            sha256,
            "--golden-bytes",
            &bytes,
        ])
    };
    assert!(check(&golden()).status.success());
    let (code, said) = refused(&check(copy.to_str().unwrap()));
    assert_eq!(code, 1);
    assert!(said.contains("correctness golden sha256 mismatch"), "{said}");
    fs::write(&copy, text + "\n").unwrap();
    let (code, said) = refused(&check(copy.to_str().unwrap()));
    assert_eq!(code, 1);
    assert!(said.contains("correctness golden byte count mismatch: expected"), "{said}");
}

#[test]
fn the_negative_controls_are_refused_for_what_is_wrong_with_them() {
    for (name, want) in [
        ("negative-model-type", "model_type is \"qwen4_exp_vision\""),
        ("negative-vocabulary", "stories.prompt_tokens[7] is outside configured vocab range 0..<4096"),
    ] {
        let path = format!("correctness_prompts/{name}.golden.json");
        let contract = ["--contract", "fixtures/tiny_story_track.json"];
        let (code, said) = refused(&benchd(&[&["validate-golden", "--golden", &path][..], &contract].concat()));
        assert_eq!(code, 1);
        assert!(said.contains("REFUSING") && said.contains(want), "{said}");
    }
}

#[test]
fn a_track_without_a_fixture_or_with_anothers_is_refused() {
    let line = ["validate-golden", "--golden", &golden()];
    let (code, said) = refused(&benchd(&line));
    assert_eq!(code, 2, "{said}");
    let (code, said) = refused(&benchd(&[&line[..], &["--track", "nobodys-cuda-v1"]].concat()));
    assert_eq!(code, 1);
    assert!(said.contains("MODEL-IDENTITY-UNDECLARED-FOR-TRACK"), "{said}");
    let other = ["--track", "nobodys-cuda-v1", "--contract", "fixtures/tiny_story_track.json"];
    let (code, said) = refused(&benchd(&[&line[..], &other].concat()));
    assert_eq!(code, 1);
    assert!(said.contains("the run's track is `nobodys-cuda-v1`"), "{said}");
    let (code, said) = refused(&benchd(&[&line[..], &["--track", "nobodys-rocm-v1"]].concat()));
    assert_eq!(code, 1);
    assert!(said.contains("is not of the form NAME-mlx|cuda|cpu-vN"), "{said}");
}

#[test]
fn only_gates_only_accepts_a_golden_without_a_timed_block() {
    let folder = tempfile::tempdir().unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(golden()).unwrap()).unwrap();
    document.as_object_mut().unwrap().remove("benchmark");
    let path = folder.path().join("gates.golden.json");
    fs::write(&path, document.to_string()).unwrap();
    let line = ["validate-golden", "--golden", path.to_str().unwrap(), "--track", TINY];
    assert!(benchd(&[&line[..], &["--gates-only"]].concat()).status.success());
    let (code, said) = refused(&benchd(&line));
    assert_eq!(code, 1);
    assert!(said.contains("benchmark"), "{said}");
}

#[test]
fn weights_are_refused_for_links_size_and_pins_and_exit_3_when_they_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("weights");
    fs::create_dir_all(weights.join("sub")).unwrap();
    fs::write(weights.join("sub/a.gguf"), "12345").unwrap();
    let path = weights.to_str().unwrap();
    let check = |more: &[&str]| benchd(&[&["validate-weights", "--weights", path][..], more].concat());
    for cap in ["", "5", "none", "0", "unlimited"] {
        assert!(check(&["--max-bytes", cap]).status.success(), "{cap}");
    }
    let (code, said) = refused(&check(&["--max-bytes", "4"]));
    assert_eq!(code, 1);
    assert!(said.contains("more than 4 bytes"), "{said}");
    assert_eq!(refused(&check(&["--max-bytes=-1"])).0, 2);

    let contract = ["--contract", "fixtures/tiny_story_track.json"];
    let (code, said) = refused(&check(&contract));
    assert_eq!(code, 1);
    assert!(said.contains("pinned checkpoint file is missing"), "{said}");
    let models = root().join("models/tiny");
    for file in ["tiny-story-UD-Q4_K_XL.gguf", "mtp-tiny-story-Q8_0.gguf"] {
        fs::copy(models.join(file), weights.join(file)).unwrap();
    }
    fs::remove_dir_all(weights.join("sub")).unwrap();
    assert!(check(&contract).status.success());
    // A head of the same size that is another.
    let head = weights.join("mtp-tiny-story-Q8_0.gguf");
    let mut bytes = fs::read(&head).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&head, &bytes).unwrap();
    let (code, said) = refused(&check(&contract));
    assert_eq!(code, 1);
    assert!(said.contains("mtp-tiny-story-Q8_0.gguf: sha256 mismatch: staged "), "{said}");
    fs::write(&head, &bytes[1..]).unwrap();
    let (_, said) = refused(&check(&contract));
    assert!(said.contains("byte-count mismatch: staged 2561119, pinned 2561120"), "{said}");

    std::os::unix::fs::symlink(&head, weights.join("link.gguf")).unwrap();
    let (code, said) = refused(&check(&["--max-bytes", "none"]));
    assert_eq!(code, 1);
    assert!(said.contains("link.gguf: is a link"), "{said}");
    let (code, _) = refused(&benchd(&["validate-weights", "--weights", "no-such-folder"]));
    assert_eq!(code, 3);
}

#[test]
fn a_folders_identity_depends_on_names_and_contents_alone() {
    let folder = tempfile::tempdir().unwrap();
    let digest = |name: &str| {
        let output = benchd_in(folder.path(), &["weights-digest", "--weights", name]);
        assert!(output.status.success());
        stdout(&output).trim().to_owned()
    };
    for (name, files) in [("one", ["a", "b"]), ("two", ["b", "a"])] {
        fs::create_dir(folder.path().join(name)).unwrap();
        for file in files {
            fs::write(folder.path().join(name).join(file), file).unwrap();
        }
    }
    fs::write(folder.path().join("two/.gitkeep"), "left out").unwrap();
    assert_eq!(digest("one"), digest("two"));
    assert!(digest("one").ends_with(":2:2"), "{}", digest("one"));
    fs::write(folder.path().join("two/a"), "A").unwrap();
    assert_ne!(digest("one"), digest("two"));
}

/// A checkout of its own: one editable folder, the rest trusted.
fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let git =
        |args: &[&str]| assert!(Command::new("git").args(args).current_dir(folder.path()).status().unwrap().success());
    git(&["init", "--quiet"]);
    fs::copy(root().join("benchmark.json"), folder.path().join("benchmark.json")).unwrap();
    fs::create_dir(folder.path().join("engine")).unwrap();
    fs::write(folder.path().join("engine/lib.rs"), "").unwrap();
    fs::write(folder.path().join("rule"), "one").unwrap();
    fs::write(folder.path().join(".gitignore"), "target\n").unwrap();
    git(&["add", "--all"]);
    folder
}

#[test]
fn the_harness_is_everything_but_the_surface_and_what_git_ignores() {
    let tree = checkout();
    let hash = || stdout(&benchd_in(tree.path(), &["harness-hash"])).trim().to_owned();
    let before = hash();
    assert_eq!(before.len(), 64);
    fs::write(tree.path().join("engine/lib.rs"), "an edit").unwrap();
    fs::write(tree.path().join("target"), "built").unwrap();
    assert_eq!(hash(), before);
    // The same files in another place are the same harness.
    let other = checkout();
    assert_eq!(stdout(&benchd_in(other.path(), &["harness-hash"])).trim(), before);
    fs::write(tree.path().join("new"), "not yet tracked").unwrap();
    let with_new = hash();
    assert_ne!(with_new, before);
    fs::remove_file(tree.path().join("new")).unwrap();
    fs::write(tree.path().join("rule"), "two").unwrap();
    assert_ne!(hash(), before);
    std::os::unix::fs::symlink("rule", tree.path().join("link")).unwrap();
    let (code, said) = refused(&benchd_in(tree.path(), &["harness-hash"]));
    assert_eq!(code, 1);
    assert!(said.contains("link: is no regular file"), "{said}");
}

#[test]
fn a_tree_outside_git_has_no_harness() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("benchmark.json"), folder.path().join("benchmark.json")).unwrap();
    let (code, said) = refused(&benchd_in(folder.path(), &["harness-hash"]));
    assert_eq!(code, 1);
    assert!(said.contains("run this in a checkout"), "{said}");
}

#[test]
fn the_repositorys_own_manifest_passes_its_lint() {
    let output = benchd(&["lint-manifest"]);
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(stdout(&output), "ok\n");
}

#[test]
fn a_defect_of_the_manifest_is_a_fail_line_and_exit_1() {
    let tree = checkout();
    let output = benchd_in(tree.path(), &["lint-manifest"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).lines().all(|line| line.starts_with("FAIL ")), "{}", stdout(&output));
    assert!(stdout(&output).contains("FAIL editablePaths: `harness` does not exist\n"), "{}", stdout(&output));
}

#[test]
fn the_declarations_verbs_print_what_scripts_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("declaration.json");
    let ask = |verb: &[&str], text: Option<&str>| {
        let _ = fs::remove_file(&path);
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let line = [&["spec-declaration"][..], verb, &["--manifest", path.to_str().unwrap()]].concat();
        let output = benchd(&line);
        (output.status.code().unwrap(), stdout(&output).to_owned())
    };
    let drafting = Some(r#"{"spec":{"enabled":true,"num_speculative_tokens":6}}"#);
    for (verb, text, want) in [
        ("describe", None, "serial\n"),
        ("describe", drafting, "mtp6\n"),
        ("speculative", drafting, "1\n"),
        ("speculative", Some("{}"), "0\n"),
        ("draft-len", drafting, "6\n"),
        ("draft-len", Some("{}"), "0\n"),
        ("validate", drafting, ""),
    ] {
        assert_eq!(ask(&[verb], text), (0, want.to_owned()), "{verb} {text:?}");
    }
    let bad = Some(r#"{"spec":{"enabled":true,"num_speculative_tokens":7}}"#);
    assert_eq!(ask(&["describe"], bad), (1, String::new()));
    // An invalid file comes before an unknown verb.
    assert_eq!(ask(&["frobnicate"], bad), (1, String::new()));
    assert_eq!(ask(&["frobnicate"], drafting), (2, String::new()));
    assert_eq!(ask(&[], drafting), (2, String::new()));
}

#[test]
fn a_contract_that_cannot_be_read_permits_no_depth() {
    let line = ["spec-declaration", "describe", "--contract", "no-such-file"];
    let (code, said) = refused(&benchd(&line));
    assert_eq!(code, 1);
    assert!(said.contains("permitted_draft_depths: none"), "{said}");
}

#[test]
fn staging_copies_a_program_whole_and_refuses_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let (built, staged) = (folder.path().join("built"), folder.path().join("deep/worker"));
    let line = ["stage-engine", "--engine", built.to_str().unwrap(), "--to", staged.to_str().unwrap()];
    let (code, said) = refused(&benchd(&line));
    assert_eq!(code, 1);
    assert!(said.contains("built: is not there"), "{said}");
    fs::write(&built, "#!/bin/sh\nexit 7\n").unwrap();
    assert!(benchd(&line).status.success());
    assert_eq!(Command::new(&staged).status().unwrap().code(), Some(7));
    assert_eq!(fs::read_dir(staged.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn the_real_fixture_keeps_the_facts_of_the_published_one() {
    let read =
        |path: &str| -> serde_json::Value { serde_json::from_slice(&fs::read(root().join(path)).unwrap()).unwrap() };
    let ours = read("fixtures/qwen3_8_125b_a6b_track.json");
    let published = read("testdata/track/qwen3_8_125b_a6b_track.json");
    for key in [
        "track_id",
        "official_scoring_enabled",
        "official_pairs",
        "allowed_modes",
        "kv_backend",
        "scored_batch_size",
        "decode_speedup_floor",
        "prefill_speedup_floor",
        "scored_exponents",
        "live_golden",
        "timed_prompt_pool",
        "hidden_correctness_golden",
        "live_golden_speculative",
        "mtp_head",
    ] {
        assert_eq!(ours[key], published[key], "{key}");
        assert!(!ours[key].is_null(), "{key}");
    }
    assert_eq!(ours["target"]["files"], published["target"]["files"]);
    assert_eq!(ours["serve_configuration"]["toolchain"], published["serve_configuration"]["toolchain"]);
    assert!(ours["serve_configuration"].get("engine_pin").is_none());
    assert_eq!(ours["baseline_reference_commit"], "PENDING-ORGANIZER");
}

#[test]
fn every_golden_of_the_embedded_track_is_there_and_is_the_one_pinned() {
    let fixture = root().join("fixtures/tiny_story_track.json");
    let fixture: serde_json::Value = serde_json::from_slice(&fs::read(fixture).unwrap()).unwrap();
    let oracles = fixture["live_golden_speculative"].as_object().unwrap().values();
    let pinned: Vec<_> = fixture["timed_prompt_pool"].as_array().unwrap().iter().chain(oracles).collect();
    assert_eq!(pinned.len(), 7);
    for entry in pinned {
        let (path, sha256) = (entry["r2_path"].as_str().unwrap(), entry["sha256"].as_str().unwrap());
        let bytes = entry["bytes"].to_string();
        let pin = ["--golden-sha256", sha256, "--golden-bytes", &bytes, "--contract", "fixtures/tiny_story_track.json"];
        assert!(benchd(&[&["validate-golden", "--golden", path][..], &pin].concat()).status.success(), "{path}");
    }
}
