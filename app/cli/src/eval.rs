//! `cudafast eval`: the logits of every position of a prompt.

use std::time::Instant;

use cudafast_gguf::ShardSet;
use cudafast_runtime::CancelFlag;

use crate::args::EvalArgs;
use crate::failure::Failure;
use crate::npy::NpyWriter;
use crate::prompt::Prompt;
use crate::source::Head;
use crate::{load, output, source};

pub(crate) fn run(args: &EvalArgs) -> Result<(), Failure> {
    load::check_device(args.device.device)?;
    let claim = NpyWriter::claim(&args.out)?;
    let prompt = Prompt::read(&args.prompt)?;
    let model = source::open_model(&args.model)?;
    let head = match &args.mtp_model {
        Some(path) => Head::One(Box::new(ShardSet::open(path)?)),
        None => Head::None,
    };
    let loaded = load::load(model, &head, &args.device.cpu_options())?;
    let tokens = prompt.tokens(&loaded.engine)?;
    let ctx_tokens = tokens.len().clamp(1, loaded.trained_tokens());
    let mut session = loaded.open_session(ctx_tokens, 0)?;
    let vocab = loaded.engine.backend().hyperparams().vocab;
    let mut writer = claim.begin(tokens.len(), vocab)?;
    let begun = Instant::now();
    let cancel = CancelFlag::default();
    let mut failed = None;
    let ran = session.logits(&tokens, &cancel, &mut |_, row| {
        if failed.is_none()
            && let Err(source) = writer.row(row)
        {
            failed = Some(source);
            cancel.raise(); // the disk is full: no use in running the rest
        }
    });
    if let Some(source) = failed {
        return Err(Failure::Out { path: args.out.clone(), source });
    }
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
