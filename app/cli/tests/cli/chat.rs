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
    let ran = cli.run_with(&line, "/depth 3\nHello.\n").ok();
    assert!(ran.err.lines().next().unwrap().contains("draft head") && ran.out == serial.out, "{ran:?}");
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
    let ran = cli.run_with(&["chat", "-n", "40"], "/think on\nHello.\n/reset\n/think off\nHello.\n").ok();
    let plain = cli.run_with(&["chat", "-n", "40"], "Hello.\n").ok().out;
    assert!(!plain.contains("<think>") && ran.out == format!("{flag}{plain}"), "{ran:?}");
}

#[test]
fn help_lists_the_commands_and_two_slashes_are_a_message() {
    let cli = Cli::new();
    let ran = cli.run_with(&["chat", "-n", "5"], "/help\n//etc\n/think\n/quit\n").ok();
    for word in ["/system TEXT", "/depth N|auto", "generated", "/think: expected on or off"] {
        assert!(ran.err.contains(word), "{ran:?}");
    }
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
