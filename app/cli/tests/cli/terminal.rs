//! A conversation as a person has it: keys in, a screen out.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fixture::Cli;
use crate::pty::Terminal;

const STORY: &str = "Tell me a story about a rabbit named Lily.\r";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";

fn history(cli: &Cli) -> PathBuf {
    cli.path("state/cudafast/chat-history")
}

/// A chat that waits for its first line. Slow enough that a key comes before the end of a long answer.
fn chat(cli: &Cli, more: &[&str]) -> Terminal {
    let line = ["chat", "--threads", "1", "--depth", "0", "--temp", "0"];
    let mut terminal = Terminal::start(cli, &[&line[..], more].concat());
    terminal.wait_for("> ");
    terminal
}

/// An answer under way: its first word was seen.
fn telling(cli: &Cli) -> Terminal {
    let mut terminal = chat(cli, &["--f32", "-n", "4000"]);
    terminal.keys(STORY);
    terminal.wait_for("Lily.");
    terminal.wait_for("\r\n");
    terminal.wait_for(" "); // between its first words
    terminal
}

#[test]
fn lines_are_edited_recalled_and_kept_for_their_owner_only() {
    let cli = Cli::new();
    let mut first = chat(&cli, &["-n", "8"]);
    first.keys("Helo.\x1b[D\x1b[Dl\r"); // back over `.` and `o`
    first.wait_for("generated");
    first.keys("/h\t\r"); // completes
    first.wait_for("/system TEXT");
    first.keys("One\\\r");
    first.wait_for(". ");
    first.keys("two\r");
    first.wait_for("generated");
    first.keys("\x1b[200~pasted,\rnot sent\x1b[201~\r");
    first.wait_for("generated");
    first.keys(" between us\r");
    first.wait_for("generated");
    first.wait_for("> ");
    first.keys("thrown away");
    first.keys(CTRL_C);
    first.keys("/fly\r");
    first.wait_for("/fly: no such command");
    first.keys(CTRL_D);
    assert_eq!(first.ended(), 0);
    let kept = std::fs::read_to_string(history(&cli)).unwrap();
    let lines: Vec<&str> = kept.lines().skip(1).collect();
    assert_eq!(lines, ["Hello.", "/help", "One\\ntwo", "pasted,\\nnot sent", "/fly"]);
    assert_eq!(std::fs::metadata(history(&cli)).unwrap().permissions().mode() & 0o777, 0o600);

    let mut second = chat(&cli, &["-n", "8"]);
    second.keys(UP);
    second.wait_for("/fly");
    second.keys("ing\r");
    second.wait_for("/flying: no such command");
    second.keys("/quit\r");
    assert_eq!(second.ended(), 0);

    let mut third = chat(&cli, &["--no-history"]);
    third.keys(UP);
    third.keys("/depth 7\r");
    third.wait_for("0 to 6");
    third.keys(CTRL_D);
    assert_eq!(third.ended(), 0);
    assert!(!std::fs::read_to_string(history(&cli)).unwrap().contains("/depth 7"));
}

#[test]
fn ctrl_c_stops_the_answer_keeps_the_session_and_leaves_at_the_second_time() {
    let cli = Cli::new();
    let mut terminal = telling(&cli);
    terminal.keys(CTRL_C);
    terminal.wait_for("; cancelled");
    terminal.wait_for("> ");
    terminal.keys("Hello.\r");
    terminal.wait_for("\r\n");
    terminal.keys(CTRL_C);
    terminal.wait_for("generated");
    terminal.wait_for("> ");
    terminal.keys("/depth 1\r");
    terminal.wait_for("> ");
    terminal.keys(CTRL_C);
    terminal.wait_for("Ctrl-C once more leaves");
    terminal.wait_for("> ");
    terminal.keys(CTRL_C);
    assert_eq!(terminal.ended(), 130);

    // In the same answer, or just behind it.
    assert_eq!(telling(&cli).ended_by(CTRL_C), 130);
}

#[test]
fn a_terminal_that_goes_away_ends_the_conversation_with_130() {
    let cli = Cli::new();
    assert_eq!(telling(&cli).hung_up(), 130);
    assert_eq!(chat(&cli, &[]).hung_up(), 130);
    let kept = std::fs::read_to_string(history(&cli)).unwrap();
    assert_eq!(kept.lines().last(), Some(STORY.trim()));
}

/// The hangup goes to the leader of the session: a program that is not finds out by reading or writing.
#[test]
fn a_terminal_that_goes_away_without_a_hangup_ends_whatever_runs_with_130() {
    let cli = Cli::new();
    for (line, begun) in [(&["run", "Once", "-n", "4000", "--ignore-stop"][..], " "), (&["chat"], "> ")] {
        let mut terminal = Terminal::borrow(&cli, line);
        terminal.wait_for(begun);
        assert_eq!(terminal.hung_up(), 130, "{line:?}");
    }
    let mut typing = Terminal::borrow(&cli, &["run", "-"]);
    typing.keys("Once\r");
    typing.wait_for_reading();
    assert_eq!(typing.hung_up(), 130);
}

#[test]
fn a_key_that_is_not_utf8_is_told_and_neither_sent_nor_the_end() {
    let cli = Cli::new();
    let mut terminal = chat(&cli, &["-n", "8"]);
    terminal.bytes(b"caf\xe9 au lait");
    terminal.wait_for("not UTF-8 and was dropped");
    terminal.wait_for("> ");
    terminal.keys("Hello.\r");
    terminal.wait_for("8 generated");
    terminal.wait_for("> ");
    terminal.keys(CTRL_D);
    assert_eq!(terminal.ended(), 0);
    let kept = std::fs::read_to_string(history(&cli)).unwrap();
    assert_eq!(kept.lines().skip(1).collect::<Vec<_>>(), ["Hello."]);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let cli = Cli::new();
    for signal in ["-TERM", "-HUP"] {
        let terminal = chat(&cli, &[]);
        terminal.signal(signal);
        assert_eq!(terminal.ended(), 130, "{signal}");
    }
    // The second Ctrl-C leaves, and nobody can tell it from one behind Enter.
    let mut terminal = chat(&cli, &[]);
    terminal.signal("-INT");
    terminal.keys("Hello.");
    terminal.wait_for("Hello.");
    assert_eq!(terminal.ended_by_signals("-INT"), 130);
    let terminal = telling(&cli);
    terminal.signal("-TERM");
    assert_eq!(terminal.ended(), 130);
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let script = r#"trap '' HUP; exec "$0" run Once -n 200 --ignore-stop --threads 1"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_cudafast")]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    out.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_history_that_cannot_be_kept_is_told_and_the_conversation_begins() {
    let cli = Cli::new();
    std::fs::create_dir_all(history(&cli)).unwrap();
    let mut terminal = Terminal::start(&cli, &["chat"]);
    terminal.wait_for("chat-history: is no file");
    terminal.wait_for("--no-history");
    terminal.wait_for("> ");
    terminal.keys("/quit\r");
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn a_history_that_is_a_link_to_something_else_leaves_that_as_it_is() {
    let cli = Cli::new();
    std::fs::create_dir_all(history(&cli).parent().unwrap()).unwrap();
    std::fs::write(cli.path("keys"), "a key\n").unwrap();
    std::os::unix::fs::symlink(cli.path("keys"), history(&cli)).unwrap();
    let before = std::fs::metadata(cli.path("keys")).unwrap().permissions();
    let mut terminal = Terminal::start(&cli, &["chat", "-n", "1"]);
    terminal.wait_for("chat-history: is no history of a chat");
    terminal.wait_for("> ");
    terminal.keys("Hello.\r");
    terminal.wait_for("generated");
    terminal.keys("/quit\r");
    assert_eq!(terminal.ended(), 0);
    assert_eq!(std::fs::read_to_string(cli.path("keys")).unwrap(), "a key\n");
    assert_eq!(std::fs::metadata(cli.path("keys")).unwrap().permissions(), before);
}

#[test]
fn long_work_shows_how_far_it_is_and_takes_the_line_away() {
    let cli = Cli::new();
    let big = std::fs::File::create(cli.path("big")).unwrap();
    big.set_len(6 << 30).unwrap(); // sparse: reading it takes long, having it nothing
    let digest = "0".repeat(64);
    std::fs::write(cli.path("M"), format!("{digest}  big\n")).unwrap();
    let mut terminal = Terminal::start(&cli, &["verify", "M"]);
    terminal.wait_for("verifying [");
    terminal.wait_for("GiB");
    terminal.keys(CTRL_C);
    terminal.wait_for("\x1b[2K"); // the line is cleared
    terminal.wait_for("error: interrupted");
    assert_eq!(terminal.ended(), 130);
}
