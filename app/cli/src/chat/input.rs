//! Lines of a person, edited on a terminal, or of a pipe as they are.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use rustix::termios::{QueueSelector, tcflush};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler, Helper, KeyEvent,
    Movement, RepeatCount,
};

use super::command::COMMANDS;
use super::history;
use crate::failure::Failure;
use crate::interrupt::{self, Work};
use crate::{output, prompt};

/// What came from the other side.
pub(super) enum Said {
    /// Lines that belong together.
    Text(String),
    /// A line that cannot be read as text, and why.
    Refused(String),
    /// Ctrl-C at an empty line.
    Interrupt,
    /// There is no more.
    End,
}

/// Where lines come from.
pub(super) enum Input {
    /// A terminal on both sides.
    Edited(Box<Edited>),
    /// A pipe or file; or a terminal whose answers go elsewhere, so that there is nowhere to edit.
    Plain,
}

/// A line editor and what it remembers.
pub(super) struct Edited {
    editor: Editor<Commands, FileHistory>,
    history: Option<PathBuf>,
}

impl Input {
    pub(super) fn open(keep_history: bool) -> Result<Self, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Input::Plain);
        }
        interrupt::keep_terminal();
        let config = Config::builder().auto_add_history(false).history_ignore_space(true);
        let config = config.max_history_size(history::MOST).and_then(|config| config.history_ignore_dups(true));
        let config = config.map_err(unreadable)?.build();
        let mut editor = Editor::with_config(config).map_err(unreadable)?;
        editor.set_helper(Some(Commands));
        editor.bind_sequence(KeyEvent::ctrl('c'), EventHandler::Conditional(Box::new(ClearOrLeave)));
        editor.bind_sequence(Event::Any, EventHandler::Conditional(Box::new(Present)));
        let mut edited = Edited { editor, history: None };
        if keep_history && let Err(error) = edited.load_history() {
            output::note(&format!("what you type is not kept: {error}; --no-history asks for that"));
        }
        Ok(Input::Edited(Box::new(edited)))
    }

    pub(super) fn next(&mut self) -> Result<Said, Failure> {
        match self {
            Input::Edited(edited) => edited.next(),
            Input::Plain => {
                invite();
                match prompt::read_line() {
                    Err(refused @ Failure::NotUtf8 { .. }) => Ok(Said::Refused(refused.one_line())),
                    line => Ok(line?.map_or(Said::End, Said::Text)),
                }
            }
        }
    }
}

impl Edited {
    /// A message: one line, and the next as long as a line ends in a backslash.
    fn next(&mut self) -> Result<Said, Failure> {
        let mut text = String::new();
        loop {
            match self.editor.readline(if text.is_empty() { "> " } else { ". " }) {
                Ok(line) => match line.strip_suffix('\\') {
                    Some(line) => text = text + line + "\n",
                    None => {
                        text += &line;
                        self.remember(&text);
                        return Ok(Said::Text(text));
                    }
                },
                Err(ReadlineError::Interrupted) if text.is_empty() => return Ok(Said::Interrupt),
                Err(ReadlineError::Interrupted) => text.clear(), // the message is given up, not the conversation
                Err(ReadlineError::Signal(_)) => {}              // the window has another size
                // One that is gone reads as an end or fails in a way of its own, before or after its SIGHUP comes.
                Err(_) if !io::stdin().is_terminal() => return Err(Failure::Interrupted),
                Err(ReadlineError::Eof) => return Ok(Said::End),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    // The editor has lost its place: the rest of the line must not become a message.
                    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
                    output::guide("\n"); // off the line that was begun
                    return Ok(Said::Refused("what was typed is not UTF-8 and was dropped; type it again".into()));
                }
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    fn load_history(&mut self) -> Result<(), String> {
        let path = history::place().map_err(|error| error.to_string())?;
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        history::prepare(&path).map_err(|error| told(&error))?;
        self.editor.load_history(&path).map_err(|error| told(&error))?;
        self.history = Some(path);
        Ok(())
    }

    /// For the arrow keys, and at once for the next conversation: this one may end in any way.
    fn remember(&mut self, text: &str) {
        let writing = Work::begin(); // a signal waits for the end of it
        let added = self.editor.add_history_entry(text).unwrap_or(false);
        if added
            && let Some(path) = &self.history
            && let Err(error) = self.editor.append_history(path)
        {
            output::note(&format!("{}: {error}; what you type is not kept from now on", path.display()));
            self.history = None;
        }
        if writing.cancel.is_raised() {
            interrupt::defer();
        }
    }
}

fn unreadable(error: ReadlineError) -> Failure {
    Failure::Stdin {
        source: match error {
            ReadlineError::Io(source) => source,
            other => io::Error::other(other),
        },
    }
}

/// Asks a person for the next line; silent on a pipe.
fn invite() {
    if io::stdin().is_terminal() {
        let mut err = io::stderr();
        let _ = write!(err, "> ").and_then(|()| err.flush());
    }
}

/// Ctrl-C clears what was typed; where nothing was, it is for the conversation.
struct ClearOrLeave;

impl ConditionalEventHandler for ClearOrLeave {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        Some(if context.line().is_empty() { Cmd::Interrupt } else { Cmd::Kill(Movement::WholeBuffer) })
    }
}

/// Whoever presses a key has gone on from a Ctrl-C that was in time for nothing. One behind Enter is for the answer to come.
struct Present;

impl ConditionalEventHandler for Present {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        interrupt::take_deferred();
        None // what the key does anyway
    }
}

/// Tab completes commands.
struct Commands;

impl Completer for Commands {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..at];
        let matching = COMMANDS.iter().filter(|command| !typed.is_empty() && command.starts_with(typed));
        Ok((0, matching.map(|command| (*command).to_owned()).collect()))
    }
}

impl Helper for Commands {}
impl Highlighter for Commands {}
impl Validator for Commands {}
impl Hinter for Commands {
    type Hint = String;
}
