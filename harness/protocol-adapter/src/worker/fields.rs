//! A request's fields, checked: which the verb needs, which it may not have, and what they may say.

use bench_protocol::{DEPTHS, LenientSpec, MAX_RUN_COUNT, Request, Verb};

use crate::Error;
use crate::error::Malformed;

/// A request that asks for something; whether it may be had now is the phase's business.
pub(crate) enum Asked {
    Prefill { prompt: Vec<i64> },
    DecodeBegin { seed: Vec<i64> },
    DecodeStep { token: i64 },
    Correctness { prompt: Vec<i64>, steps: u32 },
    CorrectnessBegin { prompt: Vec<i64> },
    CorrectnessStep { token: i64 },
    FreeDecodeBegin { seed: Vec<i64>, spec: AskedSpec },
    FreeDecodeRun { count: u32 },
    PhaseDiagnostics,
}

/// `spec`, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedSpec {
    Serial,
    Mtp { depth: Option<u32> },
}

/// Reads the fields of a request. Errors: those of engine-protocol-v1.md 6, rules 6 to 8, that follow from the request alone.
pub(crate) fn read(mut request: Request<LenientSpec>) -> Result<(Verb, Asked), Error> {
    let Some(verb) = request.verb() else {
        return Err(Malformed::UnknownKind { kind: request.kind }.into());
    };
    let asked = take(verb, &mut request)?;
    let kind = verb.name();
    let left = [
        ("prompt_tokens", request.prompt_tokens.is_some()),
        ("token", request.token.is_some()),
        ("seed_tokens", request.seed_tokens.is_some()),
        ("steps", request.steps.is_some()),
        ("count", request.count.is_some()),
        ("spec", request.spec.is_some()),
    ];
    match left.into_iter().find(|(_, is_there)| *is_there) {
        Some((field, _)) => Err(Malformed::Needless { kind, field }.into()),
        None => Ok((verb, asked)),
    }
}

/// Takes out of the request what its verb has a use for.
fn take(verb: Verb, request: &mut Request<LenientSpec>) -> Result<Asked, Error> {
    let missing = |field| Malformed::Missing { kind: verb.name(), field };
    let mut prompt = || request.prompt_tokens.take().ok_or(missing("prompt_tokens"));
    let mut seed = || request.seed_tokens.take().ok_or(missing("seed_tokens"));
    let mut token = || request.token.take().ok_or(missing("token"));
    Ok(match verb {
        Verb::Prefill => Asked::Prefill { prompt: prompt()? },
        Verb::DecodeBegin => {
            let seed = seed()?;
            match spec(request.spec.take())? {
                AskedSpec::Serial => Asked::DecodeBegin { seed },
                AskedSpec::Mtp { .. } => return Err(Malformed::DraftingOnDecodeBegin { mode: "mtp" }.into()),
            }
        }
        Verb::DecodeStep => Asked::DecodeStep { token: token()? },
        Verb::Correctness => {
            Asked::Correctness { prompt: prompt()?, steps: steps(request.steps.take().ok_or(missing("steps"))?)? }
        }
        Verb::CorrectnessBegin => Asked::CorrectnessBegin { prompt: prompt()? },
        Verb::CorrectnessStep => Asked::CorrectnessStep { token: token()? },
        Verb::FreeDecodeBegin => Asked::FreeDecodeBegin { seed: seed()?, spec: spec(request.spec.take())? },
        Verb::FreeDecodeRun => Asked::FreeDecodeRun { count: count(request.count.take().ok_or(missing("count"))?)? },
        Verb::PhaseDiagnostics => Asked::PhaseDiagnostics,
    })
}

fn count(count: u32) -> Result<u32, Malformed> {
    match count {
        0 => Err(Malformed::CountNotPositive { count }),
        1..=MAX_RUN_COUNT => Ok(count),
        _ => Err(Malformed::CountAboveBound { count }),
    }
}

/// Bounded like a free run: an engine would otherwise answer a number with gigabytes.
fn steps(steps: i64) -> Result<u32, Malformed> {
    let bounded = u32::try_from(steps).ok().filter(|steps| (1..=MAX_RUN_COUNT).contains(steps));
    bounded.ok_or(Malformed::Steps { steps })
}

fn spec(spec: Option<LenientSpec>) -> Result<AskedSpec, Error> {
    let Some(LenientSpec { mode, mtp, other }) = spec else { return Ok(AskedSpec::Serial) };
    let asked = match (mode.as_str(), mtp) {
        ("serial", None) => AskedSpec::Serial,
        ("serial", Some(_)) => return Err(Malformed::SerialWithMtpBlock.into()),
        ("mtp", block) => AskedSpec::Mtp { depth: block.and_then(|block| block.depth) },
        _ => return Err(Malformed::UnknownMode { mode }.into()),
    };
    if let Some(key) = other {
        return Err(Malformed::SpecKey { key }.into());
    }
    match asked {
        AskedSpec::Mtp { depth: Some(depth) } if !DEPTHS.contains(&depth) => Err(Error::DepthOutsideEnvelope { depth }),
        asked => Ok(asked),
    }
}
