//! What a line of a conversation asks for.

use crate::args::Depth;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Nothing,
    Message(&'a str),
    Help,
    Reset,
    /// Empty: none from now on.
    System(&'a str),
    Think(bool),
    Depth(Depth),
    Quit,
}

/// Commands, for completion.
pub(super) const COMMANDS: &[&str] = &["/depth ", "/help", "/quit", "/reset", "/system ", "/think "];

pub(super) const HELP: &str = "\
/reset           forget the conversation
/system TEXT     begin a new one with TEXT as what the model is told first; without TEXT, with nothing
/think on|off    let the model think before it answers
/depth N|auto    drafts verified at once, 0 to 6: speed only
/help            show this
/quit            leave; so does Ctrl-D
Every other line is a message. One that ends in a backslash goes on on the next line; one that begins with // is a message
that begins with /. Ctrl-C stops an answer or clears a line; at an empty line a second one leaves.
";

/// Reads a line. What is no command says why.
pub(super) fn parse(line: &str) -> Result<Entry<'_>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(Entry::Nothing);
    }
    match line.strip_prefix('/') {
        None => return Ok(Entry::Message(line)),
        Some(message) if message.starts_with('/') => return Ok(Entry::Message(message)),
        Some(_) => {}
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (word, rest) {
        ("/system", text) => Ok(Entry::System(text)),
        ("/think", "on") => Ok(Entry::Think(true)),
        ("/think", "off") => Ok(Entry::Think(false)),
        ("/think", _) => Err("/think: expected on or off".into()),
        ("/depth", depth) => match depth.parse() {
            Ok(depth) => Ok(Entry::Depth(depth)),
            Err(expected) => Err(format!("/depth: {expected}")),
        },
        ("/help", "") => Ok(Entry::Help),
        ("/reset", "") => Ok(Entry::Reset),
        ("/quit", "") => Ok(Entry::Quit),
        ("/help" | "/reset" | "/quit", _) => Err(format!("{word}: takes nothing behind it")),
        _ => Err(format!("{word}: no such command; /help lists them, and a message may begin with //")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_commands_or_say_why_not() {
        for (line, want) in [
            ("  ", Entry::Nothing),
            (" Hello. ", Entry::Message("Hello.")),
            ("two\nlines", Entry::Message("two\nlines")),
            ("//etc/passwd", Entry::Message("/etc/passwd")),
            ("/help", Entry::Help),
            ("/reset ", Entry::Reset),
            ("/quit", Entry::Quit),
            ("/system", Entry::System("")),
            ("/system  Be  brief.\nVery.", Entry::System("Be  brief.\nVery.")),
            ("/think on", Entry::Think(true)),
            ("/think\toff", Entry::Think(false)),
            ("/depth auto", Entry::Depth(Depth::Auto)),
            ("/depth 3", Entry::Depth(Depth::Fixed(3))),
        ] {
            assert_eq!(parse(line), Ok(want), "{line:?}");
        }
        for (line, word) in [
            ("/fly", "/fly: no such command"),
            ("/Reset", "/Reset: no such"),
            ("/", "/: no such"),
            ("/depth", "0 to 6"),
            ("/depth 7", "0 to 6"),
            ("/think", "on or off"),
            ("/think maybe", "on or off"),
            ("/quit now", "/quit: takes nothing"),
        ] {
            let told = parse(line).unwrap_err();
            assert!(told.contains(word), "{line}: {told}");
        }
    }

    #[test]
    fn every_command_that_completes_is_told_in_the_help_and_exists() {
        for command in COMMANDS {
            assert!(HELP.lines().any(|line| line.starts_with(command.trim_end())), "{command}");
            assert!(!parse(command).is_err_and(|told| told.contains("no such")), "{command}");
        }
    }
}
