//! Bad input: a one-line error, the right exit code, nothing half written.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::fixture::{Cli, Ran, oracle, tiny};
use cudafast_gguf::{Value, Writer};

const PROMPT: &str = "Once upon a time";
/// How an NPY file begins.
const NPY: &[u8] = b"\x93NUMPY\x01\x00";

#[test]
fn a_command_line_that_cannot_be_followed_exits_with_2_and_says_what_is_wrong() {
    let cli = Cli::new();
    for (line, word) in [
        (&["run", "--no-such-flag"][..], "--no-such-flag"),
        (&["run"], "PROMPT"),
        (&["run", PROMPT, "--ids", "1,2"], "--ids"),
        (&["run", "--ids", "1,x"], "`x` is no token id"),
        (&["run", PROMPT, "--depth", "7"], "0 to 6, or auto"),
        (&["run", PROMPT, "--temp", "-1"], "--temp"),
        (&["run", PROMPT, "--temp", "nan"], "--temp"),
        (&["run", PROMPT, "--top-p", "0"], "--top-p"),
        (&["run", PROMPT, "--min-p", "1.5"], "--min-p"),
        (&["run", PROMPT, "--repeat-penalty", "0"], "--repeat-penalty"),
        (&["run", PROMPT, "--presence-penalty", "-2.5"], "--presence-penalty"),
        (&["chat", "--frequency-penalty", "nan"], "--frequency-penalty"),
        (&["run", PROMPT, "--logit-bias", "fox=1"], "42=-5.5"),
        (&["run", PROMPT, "--logit-bias", "-1=1"], "a token id and a number from -100 to 100"),
        (&["run", PROMPT, "--logit-bias", "5=101"], "-100 to 100"),
        (&["chat", "--logit-bias", "5=nan"], "-100 to 100"),
        (&["run", PROMPT, "--threads", "-1"], "0 to 1024"),
        (&["run", PROMPT, "--depth", "-1"], "0 to 6, or auto"),
        (&["run", PROMPT, "--seed", "-1"], "0 to 18446744073709551615"),
        (&["run", PROMPT, "--ctx-tokens", "0"], "1 to"),
        (&["inspect", "--ctx-tokens", "-1"], "1 to"),
        (&["perplexity", "x", "--ctx-tokens", "0"], "'0' for '--ctx-tokens <N>': expected 2 to"),
        (&["perplexity", "x", "--stride", "0"], "'0' for '--stride <N>': expected 1 to"),
        (&["eval", PROMPT, "--out", "-"], "--out <FILE>': cannot be standard output"),
        (&["trace", "dump", PROMPT, "--out", "-"], "--out <FILE>': cannot be standard output"),
        (&["verify", "--write", "-"], "--write <FILE>': cannot be standard output"),
        (&["run", PROMPT, "--stop", ""], "at least one character"),
        (&["run", PROMPT, "--json", "--logprobs", "21"], "0 to 20"),
        (&["run", PROMPT, "--logprobs", "2"], "--json"),
        (&["run", PROMPT, "--device", "gpu"], "cpu, cuda, or cuda:N"),
        (&["run", PROMPT, "--hnorm", "both"], "per-stream"),
        (&["run", PROMPT, "--mtp-model", "x", "--no-mtp"], "--no-mtp"),
        (&["run", PROMPT, "--hnorm", "per-stream", "--no-mtp"], "--no-mtp"),
        (&["perplexity", "x", "--hnorm", "single"], "unexpected argument '--hnorm'"),
        (&["run", PROMPT, "--think"], "--chat"),
        (&["eval", "--ids", "1"], "--out"),
        (&["fly"], "fly"),
        (&["run", PROMPT, "--threads", "1025"], "0 to 1024"),
        (&["eval", PROMPT, "--out", "l.npy", "--threads", "18446744073709551616"], "0 to 1024"),
        (&["run", PROMPT, "-n", "-1"], "'-1'"),
        (&["run", PROMPT, "-n", "x\ny"], "'x"),
        (&["run", PROMPT, "--top-k", "99999999999999999999"], "--top-k"),
        (&[], "no command"),
    ] {
        cli.run(line).refused(2, &[word, "--help"]);
    }
}

#[test]
fn a_bias_that_no_token_can_have_is_refused_by_its_id() {
    let cli = Cli::new();
    cli.run(&["run", PROMPT, "--logit-bias", "3=1", "--logit-bias", "4096=1"])
        .refused(1, &["--logit-bias 4096", "4096"]);
    let twice = ["run", PROMPT, "--logit-bias", "3=1", "--logit-bias", "4=1", "--logit-bias", "3=2", "-m", "missing"];
    cli.run(&twice).refused(2, &["--logit-bias", "token 3 is given twice"]);
}

#[test]
fn numbers_as_large_as_they_come_are_followed_or_refused_at_once() {
    let cli = Cli::new();
    let most = &usize::MAX.to_string();
    cli.run(&["run", PROMPT, "--ctx-tokens", most]).refused(1, &["--ctx-tokens", most, "4096"]);
    let listed = cli.run(&["inspect", "--ctx-tokens", most]);
    assert!(listed.code == 1 && listed.err.contains(&format!("--ctx-tokens {most}")), "{listed:?}");
    cli.run_with(&["chat", "--ctx-tokens", most], "").refused(1, &["--ctx-tokens", most, "4096"]);
    let line = ["run", PROMPT, "-n", most, "--top-k", most, "--seed", &u64::MAX.to_string(), "--temp", "3e38"];
    let ran = cli.run(&[&line[..], &["--ctx-tokens", "24", "--json"]].concat()).ok();
    assert!(ran.out.contains("context_full"), "{ran:?}");
}

/// The process and the first bytes it prints, or the first file it makes.
pub(crate) fn interrupted(
    cli: &Cli,
    line: &[&str],
    signal: &str,
    begun: impl Fn(&mut std::process::ChildStdout) -> bool,
) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudafast"));
    command.current_dir(cli.folder.path()).args(line).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    while !begun(&mut out) {
        assert!(child.try_wait().unwrap().is_none(), "ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    Ran::of(std::process::Output { stdout: rest, ..output })
}

#[test]
fn an_interrupted_run_ends_with_its_summary_and_exit_code_130() {
    let cli = Cli::new();
    for signal in ["-INT", "-TERM"] {
        let line = ["run", PROMPT, "-n", "4000", "--ignore-stop"];
        let ran = interrupted(&cli, &line, signal, |out| out.read(&mut [0]).unwrap() == 1);
        let notes: Vec<&str> = ran.err.lines().collect();
        assert_eq!((ran.code, notes.len()), (130, 2), "{ran:?}");
        assert!(notes[0].contains("generated") && notes[0].ends_with("; cancelled"), "{ran:?}");
        assert_eq!(notes[1], "cudafast: error: interrupted");
        assert!(ran.out.ends_with('\n'), "{ran:?}");
    }
}

#[test]
fn an_interrupted_eval_leaves_no_file() {
    let cli = Cli::new();
    let ids = vec!["7"; 4096].join(",");
    let line = ["eval", "--ids", &ids, "--out", "l.npy", "--threads", "1"];
    let ran = interrupted(&cli, &line, "-INT", |_| !cli.files().is_empty());
    ran.refused(130, &["interrupted"]);
    assert!(cli.files().is_empty());
}

#[test]
fn an_argument_that_is_not_utf8_is_named_on_one_line_with_exit_code_2() {
    let cli = Cli::new();
    for before in [&["run"][..], &["run", "--ids"], &["tokenize"], &["chat", "--system"]] {
        let output = cli.command(before).arg(OsStr::from_bytes(b"caf\xe9")).output().unwrap();
        let index = format!("argument {}", before.len() + 1);
        Ran::of(output).refused(2, &[&index, "caf", "not UTF-8"]);
    }
}

#[test]
fn a_model_that_cannot_be_read_is_named() {
    let cli = Cli::new();
    cli.run(&["run", PROMPT, "-m", "missing.gguf"]).refused(1, &["missing.gguf", "No such file"]);
    std::os::unix::fs::symlink("loop.gguf", cli.path("loop.gguf")).unwrap();
    cli.run(&["run", PROMPT, "-m", "loop.gguf"]).refused(1, &["loop.gguf"]);
    std::fs::write(cli.path("text.gguf"), "this is no model").unwrap();
    cli.run(&["run", PROMPT, "-m", "text.gguf"]).refused(1, &["text.gguf", "not a GGUF"]);
    let whole = std::fs::read(tiny(cudafast_tiny::MODEL_FILE)).unwrap();
    std::fs::write(cli.path("cut.gguf"), &whole[..whole.len() / 2]).unwrap();
    for command in ["run", "eval", "inspect"] {
        let line: &[&str] = match command {
            "run" => &["run", PROMPT, "-m", "cut.gguf"],
            "eval" => &["eval", PROMPT, "-m", "cut.gguf", "--out", "l.npy"],
            _ => &["inspect", "-m", "cut.gguf"],
        };
        cli.run(line).refused(1, &["cut.gguf", "truncated"]);
    }
    std::fs::create_dir(cli.path("empty")).unwrap();
    cli.run(&["run", PROMPT, "-m", "empty"]).refused(1, &["empty", "no model"]);
    assert_eq!(cli.files(), ["cut.gguf", "empty", "loop.gguf", "text.gguf"]);
}

/// lmstudio-bug-tracker#2345, unsloth#10015: an unknown architecture gave a misleading text.
#[test]
fn a_model_of_another_architecture_is_refused_by_both_names() {
    let cli = Cli::new();
    let mut bytes = Vec::new();
    let llama = Writer::new().kv("general.architecture", Value::String("llama".into()));
    llama.write_to(&mut bytes).unwrap();
    std::fs::write(cli.path("llama.gguf"), bytes).unwrap();
    for line in [&["run", PROMPT, "-m", "llama.gguf"][..], &["eval", PROMPT, "-m", "llama.gguf", "--out", "l.npy"]] {
        cli.run(line).refused(1, &["llama.gguf", "this engine runs qwen4exp; file says llama"]);
    }
    assert_eq!(cli.files(), ["llama.gguf"]);
}

#[test]
fn a_draft_head_that_is_missing_or_of_another_model_is_refused() {
    let cli = Cli::new();
    cli.run(&["run", PROMPT, "--mtp-model", "missing.gguf"]).refused(1, &["missing.gguf", "No such file"]);
    let foreign = oracle("mtp-tiny.gguf");
    let foreign = foreign.to_str().unwrap();
    cli.run(&["run", PROMPT, "--mtp-model", foreign]).refused(1, &["mtp-tiny.gguf", "draft head"]);
    cli.run(&["eval", PROMPT, "--mtp-model", foreign, "--out", "l.npy"]).refused(1, &["mtp-tiny.gguf", "draft head"]);
    cli.run(&["run", PROMPT, "-m", foreign]).refused(1, &["mtp-tiny.gguf"]);
    assert!(cli.files().is_empty());
}

#[test]
fn a_depth_above_0_without_a_head_is_refused() {
    let cli = Cli::new();
    cli.run(&["run", PROMPT, "--no-mtp", "--depth", "2"]).refused(1, &["--depth 2", "--mtp-model"]);
    cli.run(&["chat", "--no-mtp", "--depth", "1"]).refused(1, &["--depth 1", "--mtp-model"]);
    let among = oracle("tiny.gguf");
    let among = among.to_str().unwrap();
    cli.run(&["run", "-m", among, "--ids", "1", "--depth", "1"])
        .refused(1, &["--depth", "2 draft heads", "--mtp-model"]);
    let alone = cli.link(&tiny(cudafast_tiny::MODEL_FILE), "alone.gguf");
    cli.run(&["run", PROMPT, "-m", alone.to_str().unwrap(), "--depth", "1"]).refused(1, &["--depth 1", "--mtp-model"]);
}

/// ds4#150, llama.cpp#15780, #24735: a prompt that is too long was truncated, or refused with the wrong limit.
#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let cli = Cli::new();
    let ids = |n: usize| vec!["7"; n].join(",");
    cli.run(&["run", "--ids", &ids(9), "--ctx-tokens", "8"]).refused(1, &["9 tokens", "holds 8", "--ctx-tokens"]);
    // There is no context to raise.
    let most = &["4097", "4096; shorten it, the model was trained for no more"];
    cli.run(&["run", "--ids", &ids(4097)]).refused(1, most);
    std::fs::write(cli.path("l.npy"), NPY).unwrap();
    cli.run(&["eval", "--ids", &ids(4097), "--out", "l.npy"]).refused(1, most);
    assert_eq!(std::fs::read(cli.path("l.npy")).unwrap(), NPY);
    cli.run(&["trace", "dump", "--ids", &ids(4097), "--out", "t"]).refused(1, most);
    assert_eq!(cli.files(), ["l.npy"]);
}

#[test]
fn a_context_the_model_was_not_trained_for_is_refused() {
    let cli = Cli::new();
    for bad in ["4097", "1000000"] {
        cli.run(&["run", PROMPT, "--ctx-tokens", bad]).refused(1, &["--ctx-tokens", bad, "4096"]);
    }
}

#[test]
fn ids_outside_the_vocabulary_and_empty_prompts_are_refused() {
    let cli = Cli::new();
    cli.run(&["run", "--ids", "1,4096"]).refused(1, &["4096"]);
    cli.run(&["eval", "--ids", "1,4096", "--out", "l.npy"]).refused(1, &["4096"]);
    cli.run(&["run", ""]).refused(1, &["PROMPT: has no tokens"]);
    cli.run_with(&["run", "-"], "").refused(1, &["standard input: has no tokens"]);
    assert!(cli.files().is_empty());
    std::fs::write(cli.path("p.txt"), "").unwrap();
    cli.run(&["eval", "--prompt-file", "p.txt", "--out", "l.npy"]).refused(1, &["p.txt: has no tokens"]);
    assert_eq!(cli.files(), ["p.txt"]);
}

#[test]
fn a_prompt_that_cannot_be_read_or_is_not_utf8_is_named() {
    let cli = Cli::new();
    cli.run(&["run", "--prompt-file", "missing.txt"]).refused(1, &["missing.txt", "No such file"]);
    std::fs::write(cli.path("latin1.txt"), b"caf\xe9").unwrap();
    cli.run(&["run", "--prompt-file", "latin1.txt"])
        .refused(1, &["latin1.txt", "not UTF-8 at byte 3; give text as UTF-8"]);
    cli.run_with(&["run", "-"], b"caf\xe9").refused(1, &["standard input", "not UTF-8 at byte 3"]);
    cli.run_with(&["tokenize"], b"\xff").refused(1, &["standard input", "not UTF-8 at byte 0"]);
}

#[test]
fn a_device_this_build_does_not_have_is_refused() {
    let cli = Cli::new();
    for line in [&["run", PROMPT, "--device", "cuda"][..], &["eval", PROMPT, "--device", "cuda:1", "--out", "l.npy"]] {
        cli.run(line).refused(1, &["--device cuda", "no CUDA backend"]);
    }
    assert!(cli.files().is_empty());
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_anything_is_computed() {
    let cli = Cli::new();
    std::fs::create_dir(cli.path("folder")).unwrap();
    // The model does not exist either: the place was tried first.
    cli.run(&["eval", PROMPT, "-m", "missing.gguf", "--out", "no/l.npy"])
        .refused(1, &["--out no/l.npy", "No such file"]);
    cli.run(&["eval", PROMPT, "-m", "missing.gguf", "--out", "folder"]).refused(1, &["--out folder", "directory"]);
    cli.run(&["eval", PROMPT, "--out", "/dev/full"]).refused(1, &["--out /dev/full", "No space left"]);
    assert_eq!(cli.files(), ["folder"]);
}

/// A slip of the name must not cost a model's shard, a letter, a track's fixture.
#[test]
fn a_file_that_an_output_is_not_like_is_not_replaced() {
    let cli = Cli::new();
    std::fs::write(cli.path("m.gguf"), "GGUF and more").unwrap();
    cli.link(&cli.path("m.gguf"), "link");
    std::os::unix::fs::symlink("nothing", cli.path("dangling")).unwrap();
    for (line, kind) in [
        (&["eval", PROMPT, "-m", "missing", "--out"][..], "an NPY file"),
        (&["trace", "dump", PROMPT, "-m", "missing", "--out"], "a trace"),
        (&["verify", "--write"], "a manifest"),
    ] {
        for name in ["m.gguf", "link"] {
            let words = [name, "is not", kind, "give another name, or remove"];
            cli.run(&[line, &[name]].concat()).refused(1, &words);
        }
        cli.run(&[line, &["dangling"]].concat()).refused(1, &["dangling: is a link that leads nowhere"]);
    }
    assert_eq!(std::fs::read(cli.path("m.gguf")).unwrap(), b"GGUF and more");
    assert_eq!(cli.files(), ["dangling", "link", "m.gguf"]);
    // What it would have made itself, also behind a link, it replaces.
    std::fs::write(cli.path("m.gguf"), NPY).unwrap();
    cli.run(&["eval", "--ids", "1", "--out", "link"]).ok();
    assert!(std::fs::read(cli.path("m.gguf")).unwrap().len() > NPY.len());
}

/// Ctrl-C is the only way out of a prompt that does not come: one line, and the exit code of interruption.
#[test]
fn a_signal_while_standard_input_is_read_ends_with_one_line_and_130() {
    let cli = Cli::new();
    for (line, signal) in [(&["run", "-"][..], "-INT"), (&["verify", "-"], "-TERM"), (&["chat"], "-INT")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudafast"));
        command.current_dir(cli.folder.path()).args(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        // Signals have a thread of their own; before it they end the program as they end any.
        while std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count() == 1 {
            assert!(child.try_wait().unwrap().is_none(), "ended before it was interrupted");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
        let _input = child.stdin.take();
        Ran::of(child.wait_with_output().unwrap()).refused(130, &["interrupted"]);
    }
}

#[test]
fn closed_standard_output_is_a_one_line_error_and_no_panic() {
    for line in [
        &["run", PROMPT, "-n", "64"][..],
        &["run", PROMPT, "-n", "4", "--json"],
        &["tokenize", PROMPT],
        &["inspect"],
        &["run", "--help"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cudafast"))
            .args(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        Ran::of(output).refused(1, &["standard output", "Broken pipe"]);
    }
}

#[test]
fn an_endless_prompt_file_is_refused_instead_of_filling_the_memory() {
    let cli = Cli::new();
    cli.run(&["run", "--prompt-file", "/dev/zero"]).refused(1, &["/dev/zero: is longer than", "bytes"]);
}
