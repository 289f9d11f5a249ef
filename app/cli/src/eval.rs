//! `cudafast eval`: the logits of every position of a prompt.

use std::time::Instant;

use cudafast_gguf::ShardSet;

use crate::args::EvalArgs;
use crate::failure::Failure;
use crate::interrupt::Work;
use crate::npy::NpyWriter;
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::source::Head;
use crate::{load, output, source};

pub(crate) fn run(args: &EvalArgs) -> Result<(), Failure> {
    let runner = args.device.runner()?;
    let prompt = Prompt::read(&args.prompt)?;
    let work = Work::begin(); // from here on a signal may leave no file behind
    let claim = NpyWriter::claim(&args.out)?;
    let model = source::open_model(&args.model, &runner)?;
    let head = match &args.mtp_model {
        Some(path) => Head::One(ShardSet::open(path)?.into()),
        None => Head::None,
    };
    let loaded = load::load(model, &head, &runner)?;
    let tokens = prompt.tokens(&loaded.engine)?;
    let ctx_tokens = tokens.len().clamp(1, loaded.trained_tokens());
    let (mut session, _) = loaded.open_session(ctx_tokens, 0)?;
    let vocab = loaded.engine.backend().hyperparams().vocab;
    let mut writer = claim.begin(tokens.len(), vocab)?;
    let begun = Instant::now();
    let mut failed = None;
    let progress = Progress::tokens("evaluating", tokens.len());
    let ran = session.logits(&tokens, &work.cancel, &mut |position, row| {
        progress.set(position as u64 + 1);
        if failed.is_none()
            && let Err(source) = writer.row(row)
        {
            failed = Some(source);
            work.cancel.raise(); // the disk is full: no use in running the rest
        }
    });
    drop(progress);
    if let Some(source) = failed {
        return Err(Failure::Out { flag: "--out", path: args.out.clone(), source });
    }
    work.check()?;
    ran?;
    writer.finish()?;
    let seconds = begun.elapsed().as_secs_f64();
    output::note(&format!(
        "{}: {} rows of {vocab} logits, {:.0} tok/s",
        args.out.display(),
        tokens.len(),
        tokens.len() as f64 / seconds.max(1e-9)
    ));
    Ok(())
}
