//! The multi-token-prediction head (qwen4exp.md 9): row `i` joins the target's residual `R[i]` with token `i + 1`.

use cudafast_model::DraftHead;
use cudafast_runtime::TokenId;
use cudafast_runtime::sampler::argmax;

use crate::HeadNorm;
use crate::math;
use crate::matmul::project;
use crate::model::{MixerState, Model, Rows};
use crate::probe::Probe;
use crate::state::KvCache;

/// Runs head rows at `rows.position..`: `residuals: [T][W]`, `next[t]` the token after row `t`. Returns the head's own wide
/// residual ("multi"), `[T][W]`, and writes its cache rows.
pub(crate) fn forward(
    model: &Model,
    head: &DraftHead,
    kv: &mut KvCache,
    residuals: &[f32],
    next: &[TokenId],
    rows: Rows,
    probe: &mut dyn Probe,
) -> Vec<f32> {
    let hp = &model.hp;
    let mut h = residuals.to_vec();
    let group = match model.head_norm {
        HeadNorm::Single => hp.wide(),
        HeadNorm::PerStream => hp.hidden,
    };
    math::rms_norm(&model.pool, &mut h, head.hnorm.as_slice(), group, hp.rms_eps);
    // Per stream: the embedding half, then the hidden half.
    let mut joined = Vec::with_capacity(2 * h.len());
    for (h, token) in h.chunks_exact(hp.wide()).zip(next) {
        let mut e = model.embed(&head.token_embd, *token);
        math::rms_norm(&model.pool, &mut e, head.enorm.as_slice(), hp.hidden, hp.rms_eps);
        for stream in h.chunks_exact(hp.hidden) {
            joined.extend_from_slice(&e);
            joined.extend_from_slice(stream);
        }
    }
    let mut x = project(&model.pool, head.eh_proj.view(), &model.operand(&joined, 2 * hp.hidden, rows.phase));
    probe.value(rows.layer, "embed", rows.position, hp.wide(), &x);
    model.block(&head.block, MixerState::Attention(kv), &mut x, rows, probe);
    x
}

/// Greedy draft of one head row: `multi: [W]` to the token with the largest logit, ties to the lowest id. Where no logit is
/// a number, 0: a draft is only a guess.
pub(crate) fn draft(model: &Model, head: &DraftHead, multi: &[f32], probe: &mut dyn Probe) -> TokenId {
    let logits = model.logits(&head.hc_head, &head.output, multi);
    probe.draft(&logits);
    argmax(&logits).unwrap_or(0)
}
