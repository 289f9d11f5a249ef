//! `synth`, and `--synth` in place of files.

use std::path::Path;
use std::process::Command;

use crate::fixture::{Cli, Ran, tokens};
use crate::refusals::interrupted;

const BASE: &str = "Qwen3.8-Flash-Next-UD-Q4_K_XL";
const HEAD: &str = "mtp-Qwen3.8-Flash-Next-shared-Q8_0.gguf";

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_synthetic_set_runs_as_the_same_model_in_memory_does() {
    let cli = Cli::new();
    let ran = cli.run(&["synth", "--out", "new/set", "--shape", "small", "--shard-bytes", "800000"]).ok();
    assert!(ran.out.is_empty() && ran.err.lines().count() == 1, "{ran:?}");
    let files = names(&cli.path("new/set"));
    let shards = files.len() - 1;
    assert!(shards > 2 && files[shards] == HEAD, "{files:?}");
    assert_eq!(files[0], format!("{BASE}-00001-of-{shards:05}.gguf"));

    let from = |source: [&str; 2], line: &[&str]| cli.run(&[line, &source].concat()).ok();
    let (file, memory) = (["-m", "new/set"], ["--synth", "shape=small"]);
    let run = ["run", "--ids", "300,301,302", "-n", "12", "--temp", "0", "--ignore-stop", "--depth", "2", "--json"];
    let (a, b) = (from(file, &run).json(), from(memory, &run).json());
    assert_eq!((tokens(&a), &a["rounds"]), (tokens(&b), &b["rounds"]));
    let logits = |source, out: &str| {
        from(source, &["eval", "--ids", "300,301,302", "--out", out]);
        std::fs::read(cli.path(out)).unwrap()
    };
    assert!(logits(file, "a.npy") == logits(memory, "b.npy"));

    let (a, b) = (from(file, &["inspect", "--json"]).json(), from(memory, &["inspect", "--json"]).json());
    assert_eq!((&a["model"]["families"], &a["geometry"]), (&b["model"]["families"], &b["geometry"]));
    assert_eq!(a["draft_head"]["tensor_bytes"], b["draft_head"]["tensor_bytes"]);
    assert_eq!(
        from(memory, &["tokenize", "--json", "one two"]).out,
        from(file, &["tokenize", "--json", "one two"]).out
    );
}

#[test]
fn a_set_that_is_there_is_replaced_by_force_alone() {
    let cli = Cli::new();
    let line = ["synth", "--out", "set", "--shape", "small", "--no-head"];
    cli.run(&line).ok();
    let shard = cli.path("set").join(format!("{BASE}-00002-of-00002.gguf"));
    let first = std::fs::read(&shard).unwrap();
    cli.run(&[&line[..], &["--seed", "1"]].concat()).refused(1, &["--out set", "--force", BASE]);
    assert!(first == std::fs::read(&shard).unwrap());
    cli.run(&[&line[..], &["--seed", "1", "--force"]].concat()).ok();
    assert!(first != std::fs::read(&shard).unwrap());
    cli.run(&[&line[..], &["--force"]].concat()).ok();
    assert!(first == std::fs::read(&shard).unwrap(), "the same numbers give the same bytes");
    assert_eq!(names(&cli.path("set")).len(), 2);
}

#[test]
fn a_synthetic_model_that_cannot_be_is_refused_before_anything_is_written() {
    let cli = Cli::new();
    std::fs::write(cli.path("file"), "").unwrap();
    let huge = ["synth", "--out", "a/b", "--layers", "2000"];
    cli.run(&huge).refused(1, &["--out a/b", "needs", "the disk has room for", "--layers"]);
    for (line, words) in [
        (&["synth", "--out", "file", "--shape", "small"][..], &["--out file", "is no directory"][..]),
        (&["run", "x", "--synth", "layers=1000"], &["--synth", "needs", "of memory"]),
        (&["eval", "x", "--out", "l.npy", "--synth", "layers=1000"], &["--synth", "needs"]),
    ] {
        cli.run(line).refused(1, words);
    }
    for (line, word) in [
        (&["synth", "--shape", "small"][..], "--out"),
        (&["synth", "--out", "-"], "./-"),
        (&["synth", "--out", "a", "--types", "Q9_9"], "Q6_K"),
        (&["synth", "--out", "a", "--layers", "1"], "2 to 4096"),
        (&["synth", "--out", "a", "--layers", "0"], "'--layers <N>': expected 2 to 4096"),
        (&["synth", "--out", "a", "--vocab", "0"], "'--vocab <N>': expected 289"),
        (&["synth", "--out", "a", "--ngram-rows", "0"], "'--ngram-rows <N>': expected 64 to 34359738368"),
        (&["synth", "--out", "a", "--shard-bytes", "0"], "'--shard-bytes <N>': expected 1 to"),
        (&["synth", "--out", "a", "--seed", "-1"], "'--seed <N>': expected 0 to"),
        (&["run", "x", "--synth", "layer=4"], "`layer`"),
        (&["run", "x", "--synth", "layers=0"], "layers=0: expected 2 to 4096"),
        (&["run", "x", "--synth", "layers=4,seed=1,layers=5"], "`layers` is given twice"),
        (&["run", "x", "--synth", "layers=4", "-m", "file"], "-m"),
    ] {
        cli.run(line).refused(2, &["--help", word]);
    }
    let rows = (4u64 << 31) + 1; // four hash heads
    cli.run(&["synth", "--out", "a", "--shape", "small", "--ngram-rows", &rows.to_string()])
        .refused(2, &["n-gram rows: 8589934593", "64 to 8589934592"]);
    assert_eq!(cli.files(), ["file"]);
}

/// A limit on the size of a file stands for a disk that fills up: the same failed write.
#[test]
fn a_write_that_fails_leaves_nothing_behind() {
    let cli = Cli::new();
    let line = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" synth --out set --shape small";
    let mut command = Command::new("bash");
    command.current_dir(cli.folder.path()).args(["-c", line, env!("CARGO_BIN_EXE_cudafast")]);
    let ran = Ran::of(command.output().unwrap());
    ran.refused(1, &[&format!("--out set/{BASE}-00002"), "File too large"]);
    assert!(cli.files().is_empty());
}

#[test]
fn an_interrupted_synth_leaves_nothing_behind() {
    let cli = Cli::new();
    std::fs::create_dir(cli.path("there")).unwrap();
    for (folder, signal) in [("new", "-INT"), ("there", "-TERM")] {
        let line = ["synth", "--out", folder, "--layers", "2", "--vocab", "1000", "--ngram-rows", "1000", "--no-head"];
        let ran =
            interrupted(&cli, &line, signal, |_| cli.path(folder).is_dir() && !names(&cli.path(folder)).is_empty());
        ran.refused(130, &["interrupted"]);
    }
    assert_eq!(cli.files(), ["there"]);
    assert!(names(&cli.path("there")).is_empty());
}
