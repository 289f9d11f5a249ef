//! `cudafast chat`: a conversation, line by line.

use std::io::{self, IsTerminal, Write};

use cudafast_model::MemoryPlan;
use cudafast_runtime::{GenerateOptions, Session};
use serde_json::{Value, json};

use crate::args::ChatArgs;
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::load::{self, Loaded};
use crate::{output, prompt, report, run};

/// States kept to go back to: the beginning of this turn, and where two conversations part.
const SNAPSHOTS: usize = 2;

pub(crate) fn run(args: &ChatArgs) -> Result<(), Failure> {
    let loaded = load::open(&args.model, &args.head, &args.generate, &args.device.cpu_options()?)?;
    loaded.require_template()?;
    let options = loaded.generate_options(&args.generate)?;
    let ctx_tokens = args.generate.ctx_tokens.unwrap_or_else(|| loaded.default_ctx_tokens());
    let (session, plan) = loaded.open_session(ctx_tokens, SNAPSHOTS)?;
    let mut chat = Chat { args, loaded: &loaded, options, session, plan, messages: Vec::new() };
    chat.reset();
    chat.talk()
}

struct Chat<'a> {
    args: &'a ChatArgs,
    loaded: &'a Loaded,
    options: GenerateOptions,
    session: Session,
    plan: MemoryPlan,
    messages: Vec<Value>,
}

impl Chat<'_> {
    /// Back to an empty conversation. The session is left to find out what of it can be reused.
    fn reset(&mut self) {
        let system = self.args.system.as_deref().map(|text| json!({ "role": "system", "content": text }));
        self.messages = system.into_iter().collect();
    }

    fn talk(&mut self) -> Result<(), Failure> {
        let mut input = io::stdin().lock();
        loop {
            invite();
            let Some(line) = prompt::read_line(&mut input)? else { return Ok(()) };
            match line.trim() {
                "" => {}
                "/quit" => return Ok(()),
                "/reset" => self.reset(),
                command if command.starts_with('/') => {
                    output::note(&format!("{command}: no such command; there are /reset and /quit"));
                }
                message => self.turn(message)?,
            }
        }
    }

    /// One message and its answer. A message that does not fit the context is refused and forgotten; the conversation
    /// goes on.
    fn turn(&mut self, message: &str) -> Result<(), Failure> {
        let engine = &self.loaded.engine;
        self.messages.push(json!({ "role": "user", "content": message }));
        let tokens = engine.chat_prompt(&self.messages, &run::render_options(self.args.think))?;
        let work = Work::begin();
        let answer = match run::answer(&mut self.session, &tokens, &self.options, true, &work.cancel) {
            Err(failure @ Failure::Session(cudafast_runtime::Error::PromptTooLong { .. })) => {
                self.messages.pop();
                output::note(&format!("{}; or /reset the conversation", failure.one_line()));
                return Ok(());
            }
            answer => answer?,
        };
        output::text("\n")?;
        self.messages.push(assistant(&answer.text, self.args.think));
        output::note(&report::summary(&answer, &self.plan));
        work.check()
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

/// Asks a person for the next line; silent on a pipe.
fn invite() {
    if io::stdin().is_terminal() {
        let mut err = io::stderr();
        let _ = write!(err, "> ").and_then(|()| err.flush());
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
