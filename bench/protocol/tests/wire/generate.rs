//! Any request and any response that can be written.

use bench_protocol::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9 ]{0,12}", any::<String>()]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f32>().prop_map(f64::from), any::<f64>()].prop_filter("JSON has it", |number| number.is_finite())
}

pub(crate) fn spec() -> impl Strategy<Value = SpecConfig> {
    let mode = prop::sample::select(vec![SpecMode::Serial, SpecMode::Mtp, SpecMode::Dflash, SpecMode::Dspark]);
    let block = || of(Just(serde_json::Map::from_iter([("k".to_owned(), serde_json::json!([1, null]))])));
    (mode, of(of(any::<u32>())), block(), block()).prop_map(|(mode, mtp, dflash, dspark)| SpecConfig {
        mode,
        mtp: mtp.map(|depth| MtpBlock { depth }),
        dflash,
        dspark,
    })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let tokens = || of(vec(any::<i64>(), 0..4));
    let kind = prop::sample::select(Verb::ALL.to_vec());
    (any::<i64>(), kind, tokens(), of(any::<i64>()), tokens(), of(any::<i64>()), of(any::<u32>()), of(spec())).prop_map(
        |(id, kind, prompt_tokens, token, seed_tokens, steps, count, spec)| Request {
            id,
            kind: kind.name().to_owned(),
            prompt_tokens,
            token,
            seed_tokens,
            steps,
            count,
            spec,
        },
    )
}

fn expert_stats() -> impl Strategy<Value = ExpertStats> {
    (any::<[u64; 5]>(), number()).prop_map(|(counts, expert_read_seconds)| ExpertStats {
        expert_cache_hits: counts[0],
        expert_cache_misses: counts[1],
        expert_cache_evictions: counts[2],
        expert_bytes_read: counts[3],
        expert_read_seconds,
        expert_peak_cached_tensors: counts[4],
    })
}

fn identities() -> impl Strategy<Value = (Option<HeadProvenance>, Option<RunnerIdentity>, Option<ResidentIdentity>)> {
    let head = (text(), any::<u64>(), any::<u64>());
    let head = head.prop_map(|(sha256, bytes, file_count)| HeadProvenance { sha256, bytes, file_count });
    let runner = (text(), text(), "[0-9a-f]{64}", text())
        .prop_map(|(id, model_type, manifest_sha256, build)| RunnerIdentity { id, model_type, manifest_sha256, build });
    let resident = any::<(u32, u64)>().prop_map(|(pid, load_epoch)| ResidentIdentity { pid, load_epoch });
    (of(head), of(runner), of(resident))
}

pub(crate) fn response() -> impl Strategy<Value = Response> {
    let logit = (any::<i64>(), number()).prop_map(|(token, logit)| TopLogit { token, logit });
    let envelope = (any::<i64>(), of(text()), any::<bool>(), of(text()));
    let answer =
        (of(any::<i64>()), of(vec(logit, 0..9)), of(any::<i64>()), of(vec(any::<i64>(), 0..4)), of(expert_stats()));
    let report =
        (of(number()), of(any::<u32>()), of(text()), of(any::<u64>()), of(any::<u64>()), of(vec(text(), 0..3)));
    let run = (of(vec(any::<u32>(), 0..4)), any::<[Option<u64>; 9]>(), of(spec()), of(vec(text(), 0..3)));
    let audit = (of(number()), of(number()), of(any::<u32>()), of(text()), of(any::<bool>()));
    (envelope, answer, report, run, audit, identities()).prop_map(
        |(envelope, answer, report, run, audit, (head_provenance, runner, resident))| Response {
            id: envelope.0,
            nonce: envelope.1,
            ok: envelope.2,
            error: envelope.3,
            token: answer.0,
            top_logits: answer.1,
            seed_token: answer.2,
            tokens: answer.3,
            expert_stats: answer.4,
            peak_ram_gb: report.0,
            protocol_version: report.1,
            backend: report.2.clone(),
            device: report.2,
            completed_work: report.3,
            cache_memory: report.4,
            capabilities: report.5,
            acceptance_lengths: run.0,
            drafted_total: run.1[0],
            accepted_total: run.1[1],
            committed_total: run.1[2],
            effective_spec: run.2,
            spec_modes: run.3,
            head_provenance,
            mlx_active_memory_bytes: run.1[3],
            mlx_cache_memory_bytes: run.1[4],
            mlx_peak_memory_bytes: run.1[5],
            top_logit_margin: audit.0,
            expected_token_logit: audit.1,
            expected_token_rank: audit.2,
            spec_decoder: audit.3,
            verify_replay_disagreements: run.1[6],
            verification_mode: audit.4.map(|serial| match serial {
                true => VerificationMode::Serial,
                false => VerificationMode::Rectangular,
            }),
            rectangular_verification_rounds: run.1[7],
            serial_verification_rounds: run.1[8],
            runner,
            resident,
        },
    )
}
