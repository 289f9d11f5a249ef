//! A conversation over a pipe: what its commands do.

use crate::fixture::{Cli, oracle, tiny};

#[test]
fn depth_changes_no_word_and_is_refused_without_a_head() {
    let cli = Cli::new();
    let serial = cli.run_with(&["chat", "-n", "30", "--depth", "0"], "Hello.\n").ok();
    let drafted = cli.run_with(&["chat", "-n", "30", "--depth", "0"], "/depth 3\nHello.\n").ok();
    assert_eq!(drafted.out, serial.out);
    assert!(serial.err.contains("no drafts") && drafted.err.contains("drafts accepted"), "{drafted:?}");
    let model = cli.link(&tiny(cudafast_tiny::MODEL_FILE), "m.gguf");
    let line = ["chat", "-m", model.to_str().unwrap(), "-n", "30"];
    let ran = cli.run_with(&line, "/depth 3\nHello.\n");
    assert!(ran.err.lines().next().unwrap().contains("draft head") && ran.out == serial.out, "{ran:?}");
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
fn a_system_message_begins_a_new_conversation() {
    let cli = Cli::new();
    let brief = "You are a rabbit named Lily.";
    let told = cli.run_with(&["chat", "-n", "30", "--system", brief], "Hello.\n").ok().out;
    let said = format!("Tell me more.\n/system {brief}\nHello.\n/system\nHello.\n");
    let ran = cli.run_with(&["chat", "-n", "30"], said).ok();
    let plain = cli.run_with(&["chat", "-n", "30"], "Hello.\n").ok().out;
    assert!(ran.out.ends_with(&format!("{told}{plain}")), "{ran:?}");
}

#[test]
fn thoughts_are_shown_with_both_their_ends() {
    let cli = Cli::new();
    let flag = cli.run_with(&["chat", "-n", "40", "--think"], "Hello.\n").ok().out;
    assert!(flag.starts_with("<think>\n"), "{flag}");
    let run = ["run", "-n", "40", "--chat", "--think", "Hello."];
    assert_eq!(cli.run(&run).ok().out, flag);
    let report = cli.run(&[&run[..], &["--json"]].concat()).ok().json();
    assert_eq!(format!("{}\n", report["text"].as_str().unwrap()), flag);
    let ran = cli.run_with(&["chat", "-n", "40"], "/think on\nHello.\n/reset\n/think off\nHello.\n").ok();
    let plain = cli.run_with(&["chat", "-n", "40"], "Hello.\n").ok().out;
    assert!(!plain.contains("<think>") && ran.out == format!("{flag}{plain}"), "{ran:?}");
}

#[test]
fn help_lists_the_commands_and_two_slashes_are_a_message() {
    let cli = Cli::new();
    let ran = cli.run_with(&["chat", "-n", "5"], "/help\n//etc\n/think\n/quit\n");
    for word in ["/system TEXT", "/depth N|auto", "generated", "/think: expected on or off"] {
        assert!(ran.err.contains(word), "{ran:?}");
    }
    assert!(ran.code == 1 && ran.err.ends_with("error: lines refused: 1, each for the reason told above\n"), "{ran:?}");
}

/// A program on the other side has nothing but the exit code to see that not all it said was heard.
#[test]
fn a_line_that_is_not_utf8_is_refused_and_the_conversation_goes_on_to_exit_code_1() {
    let cli = Cli::new();
    let ran = cli.run_with(&["chat", "-n", "5"], &b"caf\xe9\nHello.\n"[..]);
    let notes: Vec<&str> = ran.err.lines().collect();
    assert!(notes[0].contains("standard input: is not UTF-8 at byte 3; give text as UTF-8"), "{ran:?}");
    assert!(notes[1].contains("5 generated") && notes[2].contains("lines refused: 1,"), "{ran:?}");
    assert_eq!((ran.code, notes.len(), ran.out.lines().count()), (1, 3, 1), "{ran:?}");
}

#[test]
fn a_line_of_a_pipe_is_a_message_as_it_is() {
    let cli = Cli::new();
    let one = cli.run_with(&["chat", "-n", "5"], "Hello \\\n").ok();
    assert_eq!(one.err.lines().count(), 1, "{one:?}");
    assert_eq!(cli.files(), Vec::<String>::new());
    let model = oracle("tiny.gguf");
    cli.run_with(&["chat", "--no-history", "--no-mtp", "-m", model.to_str().unwrap()], "").refused(1, &["tiny.gguf"]);
}
