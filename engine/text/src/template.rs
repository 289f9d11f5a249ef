//! Conversations to prompts, through the Jinja template that a model file carries.

use std::{error::Error as _, fmt};

use minijinja::{AutoEscape, Environment, ErrorKind, syntax::SyntaxConfig};
use regex::Regex;
use serde_json::{Map, Value};

use crate::{
    Error,
    message::{check_depth, prepared, size_bytes, to_template},
    python::{self, NOW_VARIABLE, Raised},
};

/// Longest template source that is compiled. Published templates take up to some 30 KB.
const MAX_SOURCE_BYTES: usize = 128 << 10;

/// Work allowed to a render of nothing, in minijinja's fuel: one per instruction and per 64 bytes made or searched. A long
/// honest conversation takes some hundreds per message; this much takes under a second and at most 256 MB.
const FUEL: u64 = 4_000_000;

/// More work per byte of messages and tools: a template may look at each of them a few times.
const FUEL_PER_BYTE: u64 = 4;

/// Stack of the thread that compiles and renders; only what is used takes memory. The parser recurses once per operator
/// of a chain, so per byte of source at the worst; dropping a value recurses once per level, and a level costs five fuel.
const STACK_BYTES: usize = 512 << 20;

/// Macros and nested blocks deeper than this are refused; a frame takes a few KiB of stack.
const RECURSION_LIMIT: usize = 200;

const NAME: &str = "chat_template";

/// What a prompt is rendered with, besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Whether the prompt ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// `enable_thinking`; undefined in the template when `None`.
    pub enable_thinking: Option<bool>,
    /// `tools`, usually an array of function descriptions; `none` in the template when `None`.
    pub tools: Option<Value>,
    /// More variables (`reasoning_effort`, `documents`, ..). May not name a variable that is set here.
    pub extra: Map<String, Value>,
    /// The moment `strftime_now` tells (in the machine's time zone), in seconds since 1970; now when `None`.
    pub now_unix_s: Option<i64>,
}

/// A compiled chat template: Jinja as the reference renderer sets it up, in a bounded sandbox.
///
/// Set up alike: `trim_blocks`, `lstrip_blocks`, loop controls, no escaping, undefined names print nothing but have no
/// attributes, `tojson` with Python's separators and without ASCII escapes, `raise_exception`, `strftime_now`,
/// `{% generation %}` blocks, Python's methods on strings and mappings, Python's printing of values. `tools` and
/// `documents` are `none` when absent, `bos_token` and `eos_token` undefined.
///
/// Steps, memory, recursion and output are bounded, see [`Error::TemplateFuel`]. Not bounded is what the engine does inside
/// a single step: comparing or concatenating lists that share their items forty levels deep (`[x, x]`), or slicing a slice
/// of a slice thousands of times, keeps it busy without costing fuel. No honest template does either.
///
/// One difference is on purpose: the `arguments` of tool calls may be an object or a JSON string holding one, and render
/// alike.
pub struct ChatTemplate {
    env: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

impl ChatTemplate {
    /// Compiles a template; a fault names its line.
    pub fn new(source: &str) -> Result<Self, Error> {
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|source| Error::Backend { doing: "configuring the template engine", source: source.into() })?;
        let mut env = Environment::new();
        env.set_syntax(syntax);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_recursion_limit(RECURSION_LIMIT);
        // Errors then say which expression was undefined.
        env.set_debug(true);
        python::install(&mut env);
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Error::TemplateTooLong { bytes: source.len(), limit: MAX_SOURCE_BYTES });
        }
        let source = with_generation_blocks(&source.replace("\r\n", "\n").replace('\r', "\n"))?;
        on_deep_stack(|| {
            env.add_template_owned(NAME, source)
                .map_err(|error| Error::TemplateSyntax { line: error.line().unwrap_or(1), problem: describe(&error) })
        })?;
        Ok(Self { env, bos_token: None, eos_token: None })
    }

    /// Makes the text of the begin and end tokens known to the template as `bos_token` and `eos_token`.
    #[must_use]
    pub fn with_tokens(mut self, bos: Option<String>, eos: Option<String>) -> Self {
        self.bos_token = bos;
        self.eos_token = eos;
        self
    }

    /// The prompt for `messages`, each a JSON object as chat clients send it.
    pub fn render(&self, messages: &[Value], options: &RenderOptions) -> Result<String, Error> {
        let mut variables = options.extra.clone();
        let mut set = |name: &str, value: Value| match variables.insert(name.into(), value) {
            Some(_) => Err(Error::ReservedVariable { name: name.into() }),
            None => Ok(()),
        };
        set("messages", Value::Array(prepared(messages)?))?;
        set("tools", options.tools.clone().unwrap_or(Value::Null))?;
        set("add_generation_prompt", options.add_generation_prompt.into())?;
        if let Some(thinking) = options.enable_thinking {
            set("enable_thinking", thinking.into())?;
        }
        for (name, token) in [("bos_token", &self.bos_token), ("eos_token", &self.eos_token)] {
            if let Some(token) = token {
                set(name, token.as_str().into())?;
            }
        }
        set(NOW_VARIABLE, options.now_unix_s.into())?;
        variables.entry("documents").or_insert(Value::Null);
        for (name, value) in &variables {
            check_depth(value, name)?;
        }
        self.run(variables)
    }

    fn run(&self, variables: Map<String, Value>) -> Result<String, Error> {
        let input_bytes: u64 = variables.values().map(size_bytes).sum();
        let fuel = FUEL.saturating_add(input_bytes.saturating_mul(FUEL_PER_BYTE));
        on_deep_stack(|| {
            // Fuel is the environment's, the allowance is this render's; a clone shares the compiled template.
            let mut env = self.env.clone();
            env.set_fuel(Some(fuel));
            let context = to_template(&Value::Object(variables));
            env.get_template(NAME).and_then(|template| template.render(context)).map_err(|error| {
                let line = error.line().unwrap_or(1);
                match (error.kind(), raised(&error)) {
                    (_, Some(message)) => Error::TemplateRefused { line, message },
                    (ErrorKind::OutOfFuel, _) => Error::TemplateFuel { line, fuel },
                    _ => Error::TemplateRender { line, problem: describe(&error) },
                }
            })
        })
    }
}

/// Runs the engine's recursive code where it cannot run out of stack.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let failed = |source| Error::Backend { doing: "starting a thread for the chat template", source };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat-template".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).map_err(|source| failed(source.into()))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Templates made for training mark the assistant's words with `{% generation %}`; for rendering that is a plain scope.
fn with_generation_blocks(source: &str) -> Result<String, Error> {
    let tags = Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")
        .map_err(|source| Error::Backend { doing: "building the generation tag pattern", source: source.into() })?;
    Ok(tags.replace_all(source, "${1}${2}with${3}").into_owned())
}

fn causes(error: &minijinja::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn raised(error: &minijinja::Error) -> Option<String> {
    causes(error).find_map(|cause| cause.downcast_ref::<Raised>()).map(|raised| raised.0.clone())
}

/// The engine's words without its own mention of template and line.
fn describe(error: &minijinja::Error) -> String {
    let mut text = error.kind().to_string();
    let details = error.detail().map(str::to_owned).into_iter();
    for detail in details.chain(causes(error).map(ToString::to_string)) {
        text.push_str(": ");
        text.push_str(&detail);
    }
    text
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("bos_token", &self.bos_token)
            .field("eos_token", &self.eos_token)
            .finish_non_exhaustive()
    }
}
