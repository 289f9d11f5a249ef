//! `cudafast chat`: a conversation.

mod command;
mod history;
mod input;

use std::io::{self, IsTerminal};

use cudafast_model::MemoryPlan;
use cudafast_runtime::{Finish, GenerateOptions, Session};
use serde_json::{Value, json};

use self::command::Entry;
use self::input::{Input, Said};
use crate::args::{ChatArgs, Depth};
use crate::failure::Failure;
use crate::interrupt::{self, Work};
use crate::load::{self, Loaded};
use crate::{output, report, run};

/// States kept to go back to: the beginning of this turn, and where two conversations part.
const SNAPSHOTS: usize = 2;

pub(crate) fn run(args: &ChatArgs) -> Result<(), Failure> {
    args.generate.sampling.check()?;
    let runner = args.draft.apply(args.device.runner()?);
    let loaded = load::open(&args.model, &args.head, &args.generate, &runner)?;
    loaded.require_template()?;
    let options = loaded.generate_options(&args.generate)?;
    let ctx_tokens = args.generate.ctx_tokens.unwrap_or_else(|| loaded.default_ctx_tokens());
    let (session, plan) = loaded.open_session(ctx_tokens, SNAPSHOTS)?;
    let mut chat = Chat {
        loaded: &loaded,
        options,
        session,
        plan,
        system: args.system.clone(),
        think: args.think,
        person: io::stdin().is_terminal(),
        refused: 0,
        messages: Vec::new(),
    };
    chat.reset();
    chat.talk(&mut Input::open(!args.no_history)?)
}

struct Chat<'a> {
    loaded: &'a Loaded,
    options: GenerateOptions,
    session: Session,
    plan: MemoryPlan,
    system: Option<String>,
    think: bool,
    /// Somebody sits there, who may stop an answer and go on.
    person: bool,
    messages: Vec<Value>,
    /// Lines that were refused.
    refused: usize,
}

/// How a turn ended.
#[derive(PartialEq)]
enum Turn {
    Done,
    /// By Ctrl-C.
    Stopped,
}

impl Chat<'_> {
    /// Back to an empty conversation. The session is left to find out what of it can be reused.
    fn reset(&mut self) {
        let system = self.system.as_deref().map(|text| json!({ "role": "system", "content": text }));
        self.messages = system.into_iter().collect();
    }

    fn talk(&mut self, input: &mut Input) -> Result<(), Failure> {
        let mut interrupted = false; // the last thing that happened was a Ctrl-C
        // A signal that came too late for the last answer.
        while !interrupt::ended() {
            let said = if interrupt::take_deferred() { Said::Interrupt } else { input.next()? };
            let text = match said {
                Said::End => return self.end(),
                Said::Interrupt if interrupted => return Err(Failure::Interrupted),
                Said::Interrupt => {
                    output::note("Ctrl-C once more leaves, and so does Ctrl-D");
                    interrupted = true;
                    continue;
                }
                Said::Refused(why) => {
                    self.refuse(&why);
                    continue;
                }
                Said::Text(text) => text,
            };
            interrupted = false;
            match command::parse(&text) {
                Ok(Entry::Nothing) => {}
                Ok(Entry::Quit) => return self.end(),
                Ok(Entry::Message(message)) => interrupted = self.turn(message)? == Turn::Stopped,
                Ok(Entry::Help) => output::guide(command::HELP),
                Ok(Entry::Reset) => self.reset(),
                Ok(Entry::System(text)) => {
                    self.system = (!text.is_empty()).then(|| text.to_owned());
                    self.reset();
                }
                Ok(Entry::Think(think)) => self.think = think,
                Ok(Entry::Depth(depth)) => self.use_depth(depth),
                Err(told) => self.refuse(&told),
            }
        }
        Err(Failure::Interrupted)
    }

    /// Says why a line is not followed. The conversation goes on.
    fn refuse(&mut self, why: &str) {
        self.refused += 1;
        output::note(why);
    }

    /// A person has seen what was refused; a program has the exit code.
    fn end(&self) -> Result<(), Failure> {
        match self.refused {
            1.. if !self.person => Err(Failure::LinesRefused { refused: self.refused }),
            _ => Ok(()),
        }
    }

    fn use_depth(&mut self, depth: Depth) {
        match depth {
            Depth::Fixed(depth @ 1..) if !self.loaded.engine.backend().has_draft_head() => {
                self.refuse(&Failure::from(cudafast_runtime::Error::NoDraftHead { depth }).one_line());
            }
            depth => self.options.depth = depth.into(),
        }
    }

    /// One message and its answer. A message that does not fit the context is refused and forgotten; the conversation
    /// goes on. So it does behind an answer that a person stopped, with what there is of it.
    fn turn(&mut self, message: &str) -> Result<Turn, Failure> {
        let engine = &self.loaded.engine;
        self.messages.push(json!({ "role": "user", "content": message }));
        let tokens = engine.chat_prompt(&self.messages, &run::render_options(self.think))?;
        let opening = run::opened_thoughts(engine, &tokens, self.think);
        let work = Work::begin();
        if interrupt::take_deferred() || interrupt::ended() {
            work.cancel.raise(); // it came right behind Enter
        }
        let answer = run::answer(&mut self.session, &tokens, &self.options, Some(opening), &work.cancel);
        if work.cancel.is_raised() && interrupt::ended() {
            return Err(Failure::Interrupted); // maybe without a terminal to write to
        }
        let answer = match answer {
            Err(failure @ Failure::Session(cudafast_runtime::Error::PromptTooLong { .. })) => {
                self.messages.pop();
                self.refuse(&format!("{}; or /reset the conversation", failure.one_line()));
                return Ok(Turn::Done);
            }
            answer => answer?,
        };
        output::text("\n")?;
        let can_grow = self.session.ctx_tokens() < self.loaded.trained_tokens();
        output::note(&report::summary(&answer, &self.plan, can_grow));
        if answer.text.is_empty() && answer.finish == Finish::Cancelled {
            self.messages.pop(); // as if it had not been said
        } else {
            self.messages.push(assistant(&answer.text, !opening.is_empty()));
        }
        match work.check() {
            Err(_) if self.person => Ok(Turn::Stopped),
            checked => checked.map(|()| Turn::Done),
        }
    }
}

/// The answer as history. With thinking on, the prompt has opened the thoughts and the answer closes them.
fn assistant(text: &str, think: bool) -> Value {
    match text.split_once("</think>") {
        Some((thoughts, answer)) if think => {
            json!({ "role": "assistant", "content": answer.trim(), "reasoning_content": thoughts.trim() })
        }
        _ if think => json!({ "role": "assistant", "content": "", "reasoning_content": text.trim() }),
        _ => json!({ "role": "assistant", "content": text }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_never_become_the_answer() {
        assert_eq!(assistant("a</think>\n\nb", false)["content"], "a</think>\n\nb");
        let whole = assistant("\nhm\n</think>\n\nYes.", true);
        assert_eq!((&whole["reasoning_content"], &whole["content"]), (&json!("hm"), &json!("Yes.")));
        let cut = assistant("hm, let me", true);
        assert_eq!((&cut["reasoning_content"], &cut["content"]), (&json!("hm, let me"), &json!("")));
    }
}
