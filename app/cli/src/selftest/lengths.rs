//! Prompts of many lengths, one by one: what a sanitizer watches, and a law by itself. A prompt row's bits depend on its
//! position and history alone (design.md 3.5), so the last row of a shorter prompt is that row of the longest one. Behind
//! each prompt two rounds run, so that decoding meets every alignment of the caches.

use cudafast_cuda::Check;
use cudafast_runtime::{Backend, Sampling, Timeline, TimelineOptions};

use super::model::{answer, prefill, pseudo_random, quiet_prefill, relative, same_bits};
use crate::args::SelftestArgs;
use crate::failure::Failure;
use crate::runner::Runner;
use crate::{load, source};

/// Runs the checks on the model that `args` name.
pub(super) fn run(args: &SelftestArgs, each: &mut dyn FnMut(&Check)) -> Result<Vec<Check>, Failure> {
    let options = cudafast_cuda::CudaOptions { device: args.cuda_device, ..cudafast_cuda::CudaOptions::default() };
    let whole = Runner::Cpu(cudafast_cpu::CpuOptions::default());
    let (target, head) = source::open_with_head(&args.model, &args.head, &whole)?;
    let cuda = load::cuda(&target, &head, &options)?;
    let vocab = cuda.hyperparams().vocab;
    let longest = args.lengths.0.iter().copied().max().unwrap_or(1);
    let depth = if cuda.has_draft_head() { 3 } else { 0 };
    let mut timeline = cuda.open_timeline(&TimelineOptions { ctx_tokens: longest + 64 })?;
    let prompt = pseudo_random(args.seed, vocab, longest);
    let rows = prefill(&mut timeline, &prompt)?;
    let mut checks = Vec::new();
    for &length in &args.lengths.0 {
        timeline.reset();
        quiet_prefill(&mut timeline, &prompt[..length])?;
        let (got, want) = (timeline.last_logits().to_vec(), &rows[length - 1]);
        let made = answer(&mut timeline, &Sampling::greedy(), depth, 3, vocab)?;
        let finite = made.rows.iter().flatten().all(|value| value.is_finite()) && !made.rows.is_empty();
        let ok = same_bits(&got, want) && finite;
        let note = match (ok, finite) {
            (true, _) => String::new(),
            (false, true) => format!("its last row is off by {:.1e}", relative(&got, want)),
            (false, false) => "a round behind it gave what is no number".into(),
        };
        let (op, shape) = ("lengths".into(), format!("prompt of {length}, and two rounds"));
        let check = Check { op, shape, error: if ok { 0.0 } else { f64::NAN }, bound: 0.0, ok, note };
        each(&check);
        checks.push(check);
    }
    Ok(checks)
}
