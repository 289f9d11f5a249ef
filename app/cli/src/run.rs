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
use crate::prompt::{Content, Prompt};
use crate::report::{self, LogprobsReport, MemoryReport, RoundsReport, TimingsReport};

/// The object of `--json`; stable for other programs.
#[derive(Serialize)]
struct RunReport<'a> {
    model: &'a str,
    backend: String,
    prompt_tokens: usize,
    /// The stop token included.
    tokens: &'a [TokenId],
    /// The stop token and other control tokens left out; with --think the opening `<think>` of the prompt before it.
    text: &'a str,
    finish: &'static str,
    /// With --logprobs, one entry per token.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<LogprobsReport>>,
    rounds: RoundsReport,
    timings: TimingsReport,
    memory: MemoryReport,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let runner = args.draft.apply(args.device.runner()?);
    args.generate.sampling.check()?;
    let prompt = Prompt::read(&args.prompt)?;
    let loaded = load::open(&args.model, &args.head, &args.generate, &runner)?;
    let engine = &loaded.engine;
    let tokens = match &prompt.content {
        Content::Text(text) if args.chat => {
            loaded.require_template()?;
            let message = json!({ "role": "user", "content": text });
            engine.chat_prompt(&[message], &render_options(args.think))?
        }
        _ => prompt.tokens(engine)?,
    };
    let mut options = loaded.generate_options(&args.generate)?;
    if args.ignore_stop {
        options.stop.clear();
    }
    options.top_logprobs = args.logprobs;
    let ctx_tokens = ctx_tokens(&loaded, args.generate.ctx_tokens, &tokens, options.max_tokens);
    let (mut session, plan) = loaded.open_session(ctx_tokens, 0)?;
    let work = Work::begin();
    let opening = opened_thoughts(engine, &tokens, args.think);
    let mut generation = answer(&mut session, &tokens, &options, (!args.json).then_some(opening), &work.cancel)?;
    if args.json {
        generation.text.insert_str(0, opening);
        let logprobs = args.logprobs.map(|_| LogprobsReport::of(&generation, engine.tokenizer()));
        print_json(&loaded, tokens.len(), &generation, logprobs, &plan)?;
    } else {
        output::text("\n")?;
        output::note(&report::summary(&generation, &plan, ctx_tokens < loaded.trained_tokens()));
    }
    work.check()
}

/// What was asked for, else what prompt and answer need, inside the trained context. A prompt that is longer is the
/// session's to refuse, with its numbers.
fn ctx_tokens(loaded: &Loaded, asked: Option<usize>, prompt: &[TokenId], max_tokens: usize) -> usize {
    asked.unwrap_or_else(|| prompt.len().saturating_add(max_tokens).clamp(1, loaded.trained_tokens()))
}

fn print_json(
    loaded: &Loaded,
    prompt_tokens: usize,
    generation: &Generation,
    logprobs: Option<Vec<LogprobsReport>>,
    plan: &MemoryPlan,
) -> Result<(), Failure> {
    output::json(&RunReport {
        model: loaded.engine.label(),
        backend: loaded.engine.backend().describe(),
        prompt_tokens,
        tokens: &generation.tokens,
        text: &generation.text,
        finish: report::finish_word(generation.finish),
        logprobs,
        rounds: RoundsReport::of(generation),
        timings: TimingsReport::of(&generation.timings, loaded.took),
        memory: MemoryReport::of(plan),
    })
}

/// A conversation up to the opening of the model's answer.
pub(crate) fn render_options(think: bool) -> RenderOptions {
    RenderOptions { add_generation_prompt: true, enable_thinking: Some(think), ..RenderOptions::default() }
}

/// What of the thoughts the prompt has opened: the answer closes them, and a reader sees both ends.
pub(crate) fn opened_thoughts(engine: &Engine, prompt: &[TokenId], think: bool) -> &'static str {
    let end = &prompt[prompt.len().saturating_sub(8)..];
    if think && engine.tokenizer().decode(end).trim_end().ends_with("<think>") { "<think>\n" } else { "" }
}

/// Generates. With `show`, prints what it says before the first token, then text as it is known.
pub(crate) fn answer(
    session: &mut Session,
    prompt: &[TokenId],
    options: &GenerateOptions,
    show: Option<&str>,
    cancel: &CancelFlag,
) -> Result<Generation, Failure> {
    let mut closed = None;
    let mut waiting = Some(Waiting::begin(&format!("reading {} tokens", prompt.len())));
    let generation = session.generate(prompt, options, cancel, &mut |event| {
        if matches!(event, GenEvent::Prefilled(_)) {
            waiting = show.is_none().then(|| Waiting::begin("generating"));
            closed = show.filter(|opening| !opening.is_empty()).and_then(|opening| output::text(opening).err());
        }
        let (GenEvent::Token { text, .. } | GenEvent::End { text, .. }) = event else {
            return ControlFlow::Continue(());
        };
        if show.is_some() && !text.is_empty() && closed.is_none() {
            closed = output::text(text).err();
        }
        if closed.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    drop(waiting); // off the line that the text or an error will take
    match closed {
        Some(failure) => Err(failure),
        None => Ok(generation?),
    }
}
