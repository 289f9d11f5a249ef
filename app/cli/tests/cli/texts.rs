//! Text to ids and back, and what shells are told of the command line.

use crate::fixture::{Cli, Ran, oracle, tiny};

#[test]
fn detokenize_gives_back_every_byte_that_tokenize_took() {
    let cli = Cli::new();
    let text = "Once upon a time,\n\n  \tthere was \u{1f98a} <|im_end|> caf\u{e9} \u{d55c}\u{ad6d}\u{c5b4} \u{0}\r\n";
    let array = cli.run_with(&["tokenize", "--json"], text).ok().out;
    assert_eq!(cli.run_with(&["detokenize"], &array[..]).ok().out, text);
    assert_eq!(cli.run_with(&["detokenize", "-"], &array[..]).ok().out, text);
    std::fs::write(cli.path("ids"), &array).unwrap();
    assert_eq!(cli.run(&["detokenize", "--file", "ids"]).ok().out, text);
    let plain = array.trim().trim_matches(['[', ']']);
    assert_eq!(cli.run(&["detokenize", plain]).ok().out, text);
    let apart: Vec<&str> = plain.split(',').collect();
    assert_eq!(cli.run(&[&["detokenize"][..], &apart].concat()).ok().out, text);
    assert_eq!(cli.run_with(&["detokenize"], "").ok().out, "");
}

/// Each id alone, so that parts of characters come out as the bytes they are.
#[test]
fn detokenize_writes_bytes_that_are_no_characters() {
    let cli = Cli::new();
    let ids = cli.run_with(&["tokenize", "--json"], "\u{1f98a}").ok().json();
    let bytes: Vec<u8> = ids
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|id| cli.command(&["detokenize", &id.to_string()]).output().unwrap().stdout)
        .collect();
    assert_eq!(bytes, "\u{1f98a}".as_bytes());
}

#[test]
fn detokenize_names_what_is_no_id() {
    let cli = Cli::new();
    cli.run(&["detokenize", "1,x"]).refused(2, &["IDS", "`x` is no token id"]);
    cli.run(&["detokenize", "1", "-2"]).refused(2, &["`-2`"]);
    cli.run(&["detokenize", "abc"]).refused(2, &["IDS", "`abc` is no token id"]);
    cli.run(&["detokenize", "1", "4096"]).refused(1, &["4096", "IDS"]);
    cli.run_with(&["detokenize"], "1 2\n99999999999").refused(1, &["standard input", "`99999999999`"]);
    cli.run_with(&["detokenize"], &b"1 \xff"[..]).refused(1, &["UTF-8"]);
    cli.run(&["detokenize", "--file", "missing"]).refused(1, &["missing", "No such file"]);
    cli.run(&["detokenize", "--file", "/dev/zero"]).refused(1, &["/dev/zero", "longer than"]);
    cli.run(&["detokenize", "1", "--file", "ids"]).refused(2, &["--file"]);
    Ran::of(cli.command(&["detokenize", "1"]).arg("-m").arg("missing.gguf").output().unwrap())
        .refused(1, &["missing.gguf"]);
}

#[test]
fn every_shell_gets_a_script_with_every_command() {
    let cli = Cli::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.run(&["completions", shell]).ok().out;
        for word in ["detokenize", "inspect", "mtp-model", "completions"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    cli.run(&["completions", "csh"]).refused(2, &["csh", "bash"]);
}

/// An error stands alone, whatever else there was to tell.
#[test]
fn a_model_that_cannot_chat_is_refused_on_one_line_even_with_two_heads_beside_it() {
    let cli = Cli::new();
    let model = cli.link(&oracle("tiny.gguf"), "m.gguf");
    for head in ["mtp-a.gguf", "mtp-b.gguf"] {
        cli.link(&oracle("mtp-tiny.gguf"), head);
    }
    let model = model.to_str().unwrap();
    cli.run_with(&["chat", "-m", model], "Hello.\n").refused(1, &["tokenizer.chat_template"]);
    cli.run(&["run", "-m", model, "--chat", "Hello."]).refused(1, &["tokenizer.chat_template"]);
}

#[test]
fn a_draft_head_beside_the_model_that_is_no_file_is_named() {
    let cli = Cli::new();
    let model = cli.link(&tiny(cudafast_tiny::MODEL_FILE), "m.gguf");
    let line = ["run", "-m", model.to_str().unwrap(), "-n", "1", "Once"];
    std::os::unix::fs::symlink("nowhere", cli.path("mtp-a.gguf")).unwrap();
    cli.run(&line).refused(1, &["mtp-a.gguf", "No such file"]);
    std::fs::remove_file(cli.path("mtp-a.gguf")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(cli.path("mtp-a.gguf")).status().unwrap().success());
    cli.run(&line).refused(1, &["mtp-a.gguf"]);
}
