//! What is asked of a generation, what it tells while it runs, and what came of it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use cudafast_text::{StopMatcher, StreamDecoder, Tokenizer};

use crate::backend::{Round, TokenId};
use crate::depth::DepthPolicy;
use crate::error::Error;
use crate::logprobs::{MAX_TOP_LOGPROBS, TokenLogprobs};
use crate::sampler::Sampling;
use crate::timings::{Stopwatch, Timings};

/// What to generate. The default asks for nothing: no tokens, greedy, serial.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// Most tokens, the stop token included.
    pub max_tokens: usize,
    /// Ids that end the answer. Empty: only the length does.
    pub stop: Vec<TokenId>,
    /// Texts that end the answer and are no part of it, wherever tokens are cut. Searched in the text without control tokens.
    pub stop_strings: Vec<String>,
    /// How tokens are chosen. The session sets where the answer begins.
    pub sampling: Sampling,
    /// `(id, value)` added to the logit of a token, -100 to 100; an id that is given twice gets both.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Log-probabilities of every token and of this many most likely ones, at most [`MAX_TOP_LOGPROBS`].
    pub top_logprobs: Option<usize>,
    /// How many drafts a round verifies. Speed only.
    pub depth: DepthPolicy,
}

impl GenerateOptions {
    pub(crate) fn check(&self, tokenizer: &Tokenizer, vocab: usize) -> Result<(), Error> {
        for &(id, found) in &self.logit_bias {
            if !(-100.0..=100.0).contains(&found) {
                return Err(Error::InvalidBias { id, found });
            }
            if id as usize >= vocab || tokenizer.is_unused(id) {
                return Err(Error::UnknownBiasId { id, vocab });
            }
        }
        match self.top_logprobs {
            Some(found) if found > MAX_TOP_LOGPROBS => Err(Error::InvalidLogprobs { found, max: MAX_TOP_LOGPROBS }),
            _ => Ok(()),
        }
    }
}

/// What a generation tells while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GenEvent<'a> {
    /// The prompt is in the state.
    Prefilled(Prefill),
    /// A token is known.
    Token {
        /// The token.
        id: TokenId,
        /// Its index in the sequence, the prompt included.
        position: usize,
        /// It is a stop id: the last token, and no part of the text.
        stop: bool,
        /// Text that is known with it: whole characters that can be no part of a stop string. Often of earlier tokens,
        /// sometimes empty.
        text: &'a str,
        /// Its log-probabilities, where asked for.
        logprobs: Option<&'a TokenLogprobs>,
    },
    /// Nothing follows.
    End {
        /// Text that was held back until now, because a stop string or a character might have become of it.
        text: &'a str,
        /// Why it ended.
        finish: Finish,
    },
}

/// How a prompt got into the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefill {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those that were not run, because the state or a snapshot held them.
    pub cached_tokens: usize,
    /// Time it took.
    pub took: Duration,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The last token is a stop id.
    Stop,
    /// A stop string is complete: its index. The last token completed it, and may hold more than its end.
    StopString(usize),
    /// `max_tokens` are there.
    Length,
    /// The flag was raised, or the receiver of events said so.
    Cancelled,
    /// The context is full.
    ContextFull,
}

/// Drafts of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundStat {
    /// Position of the first token it committed.
    pub position: usize,
    /// Drafts verified.
    pub drafted: usize,
    /// Drafts accepted.
    pub accepted: usize,
}

/// What came of [`Session::generate`](crate::Session::generate).
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Every token the receiver of events was given, in order; the last is the stop id where `finish` is [`Finish::Stop`].
    pub tokens: Vec<TokenId>,
    /// All text the receiver was given: that of the tokens without control tokens, up to a stop id or a stop string.
    pub text: String,
    /// One entry per token, where asked for; else empty.
    pub logprobs: Vec<TokenLogprobs>,
    /// Why it ended.
    pub finish: Finish,
    /// One entry per round.
    pub rounds: Vec<RoundStat>,
    /// Times and counts.
    pub timings: Timings,
}

impl Generation {
    /// Drafts verified.
    pub fn drafted(&self) -> usize {
        self.rounds.iter().map(|r| r.drafted).sum()
    }
    /// Drafts accepted.
    pub fn accepted(&self) -> usize {
        self.rounds.iter().map(|r| r.accepted).sum()
    }
}

/// A generation under way: what was handed out, and to whom.
pub(crate) struct Run<'a> {
    options: &'a GenerateOptions,
    sink: &'a mut dyn FnMut(GenEvent<'_>) -> ControlFlow<()>,
    decoder: StreamDecoder,
    stops: StopMatcher,
    pub(crate) tokens: Vec<TokenId>,
    text: String,
    logprobs: Vec<TokenLogprobs>,
    pub(crate) rounds: Vec<RoundStat>,
    pub(crate) watch: Stopwatch,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        options: &'a GenerateOptions,
        tokenizer: &Tokenizer,
        sink: &'a mut dyn FnMut(GenEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        Ok(Self {
            options,
            sink,
            decoder: tokenizer.stream().hiding_special(),
            stops: StopMatcher::new(&options.stop_strings).map_err(|source| Error::StopString { source })?,
            tokens: Vec::new(),
            text: String::new(),
            logprobs: Vec::new(),
            rounds: Vec::new(),
            watch: Stopwatch::start(Instant::now()),
        })
    }

    pub(crate) fn tell(&mut self, event: GenEvent<'_>) -> Option<Finish> {
        (self.sink)(event).is_break().then_some(Finish::Cancelled)
    }

    /// Hands out one token; says whether it is the last.
    pub(crate) fn token(&mut self, id: TokenId, position: usize, logprobs: Option<TokenLogprobs>) -> Option<Finish> {
        self.tokens.push(id);
        let stop = self.options.stop.contains(&id);
        let piece = if stop { String::new() } else { self.decoder.push(id) };
        let released = self.stops.push(&piece);
        self.text.push_str(&released.text);
        let text = &released.text;
        let told = self.tell(GenEvent::Token { id, position, stop, text, logprobs: logprobs.as_ref() });
        self.logprobs.extend(logprobs);
        if stop {
            return Some(Finish::Stop);
        }
        let full = (self.tokens.len() == self.options.max_tokens).then_some(Finish::Length);
        released.stopped.map(Finish::StopString).or(told).or(full)
    }

    /// Hands out what a round brought: its accepted drafts (the pending token was handed out before it ran), then the next
    /// token. If one of them ends the generation, also how many of the round's rows a serial run would have run by then.
    pub(crate) fn round(&mut self, round: Round, now: Instant) -> Option<(Finish, usize)> {
        let before = self.tokens.len();
        let brought = round.committed.iter().skip(1).chain(std::iter::once(&round.next));
        let mut logprobs = round.logprobs.into_iter();
        let ended = brought.enumerate().find_map(|(index, &id)| {
            let finish = self.token(id, round.position + 1 + index, logprobs.next())?;
            // Row `index` chose this token. Its own row, where it was an accepted draft, goes: a serial run would not have run
            // it, and what a session holds must not depend on drafting.
            Some((finish, index + 1))
        });
        self.watch.tokens(self.tokens.len() - before, now);
        ended
    }

    pub(crate) fn end(mut self, mut finish: Finish) -> Generation {
        let mut text = String::new();
        // Behind a stop string nothing is text, neither the rest of its last token nor a character begun there.
        if !matches!(finish, Finish::StopString(_)) {
            let released = self.stops.push(&self.decoder.finish());
            text = released.text;
            match released.stopped {
                Some(index) => finish = Finish::StopString(index),
                None => text += &self.stops.finish(),
            }
        }
        self.text.push_str(&text);
        self.tell(GenEvent::End { text: &text, finish });
        Generation {
            tokens: self.tokens,
            text: self.text,
            logprobs: self.logprobs,
            finish,
            rounds: self.rounds,
            timings: self.watch.timings(),
        }
    }
}
