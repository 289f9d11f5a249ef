//! `perplexity` and `trace`, on the embedded model and texts of a few tokens.

use crate::fixture::{Cli, oracle};

const STORY: &str = "Once upon a time, there was a little fox named Jack. He lived in a garden.";

/// Rows of a float32 matrix in an NPY file.
fn npy(bytes: &[u8]) -> Vec<Vec<f32>> {
    let header_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + header_len]).unwrap();
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let cols: usize = shape.split_once(", ").unwrap().1.parse().unwrap();
    let values: Vec<f32> = bytes[10 + header_len..].as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect();
    values.chunks_exact(cols).map(<[f32]>::to_vec).collect()
}

/// `-ln p` of `ids[from..]`, each from the row before it, by the textbook in f64.
fn direct(cli: &Cli, ids: &[String], from: usize) -> Vec<f64> {
    cli.run(&["eval", "--ids", &ids.join(","), "--out", "l.npy"]).ok();
    let rows = npy(&std::fs::read(cli.path("l.npy")).unwrap());
    let scored = (from..ids.len()).map(|i| {
        let exps: Vec<f64> = rows[i - 1].iter().map(|l| f64::from(*l).exp()).collect();
        -(exps[ids[i].parse::<usize>().unwrap()] / exps.iter().sum::<f64>()).ln()
    });
    scored.collect()
}

#[test]
fn perplexity_equals_a_direct_computation_from_logits_in_one_window_and_in_several() {
    let cli = Cli::new();
    std::fs::write(cli.path("t.txt"), STORY).unwrap();
    let ids: Vec<String> = serde_json::from_str::<Vec<u32>>(&cli.run(&["tokenize", "--json", STORY]).ok().out)
        .unwrap()
        .iter()
        .map(u32::to_string)
        .collect();
    let n = ids.len();
    assert!((19..=24).contains(&n), "{n} tokens make three windows of 12 every 6");
    let whole = direct(&cli, &ids, 1);
    let mut windows = direct(&cli, &ids[..12], 1);
    windows.extend(direct(&cli, &ids[6..18], 6));
    windows.extend(direct(&cli, &ids[12..], 6));
    for (flags, want) in [(&["--ctx-tokens", "64"][..], whole), (&["--ctx-tokens", "12", "--stride", "6"], windows)] {
        let mut line = vec!["perplexity", "t.txt", "-o", "json"];
        line.extend(flags);
        let report = cli.run(&line).ok().json();
        assert_eq!(report["scored_tokens"], want.len() as u64);
        assert_eq!(want.len(), n - 1);
        let mean = want.iter().sum::<f64>() / want.len() as f64;
        let variance = want.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (want.len() as f64 - 1.0);
        let error = (variance / want.len() as f64).sqrt();
        for (key, want) in [("nll", mean), ("nll_error", error), ("perplexity", mean.exp())] {
            let got = report[key].as_f64().unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{flags:?} {key}: {got} against {want}");
        }
    }
    let line = cli.run_with(&["perplexity", "-"], STORY).ok();
    assert!(line.out.starts_with("perplexity ") && line.out.lines().count() == 1 && line.err.is_empty(), "{line:?}");
}

#[test]
fn a_text_or_a_window_that_cannot_be_scored_is_refused() {
    let cli = Cli::new();
    cli.run_with(&["perplexity", "-"], "").refused(1, &["standard input: has 0 tokens", "at least 2"]);
    cli.run(&["perplexity", "none.txt"]).refused(1, &["none.txt"]);
    cli.run_with(&["perplexity", "-", "--ctx-tokens", "8", "--stride", "8"], STORY).refused(2, &["--stride 8"]);
    cli.run_with(&["perplexity", "-", "--ctx-tokens", "9999"], STORY).refused(1, &["9999", "4096"]);
}

#[test]
fn traces_of_any_width_and_thread_count_are_equal_and_a_debug_run_parts_at_a_named_place() {
    let cli = Cli::new();
    let dump = |out: &str, flags: &[&str]| {
        let mut line = vec!["trace", "dump", "--out", out, "--depth", "2", STORY];
        line.extend(flags);
        cli.run(&line).ok();
    };
    dump("one", &["--decode", "--threads", "1"]);
    dump("seven", &["--decode=7", "--threads", "2"]);
    let equal = cli.run(&["trace", "diff", "one", "seven"]).ok();
    assert!(equal.out.contains("no difference in ") && !equal.out.contains("not compared"), "{equal:?}");
    for op in ["gdn.core", "attention.tokens", "moe.experts", "ngram.rows", "residual", "logits", "draft.logits"] {
        assert!(equal.out.lines().any(|line| line.starts_with(op)), "{op}");
    }

    dump("f32", &["--f32", "--layers", "0..1", "--ops", "gdn,residual"]);
    let parted = cli.run(&["trace", "diff", "f32", "one"]);
    assert_eq!(parted.code, 1);
    assert!(parted.out.contains("first difference: layer 0, gdn.qkv, position 0, channel "), "{parted:?}");
    assert!(parted.err.contains("the traces differ, first at layer 0, gdn.qkv, position 0"), "{parted:?}");
    assert!(parted.out.contains(" rows only in A") && !parted.out.contains("moe."), "{parted:?}");
    cli.run(&["trace", "diff", "f32", "one", "--tol", "0.9"]).ok();
}

#[test]
fn what_is_no_whole_trace_or_of_another_run_is_refused() {
    let cli = Cli::new();
    cli.run(&["trace", "dump", "--out", "a", "--ids", "1,2,3", "--layers", "0..1"]).ok();
    cli.run(&["trace", "dump", "--out", "other", "--ids", "1,2,4", "--layers", "0..1"]).ok();
    let model = oracle("tiny.gguf");
    cli.run(&["trace", "dump", "-m", model.to_str().unwrap(), "--no-mtp", "--out", "model", "--ids", "1,2,3"]).ok();
    cli.run(&["trace", "diff", "a", "other"]).refused(1, &["a and other", "token 2 is 3 and 4"]);
    cli.run(&["trace", "diff", "a", "model"]).refused(1, &["a and model", "other sizes"]);
    let whole = std::fs::read(cli.path("a")).unwrap();
    for (len, why) in [(0, "header"), (5, "header"), (100, "header"), (whole.len() - 1, "bytes of values")] {
        std::fs::write(cli.path("cut"), &whole[..len]).unwrap();
        cli.run(&["trace", "diff", "a", "cut"]).refused(1, &["cut: is no whole trace", why]);
    }
    let mut bent = whole.clone();
    bent[9] = b'x';
    std::fs::write(cli.path("bent"), &bent).unwrap();
    cli.run(&["trace", "diff", "bent", "a"]).refused(1, &["bent: is no whole trace"]);

    let before = cli.files();
    cli.run(&["trace", "dump", "--out", "b", "--no-mtp", "--depth", "1", "x"])
        .refused(1, &["--depth 1", "--mtp-model"]);
    cli.run(&["trace", "dump", "--out", "b", ""]).refused(1, &["PROMPT: has no tokens"]);
    cli.run(&["trace", "dump", "--out", "no/b", "x"]).refused(1, &["--out no/b"]);
    for (flag, value, words) in [
        ("--layers", "9..10", ["--layers 9..10", "there are 8"]),
        ("--layers", "8..9", ["--layers 8..9", "there are 8"]), // the draft head's, and there is none
        ("--ops", "residual,gnd", ["--ops gnd", "no operation"]),
    ] {
        cli.run(&["trace", "dump", "--out", "b", "--no-mtp", "x", flag, value]).refused(1, &words);
    }
    for usage in [&["--decode=8"][..], &["--depth", "7"], &["--layers", "4..4"]] {
        let mut line = vec!["trace", "dump", "--out", "b", "x"];
        line.extend(usage);
        cli.run(&line).refused(2, &[usage[0].split('=').next().unwrap()]);
    }
    cli.run(&["trace", "diff", "a", "a", "--tol", "-1"]).refused(2, &["--tol"]);
    assert_eq!(cli.files(), before);
}

#[test]
fn a_bench_has_a_row_for_each_test_and_thread_count_and_keeps_every_sample() {
    let cli = Cli::new();
    let line = [
        "bench",
        "-p",
        "16",
        "-n",
        "8",
        "-r",
        "2",
        "--depth",
        "0,2,auto",
        "--verify-rows",
        "1,3",
        "--threads",
        "1,2",
        "--prompt",
        STORY,
    ];
    let with = |format: &'static str| {
        let mut line = line.to_vec();
        line.extend(["-o", format]);
        cli.run(&line).ok()
    };
    let tests = ["pp 16", "tg 8", "tg 8 d2", "tg 8 auto", "verify 1", "verify 3"];
    let report = with("json").json();
    let rows = report["rows"].as_array().unwrap();
    let named: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["test"].as_str().unwrap(), row["threads"].as_u64().unwrap())).collect();
    let wanted: Vec<(&str, u64)> = [1, 2].iter().flat_map(|threads| tests.map(|test| (test, *threads))).collect();
    assert_eq!(named, wanted);
    for row in rows {
        let samples = row["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        let (median, spread) = (row["tok_s"]["median"].as_f64().unwrap(), row["tok_s"]["spread"].as_f64().unwrap());
        for sample in samples {
            let tok_s = sample["tok_s"].as_f64().unwrap();
            assert!(tok_s > 0.0 && (tok_s - median).abs() <= spread * 1.000_001, "{row}");
        }
        let test = row["test"].as_str().unwrap();
        let sum = |key: &str| samples.iter().map(|sample| sample[key].as_u64().unwrap()).sum::<u64>();
        if test.starts_with("tg") {
            assert_eq!(sum("tokens"), 16);
            assert_eq!(sum("rounds") + sum("accepted"), 16, "a round commits a token and what it accepts: {row}");
        }
        assert_eq!(row["acceptance"].is_null(), sum("drafted") == 0);
        assert_eq!(row["weights_bytes_s"].is_null(), !["tg 8", "verify 1"].contains(&test), "{row}");
        assert_eq!(row["cost_of_one_row"].is_null(), !test.starts_with("verify"));
    }
    assert!(report["reads_per_token"]["bytes"].as_f64().unwrap() > 1e7);
    for key in ["build", "command", "host", "model", "draft_head", "backends"] {
        assert!(!report[key].is_null(), "{key}");
    }

    let csv = with("csv").out;
    assert_eq!(csv.lines().count(), 1 + tests.len() * 2 * 2);
    assert!(csv.lines().all(|line| line.split(',').count() == 15), "{csv}");
    let table = with("md").out;
    let widths: Vec<usize> = table.lines().take(14).map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
    assert!(table.contains("median ±") && !table.contains("of read"), "{table}");
}

#[test]
fn a_bench_that_cannot_be_measured_is_refused() {
    let cli = Cli::new();
    cli.run(&["bench", "--no-mtp", "--depth", "0,2"]).refused(1, &["--depth 2", "--mtp-model"]);
    cli.run(&["bench", "-p", "5000"]).refused(1, &["pp 5000", "4096"]);
    cli.run(&["bench", "-p", "0", "-n", "4090"]).refused(1, &["tg 4090", "4096"]);
    cli.run(&["bench", "--prompt", ""]).refused(1, &["--prompt: has no tokens"]);
    for usage in [["-r", "0"], ["--verify-rows", "8"], ["--depth", "0,7"], ["--threads", "1,x"], ["-o", "xml"]] {
        cli.run(&["bench", usage[0], usage[1]]).refused(2, &[usage[0].trim_start_matches('-')]);
    }
    cli.run(&["bench", "-p", "0", "-n", "0", "-m", "missing"]).refused(2, &["-p 0, -n 0", "nothing to measure"]);
    cli.run(&["bench", "-n", "0", "--depth", "2"]).refused(2, &["--depth: does nothing with -n 0"]);
    cli.run(&["bench", "-n", "0", "--prompt", "x"]).refused(2, &["--prompt: does nothing", "--verify-rows"]);
    cli.run(&["bench", "-p", "-1"]).refused(2, &["'-1'", "expected 0 to"]);
}

/// Prefill, rounds of several rows and the draft head, every format of the embedded model among their weights.
#[test]
fn every_instruction_set_of_the_machine_gives_the_same_tokens_and_logprobs_to_the_last_bit() {
    let cli = Cli::new();
    let run = |isa: &str| {
        let line = ["run", STORY, "-n", "6", "--depth", "2", "--logprobs", "3", "--json", "--isa", isa];
        cli.run(&line)
    };
    let answer = |isa: &str| {
        let json: serde_json::Value = serde_json::from_str(&run(isa).ok().out).unwrap();
        (json["tokens"].clone(), json["logprobs"].clone(), json["rounds"].clone())
    };
    let portable = answer("portable");
    assert_eq!(portable.1.as_array().map(Vec::len), Some(6));
    for isa in ["dotprod", "avx2", "avx512"] {
        let supported = isa.parse::<cudafast_cpu::Isa>().is_ok();
        if supported {
            assert_eq!(answer(isa), portable, "{isa}");
        } else {
            assert_eq!(run(isa).code, 2, "{isa}");
        }
    }
    assert!(run("sse9").err.contains("portable, dotprod, avx2, avx512"));
}
