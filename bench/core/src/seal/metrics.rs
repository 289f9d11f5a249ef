//! Which keys a result has in any case, how exact they are, and which of them are measured (benchd.md 15).

use serde_json::{Map, Value, json};

/// Diagnostics: two significant figures, never ranked by.
const DIAGNOSTICS: [&str; 13] = [
    "peak_ram_gb",
    "process_resident_memory_gb",
    "bandwidth_gb_per_token",
    "benchmark_wall_seconds",
    "preflight_seconds",
    "correctness_seconds",
    "timed_benchmark_seconds",
    "gpqa_ttft_seconds",
    "gpqa_ttft_p50_seconds",
    "gpqa_ttft_max_seconds",
    "expert_read_seconds",
    "expert_hit_rate",
    "max_abs_diff",
];

/// Measured or random, though the name says neither seconds nor memory.
const MEASURED: [&str; 16] = [
    "baseline_calibration",
    "baseline_calibration_sha256",
    "benchmark_pid",
    "cool_gates",
    "decode_speedup",
    "engine_backend",
    "fresh_prompt",
    "fresh_prompt_decode_ratio",
    "fresh_prompt_prefill_ratio",
    "prefill_speedup",
    "resident_load_epoch",
    "resident_pid",
    "seal_sha256",
    "seed_window_ratio",
    "timestamp",
    "windows",
];

/// Whether a key differs from run to run of one candidate: a time, memory, a process id, a nonce, or what follows from one.
pub fn is_measured(key: &str) -> bool {
    let floor_or_ceiling = key.ends_with("_floor") || key.ends_with("_ceiling");
    let figure = key.contains("seconds") || DIAGNOSTICS.contains(&key) || MEASURED.contains(&key);
    figure && !floor_or_ceiling
}

/// Two significant figures.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

/// The keys that every result has, with what stands there when nothing is known.
pub fn always_present() -> Map<String, Value> {
    let zero = [
        "bandwidth_gb_per_token",
        "benchmark_wall_seconds",
        "preflight_seconds",
        "correctness_seconds",
        "timed_benchmark_seconds",
        "gpqa_ttft_seconds",
        "gpqa_ttft_p50_seconds",
        "gpqa_ttft_max_seconds",
        "process_resident_memory_gb",
        "peak_ram_gb",
        "expert_read_seconds",
        "expert_hit_rate",
        "max_abs_diff",
    ];
    let none = [
        "decode_seconds_per_token",
        "prefill_seconds_per_token",
        "baseline_decode_seconds_per_token",
        "baseline_prefill_seconds_per_token",
        "decode_speedup",
        "prefill_speedup",
        "decode_speedup_floor",
        "prefill_speedup_floor",
        "first_failing_layer",
        "first_failing_case",
        "first_failing_step",
        "expected_token",
        "actual_token",
        "error",
        "gpqa_ttft_source",
        "semantic_gpqa_model",
    ];
    let counts = [
        "gpqa_ttft_pass_count",
        "gpqa_ttft_case_count",
        "semantic_gpqa_pass_count",
        "semantic_gpqa_case_count",
        "expert_cache_hits",
        "expert_cache_misses",
        "expert_cache_evictions",
        "expert_bytes_read",
        "expert_peak_cached_tensors",
        "num_layers",
        "checked_steps",
        "case_count",
        "weights_byte_count",
        "weights_file_count",
    ];
    let no = [
        "passed_decode_speedup_floor",
        "passed_prefill_speedup_floor",
        "gpqa_ttft_passed",
        "semantic_gpqa_passed",
        "passed_correctness",
        "partial_result",
    ];
    let empty = ["golden_hash", "commit", "timestamp", "harness_hash", "weights_hash", "runtime"];
    let keys = |keys: &[&str], value: Value| {
        keys.iter().map(move |key| ((*key).to_owned(), value.clone())).collect::<Vec<_>>()
    };
    let groups = [
        keys(&zero, json!(0.0)),
        keys(&none, Value::Null),
        keys(&counts, json!(0)),
        keys(&no, json!(false)),
        keys(&empty, json!("")),
        keys(&["bandwidth_source"], json!("ram_resident_model")),
    ];
    groups.into_iter().flatten().collect()
}

/// Rounds the diagnostics, then puts back what rounding could have turned round: the wall is no shorter than what was timed.
pub fn clamp_diagnostics(metrics: &mut Map<String, Value>) {
    for key in DIAGNOSTICS {
        if let Some(value) = metrics.get(key).and_then(Value::as_f64) {
            metrics.insert(key.into(), json!(rounded(value)));
        }
    }
    for (whole, part) in
        [("benchmark_wall_seconds", "timed_benchmark_seconds"), ("gpqa_ttft_max_seconds", "gpqa_ttft_p50_seconds")]
    {
        let of = |key: &str| metrics.get(key).and_then(Value::as_f64);
        if let (Some(long), Some(short)) = (of(whole), of(part))
            && long < short
        {
            metrics.insert(whole.into(), json!(short));
        }
    }
}
