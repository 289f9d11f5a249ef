//! `cudafast trace dump`: runs a prompt and keeps every intermediate value.

use std::path::Path;

use cudafast_cpu::CpuTimeline;
use cudafast_model::Hyperparams;
use cudafast_runtime::{
    Backend, BackendError, CancelFlag, LogitEdit, LogitRows, RoundRequest, Sampling, Timeline, TimelineOptions, TokenId,
};

use super::file::{self, About, Geometry};
use super::record::{Filter, Recorder, lock};
use crate::args::TraceDumpArgs;
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::outfile::{Kind, OutFile};
use crate::prompt::Prompt;
use crate::{load, output, source};

pub(crate) fn run(args: &TraceDumpArgs) -> Result<(), Failure> {
    let runner = args.draft.apply(args.device.runner()?);
    let cpu_options = runner.cpu().ok_or(Failure::TraceDevice)?;
    let prompt = Prompt::read(&args.prompt)?;
    let work = Work::begin(); // from here on a signal may leave no file behind
    let mut out = OutFile::claim("--out", &args.out, Kind::Trace)?;
    let (target, head) = source::open_with_head(&args.model, &args.head, &runner)?;
    if args.depth > 0 && head.file().is_none() {
        return Err(cudafast_runtime::Error::NoDraftHead { depth: args.depth }.into());
    }
    let tokens = prompt.tokens_by(&cudafast_runtime::tokenizer(&target)?)?;
    let backend = load::cpu(&target, &head, cpu_options)?;
    let hp = backend.hyperparams().clone();
    if tokens.len() > hp.context_tokens {
        let (prompt, limit) = (tokens.len(), hp.context_tokens);
        return Err(cudafast_runtime::Error::PromptTooLong { prompt, limit, trained: limit }.into());
    }
    let layers = args.layers.clone().map_or(0..hp.layers.len() + 1, |layers| layers.0);
    if layers.start > hp.layers.len() {
        return Err(Failure::NoSuchLayer { kept: layers, layers: hp.layers.len() });
    }
    let filter = Filter { layers: layers.clone(), ops: args.ops.clone() };
    let mut timeline = backend.open_timeline(&TimelineOptions { ctx_tokens: tokens.len() })?;
    // Values go to a file without a name beside the trace: its header needs to know them all.
    let folder = args.out.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    let data = tempfile::tempfile_in(folder).map_err(|source| out.failed(source))?;
    let (recorder, recording) = Recorder::new(data, filter, hp.layers.len(), hp.wide(), work.cancel.clone());
    timeline.watch(Box::new(recorder));
    let ran = match args.decode {
        None => prefill(&mut timeline, &tokens, args.depth, &work.cancel),
        Some(rows) => decode(&mut timeline, &tokens, rows, args.depth, &work.cancel),
    };
    let mut recording = lock(&recording);
    let mut data = recording.finish().map_err(|source| out.failed(source))?;
    work.check()?;
    ran?;
    let ran_op = |op: &&String| recording.events.iter().any(|event| event.op.starts_with(op.as_str()));
    if let Some(op) = args.ops.iter().find(|op| !ran_op(op)) {
        return Err(Failure::NoSuchOp { op: op.clone() });
    }
    if recording.events.is_empty() {
        return Err(Failure::NoSuchLayer { kept: layers, layers: hp.layers.len() });
    }
    let about = About::new(target.label(), how(args, &backend.describe()), geometry(&hp), tokens);
    file::write(&mut out, &about, &recording.events, &mut data).map_err(|source| out.failed(source))?;
    out.finish()?;
    let rows: usize = recording.events.iter().map(|event| event.rows).sum();
    output::note(&format!("{}: {rows} rows in {} tensors", args.out.display(), recording.events.len()));
    Ok(())
}

fn how(args: &TraceDumpArgs, device: &str) -> String {
    match args.decode {
        None => format!("{device}, prefill"),
        Some(rows) => format!("{device}, decode of {rows} row(s) at once"),
    }
}

fn geometry(hp: &Hyperparams) -> Geometry {
    Geometry {
        layers: hp.layers.len(),
        hidden: hp.hidden,
        streams: hp.streams,
        experts: hp.moe.experts,
        experts_used: hp.moe.used,
        vocabulary: hp.vocab,
    }
}

/// The prompt as a prompt is run, the logits of every row, then a choice and `depth` drafts.
fn prefill(
    timeline: &mut CpuTimeline,
    tokens: &[TokenId],
    depth: usize,
    cancel: &CancelFlag,
) -> Result<(), BackendError> {
    timeline.prefill(tokens, LogitRows::Each(&mut |_, _| {}), cancel)?;
    timeline.choose(&Sampling::greedy(), None, depth)?;
    Ok(())
}

/// The same tokens as rounds of `rows` rows, each made to accept the prompt. The first token has nothing to be chosen
/// from, so it is prefilled.
fn decode(
    timeline: &mut CpuTimeline,
    tokens: &[TokenId],
    rows: usize,
    depth: usize,
    cancel: &CancelFlag,
) -> Result<(), BackendError> {
    let greedy = Sampling::greedy();
    timeline.prefill(&tokens[..1], LogitRows::Each(&mut |_, _| {}), cancel)?;
    let vocab = timeline.last_logits().len();
    let edit = |at: usize| match tokens.get(at) {
        Some(token) => only(*token, vocab),
        None => LogitEdit::default(),
    };
    let depth_at = |end: usize| if end == tokens.len() { depth } else { 0 };
    timeline.choose(&greedy, Some(&edit(1)), depth_at(1))?;
    let mut at = 1;
    while at < tokens.len() {
        if cancel.is_raised() {
            return Err(BackendError::Cancelled { position: at });
        }
        let end = tokens.len().min(at + rows);
        let edits: Vec<LogitEdit> = (at + 1..=end).map(edit).collect();
        timeline.round(&RoundRequest {
            next_depth: depth_at(end),
            drafts: Some(&tokens[at + 1..end]),
            budget: end - at,
            stop: &[],
            sampling: &greedy,
            edits: &edits,
            want_logits: false,
            top_logprobs: None,
        })?;
        at = end;
    }
    Ok(())
}

/// Allows one token and no other.
fn only(token: TokenId, vocab: usize) -> LogitEdit {
    let mut allowed = vec![0_u32; vocab.div_ceil(32)];
    if let Some(word) = allowed.get_mut(token as usize / 32) {
        *word |= 1 << (token % 32);
    }
    LogitEdit { bias: Vec::new(), allowed: Some(allowed) }
}
