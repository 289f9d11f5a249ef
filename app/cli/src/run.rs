//! `cudafast run`: continue a prompt.

use std::ops::ControlFlow;

use cudafast_model::MemoryPlan;
use cudafast_runtime::{CancelFlag, Engine, GenEvent, GenerateOptions, Generation, Session, TokenId};
use cudafast_text::RenderOptions;
use serde::Serialize;
use serde_json::json;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::load::{self, Loaded};
use crate::output;
use crate::progress::Waiting;
use crate::prompt::Prompt;
use crate::report::{self, MemoryReport, RoundsReport, TimingsReport};

/// The object of `--json`; stable for other programs.
#[derive(Serialize)]
struct RunReport<'a> {
    model: &'a str,
    backend: String,
    prompt_tokens: usize,
    /// The stop token included.
    tokens: &'a [TokenId],
    /// The stop token and other control tokens left out.
    text: &'a str,
    finish: &'static str,
    rounds: RoundsReport,
    timings: TimingsReport,
    memory: MemoryReport,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let cpu_options = args.device.cpu_options()?;
    let prompt = Prompt::read(&args.prompt)?;
    let loaded = load::open(&args.model, &args.head, &args.generate, &cpu_options)?;
    let engine = &loaded.engine;
    let tokens = match &prompt {
        Prompt::Text(text) if args.chat => {
            loaded.require_template()?;
            let message = json!({ "role": "user", "content": text });
            engine.chat_prompt(&[message], &render_options(args.think))?
        }
        prompt => prompt.tokens(engine)?,
    };
    let mut options = loaded.generate_options(&args.generate)?;
    if args.ignore_stop {
        options.stop.clear();
    }
    let ctx_tokens = ctx_tokens(&loaded, args.generate.ctx_tokens, &tokens, options.max_tokens);
    let (mut session, plan) = loaded.open_session(ctx_tokens, 0)?;
    let work = Work::begin();
    let answer = answer(engine, &mut session, &tokens, &options, !args.json, &work.cancel)?;
    if args.json {
        print_json(&loaded, tokens.len(), &answer, &plan)?;
    } else {
        output::text("\n")?;
        output::note(&report::summary(&answer.generation, &plan));
    }
    work.check()
}

/// What was asked for, else what prompt and answer need, inside the trained context. A prompt that is longer is the
/// session's to refuse, with its numbers.
fn ctx_tokens(loaded: &Loaded, asked: Option<usize>, prompt: &[TokenId], max_tokens: usize) -> usize {
    asked.unwrap_or_else(|| prompt.len().saturating_add(max_tokens).clamp(1, loaded.trained_tokens()))
}

fn print_json(loaded: &Loaded, prompt_tokens: usize, answer: &Answer, plan: &MemoryPlan) -> Result<(), Failure> {
    let generation = &answer.generation;
    output::json(&RunReport {
        model: loaded.engine.label(),
        backend: loaded.engine.backend().describe(),
        prompt_tokens,
        tokens: &generation.tokens,
        text: &answer.text,
        finish: report::finish_word(generation.finish),
        rounds: RoundsReport::of(generation),
        timings: TimingsReport::of(&generation.timings, loaded.took),
        memory: MemoryReport::of(plan),
    })
}

/// A conversation up to the opening of the model's answer.
pub(crate) fn render_options(think: bool) -> RenderOptions {
    RenderOptions { add_generation_prompt: true, enable_thinking: Some(think), ..RenderOptions::default() }
}

/// A generation and its text.
pub(crate) struct Answer {
    pub(crate) generation: Generation,
    pub(crate) text: String,
}

/// Generates, and prints characters as they are complete if `show`.
pub(crate) fn answer(
    engine: &Engine,
    session: &mut Session,
    prompt: &[TokenId],
    options: &GenerateOptions,
    show: bool,
    cancel: &CancelFlag,
) -> Result<Answer, Failure> {
    let mut decoder = engine.tokenizer().stream().hiding_special();
    let mut text = String::new();
    let mut closed = None;
    let mut waiting = Some(Waiting::begin(&format!("reading {} tokens", prompt.len())));
    let generation = session.generate(prompt, options, cancel, &mut |event| {
        if matches!(event, GenEvent::Prefilled(_)) {
            waiting = (!show).then(|| Waiting::begin("generating"));
        }
        let GenEvent::Token { id, stop: false, .. } = event else { return ControlFlow::Continue(()) };
        let piece = decoder.push(id);
        text.push_str(&piece);
        if show && !piece.is_empty() && closed.is_none() {
            closed = output::text(&piece).err();
        }
        if closed.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    drop(waiting); // off the line that the text or an error will take
    let generation = generation?;
    let rest = decoder.finish();
    if let Some(failure) = closed {
        return Err(failure);
    }
    if show && !rest.is_empty() {
        output::text(&rest)?;
    }
    text.push_str(&rest);
    Ok(Answer { generation, text })
}
