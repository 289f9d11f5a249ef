//! `run` and `chat`: a prompt, and how text is generated from it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use cudafast_runtime::{DepthPolicy, MAX_DEPTH, MAX_TOP_LOGPROBS, Penalties, Sampling, TokenId};

use super::{DeviceArgs, DraftArgs, HeadArgs, ModelArgs, whole};
use crate::failure::Failure;

/// How tokens are chosen. What is left out is taken from the file's `general.sampling.*` keys, else is off.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 takes the most likely token. Left out: the file's value, else 0
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    pub(crate) temp: Option<f32>,
    /// Draw from the K most likely tokens; 0 = all. Left out: the file's value, else 0
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub(crate) top_k: Option<usize>,
    /// Draw from the most likely tokens that together have this probability; 1 = all. Left out: the file's value, else 1
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = top_p)]
    pub(crate) top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = min_p)]
    pub(crate) min_p: f32,
    /// Names the sequence of draws: the same seed gives the same text, with drafting or without
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>(0))]
    pub(crate) seed: u64,
    /// Divide the positive logits, and multiply the others, of every token in the prompt and the answer so far; 1 = off
    #[arg(long, default_value_t = 1.0, value_name = "R", allow_negative_numbers = true, value_parser = repeat_penalty)]
    pub(crate) repeat_penalty: f32,
    /// Subtract this from the logit of every token in the answer so far; 0 = off
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = presence_penalty)]
    pub(crate) presence_penalty: f32,
    /// Subtract this from the logit of every token in the answer so far, as often as it is there; 0 = off
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = frequency_penalty)]
    pub(crate) frequency_penalty: f32,
    /// Add a number from -100 to 100 to the logit of a token; may be given again for others
    #[arg(long, value_name = "ID=VALUE", allow_hyphen_values = true)]
    pub(crate) logit_bias: Vec<Bias>,
}

/// How text is generated.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Most tokens to generate, in chat for one answer
    #[arg(short = 'n', long, default_value_t = 256, value_name = "N", allow_negative_numbers = true,
        value_parser = whole::<usize>(0))]
    pub(crate) max_tokens: usize,
    /// Drafts verified at once: 0 to 6, 0 = no drafting, or auto = as many as pay for themselves. Changes speed only.
    /// Without a draft head auto is 0 and a number above 0 is an error
    #[arg(long, default_value = "auto", value_name = "D", allow_negative_numbers = true)]
    pub(crate) depth: Depth,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// End the answer before this text, which is not printed; may be given again for others
    #[arg(long, value_name = "TEXT", value_parser = stop_string)]
    pub(crate) stop: Vec<String>,
    /// Room for this many tokens, prompt and answer together. Left out: what run needs, 32768 for chat; at most the context
    /// the model was trained for
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>(1))]
    pub(crate) ctx_tokens: Option<usize>,
}

/// What to continue.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PromptArgs {
    /// The prompt; `-` reads it from standard input, as it is
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file, as it is; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Give the prompt as token ids, e.g. 1,2,3
    #[arg(long, value_name = "IDS")]
    pub(crate) ids: Option<Ids>,
}

const RUN_HELP: &str = "\
Examples:
  cudafast run \"Once upon a time\"
  cudafast run --chat \"Tell me a story about a rabbit.\"
  cudafast run -m DIR --temp 0.7 --top-k 20 --seed 1 --prompt-file letter.txt
  cudafast run -m DIR --ids 1,2,3 -n 64 --depth 2 --temp 0 --json

The text goes to standard output as it is generated, a line with speed, acceptance and memory to standard error. With --json
standard output gets one object instead: tokens (the stop token included), text, rounds (drafted, accepted), timings. Of
--logprobs each token has id, token (its text), logprob and top (the N most likely), by the model's own distribution: before
bias, penalties and temperature.";

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) generate: GenerateArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Take the prompt as a user's message and render it with the model's chat template
    #[arg(long, conflicts_with = "ids")]
    pub(crate) chat: bool,
    /// With --chat: let the model think before it answers. Its thoughts come first, from <think> to </think>
    #[arg(long, requires = "chat")]
    pub(crate) think: bool,
    /// Go on past the model's stop tokens, up to --max-tokens
    #[arg(long)]
    pub(crate) ignore_stop: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: the log-probability of every token and of the N most likely ones, 0 to 20
    #[arg(long, value_name = "N", requires = "json", allow_negative_numbers = true, value_parser = top_logprobs)]
    pub(crate) logprobs: Option<usize>,
}

const CHAT_HELP: &str = "\
Examples:
  cudafast chat
  cudafast chat -m DIR --system \"Answer in one sentence.\" --temp 0.7
  printf 'Hello.\\nWho are you?\\n' | cudafast chat

A line is a message; on a terminal one that ends in a backslash goes on on the next. /help lists the commands: /reset /system
/think /depth /quit. Ctrl-C stops the answer and keeps the conversation, a second one leaves, as does Ctrl-D. What is typed on
a terminal is kept in ~/.local/state/cudafast/chat-history (by $XDG_STATE_HOME elsewhere), for its owner only; a line that
begins with a blank is not. A line that is refused (too long, not UTF-8, no such command) is told and the conversation goes
on; that of a pipe then ends with exit code 1.";

#[derive(Debug, Args)]
#[command(after_help = CHAT_HELP)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) generate: GenerateArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Let the model think before it answers
    #[arg(long)]
    pub(crate) think: bool,
    /// Neither read nor keep what is typed in earlier and later conversations
    #[arg(long)]
    pub(crate) no_history: bool,
}

/// A number that is a sampler setting by [`Sampling::new`], the only place that knows the ranges.
fn setting(text: &str, sampling: impl Fn(f32) -> Result<Sampling, cudafast_runtime::Error>) -> Result<f32, String> {
    let value = text.parse().map_err(|_| "expected a number".to_owned())?;
    sampling(value).map(|_| value).map_err(|refused| refused.to_string())
}

fn temperature(text: &str) -> Result<f32, String> {
    setting(text, |t| Sampling::new(t, 0, 1.0, 0.0, 0))
}

fn top_p(text: &str) -> Result<f32, String> {
    setting(text, |p| Sampling::new(1.0, 0, p, 0.0, 0))
}

fn min_p(text: &str) -> Result<f32, String> {
    setting(text, |p| Sampling::new(1.0, 0, 1.0, p, 0))
}

fn penalty(text: &str, penalties: impl Fn(f32) -> Result<Penalties, cudafast_runtime::Error>) -> Result<f32, String> {
    setting(text, |value| penalties(value).map(|penalties| Sampling::greedy().with_penalties(penalties)))
}

fn repeat_penalty(text: &str) -> Result<f32, String> {
    penalty(text, |repeat| Penalties::new(repeat, 0.0, 0.0))
}

fn presence_penalty(text: &str) -> Result<f32, String> {
    penalty(text, |presence| Penalties::new(1.0, presence, 0.0))
}

fn frequency_penalty(text: &str) -> Result<f32, String> {
    penalty(text, |frequency| Penalties::new(1.0, 0.0, frequency))
}

fn stop_string(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected at least one character".into()) } else { Ok(text.to_owned()) }
}

fn top_logprobs(text: &str) -> Result<usize, String> {
    let refused = || format!("expected 0 to {MAX_TOP_LOGPROBS}");
    text.parse().ok().filter(|top| *top <= MAX_TOP_LOGPROBS).ok_or_else(refused)
}

/// A token and what is added to its logit. The vocabulary is the session's to check.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bias(pub(crate) TokenId, pub(crate) f32);

impl SamplingArgs {
    /// Refuses a token that is given two biases.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut ids: Vec<TokenId> = self.logit_bias.iter().map(|bias| bias.0).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Failure::BiasTwice { id: pair[0] }),
            None => Ok(()),
        }
    }
}

impl FromStr for Bias {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(id, value)| Some(Self(id.parse().ok()?, value.parse().ok()?)));
        let parsed = parsed.filter(|bias| (-100.0..=100.0).contains(&bias.1));
        parsed.ok_or_else(|| "expected a token id and a number from -100 to 100, e.g. 42=-5.5".into())
    }
}

/// Token ids separated by commas.
#[derive(Debug, Clone)]
pub(crate) struct Ids(pub(crate) Vec<TokenId>);

impl FromStr for Ids {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| {
            let part = part.trim();
            part.parse()
                .map_err(|_| format!("`{part}` is no token id; expected numbers separated by commas, e.g. 1,2,3"))
        };
        text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
    }
}

/// How many drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Auto,
    Fixed(usize),
}

impl FromStr for Depth {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Depth::Auto),
            Ok(depth) if depth <= MAX_DEPTH => Ok(Depth::Fixed(depth)),
            _ => Err(format!("expected 0 to {MAX_DEPTH}, or auto")),
        }
    }
}

impl From<Depth> for DepthPolicy {
    fn from(depth: Depth) -> Self {
        match depth {
            Depth::Auto => DepthPolicy::Adaptive { max: MAX_DEPTH },
            Depth::Fixed(depth) => DepthPolicy::Fixed(depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_and_ids_are_parsed_whole_or_refused() {
        assert_eq!("auto".parse(), Ok(Depth::Auto));
        assert_eq!("6".parse(), Ok(Depth::Fixed(6)));
        for bad in ["7", "-1", "", "2x", "Auto"] {
            assert!(bad.parse::<Depth>().is_err(), "{bad}");
        }
        assert_eq!("1, 2,3".parse::<Ids>().map(|ids| ids.0), Ok(vec![1, 2, 3]));
        for bad in ["", "1,,2", "1,x", "-1", "4294967296"] {
            assert!(bad.parse::<Ids>().is_err(), "{bad}");
        }
    }
}
