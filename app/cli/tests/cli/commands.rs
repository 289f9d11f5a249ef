//! What each command prints, and the contract with other programs.

use crate::fixture::{Cli, oracle, tiny, tokens};
use serde_json::Value;

const STORY: &str = "Once upon a time, there was a little fox named";

/// Prompt and 64 greedy tokens of the reference implementation on the embedded model's bytes.
fn reference() -> (String, Vec<u64>) {
    let text = std::fs::read_to_string(tiny(cudafast_tiny::REFERENCE_FILE)).unwrap();
    let reference: Value = serde_json::from_str(&text).unwrap();
    let story = &reference["sets"]["ud_q4_k_xl"]["prompts"][0];
    let ids = |key: &str| story[key].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect::<Vec<_>>();
    let prompt: Vec<String> = ids("prompt").iter().map(u64::to_string).collect();
    (prompt.join(","), ids("generated"))
}

#[test]
fn the_embedded_model_tells_the_reference_story_at_every_depth() {
    let cli = Cli::new();
    let (prompt, want) = reference();
    for depth in ["0", "1", "3", "6", "auto"] {
        let line = ["run", "--ids", &prompt, "-n", "64", "--depth", depth, "--temp", "0", "--f32", "--json"];
        let report = cli.run(&line).ok().json();
        assert_eq!(tokens(&report), want, "depth {depth}");
    }
}

#[test]
fn json_is_one_object_with_what_other_programs_rely_on() {
    let cli = Cli::new();
    let ran = cli.run(&["run", STORY, "-n", "40", "--depth", "2", "--json"]).ok();
    assert_eq!(ran.err, "");
    let report = ran.json();
    assert_eq!((tokens(&report).len(), &report["finish"]), (40, &Value::from("length")));
    let rounds = &report["rounds"];
    let each = rounds["each"].as_array().unwrap();
    let sum = |key: &str| each.iter().map(|r| r[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(rounds["drafted"].as_u64(), Some(sum("drafted")));
    assert_eq!(rounds["accepted"].as_u64(), Some(sum("accepted")));
    assert_eq!(1 + each.len() as u64 + sum("accepted"), 40);
    assert!(sum("accepted") > 10 && rounds["acceptance"].as_f64().unwrap() > 0.4, "{rounds}");
    let timings = &report["timings"];
    assert_eq!((timings["prefill_tokens"].as_u64(), timings["decode_tokens"].as_u64()), (Some(11), Some(39)));
    for key in ["load_ms", "prefill_ms", "prefill_tok_s", "first_token_ms", "decode_ms", "decode_tok_s"] {
        assert!(timings[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(report["memory"]["total_bytes"].as_u64().unwrap() > 10_000_000);
}

#[test]
fn streamed_text_is_the_text_of_the_object_and_the_summary_goes_to_stderr() {
    let cli = Cli::new();
    let streamed = cli.run(&["run", STORY, "-n", "40", "--depth", "2"]).ok();
    let report = cli.run(&["run", STORY, "-n", "40", "--depth", "2", "--json"]).ok().json();
    assert_eq!(streamed.out, format!("{}\n", report["text"].as_str().unwrap()));
    assert_eq!(streamed.err.lines().count(), 1);
    for word in ["11 prompt tokens at", "40 generated at", "drafts accepted", "tok/s", "memory"] {
        assert!(streamed.err.contains(word), "{streamed:?}");
    }
}

#[test]
fn a_prompt_is_the_same_from_an_argument_a_file_and_standard_input() {
    let cli = Cli::new();
    std::fs::write(cli.path("p.txt"), STORY).unwrap();
    let want = cli.run(&["run", STORY, "-n", "8"]).ok().out;
    assert_eq!(cli.run(&["run", "--prompt-file", "p.txt", "-n", "8"]).ok().out, want);
    assert_eq!(cli.run_with(&["run", "-", "-n", "8"], STORY).ok().out, want);
    assert_eq!(cli.run_with(&["run", "--prompt-file", "-", "-n", "8"], STORY).ok().out, want);
}

#[test]
fn sampled_text_depends_on_the_seed_and_not_on_drafting() {
    let cli = Cli::new();
    let run = |seed: &str, depth: &str| {
        let line =
            ["run", STORY, "-n", "48", "--temp", "1", "--top-p", "0.95", "--seed", seed, "--depth", depth, "--json"];
        tokens(&cli.run(&line).ok().json())
    };
    let one = run("1", "0");
    assert_eq!(one, run("1", "3"));
    assert_eq!(one, run("1", "6"));
    assert_ne!(one, run("2", "0"));
}

#[test]
fn an_answer_ends_before_a_stop_string_and_one_that_never_comes_holds_nothing_back() {
    let cli = Cli::new();
    let free = cli.run(&["run", STORY, "-n", "24"]).ok().out;
    let stop = &free[20..31];
    for depth in ["0", "3"] {
        let line = ["run", STORY, "-n", "24", "--depth", depth, "--stop", "never said", "--stop", stop];
        assert_eq!(cli.run(&line).ok().out, format!("{}\n", &free[..free.find(stop).unwrap()]));
        let report = cli.run(&[&line[..], &["--json"]].concat()).ok().json();
        assert_eq!((&report["finish"], report.get("logprobs")), (&Value::from("stop_string"), None));
    }
    let longer = format!("{free} and so on");
    assert_eq!(cli.run(&["run", STORY, "-n", "24", "--stop", longer.trim_start()]).ok().out, free);
}

#[test]
fn penalties_bias_and_log_probabilities_are_the_same_with_drafting_and_without() {
    let cli = Cli::new();
    let run = |depth: &str, more: &[&str]| {
        let line = ["run", STORY, "-n", "24", "--depth", depth, "--logprobs", "2", "--json"];
        let report = cli.run(&[&line[..], more].concat()).ok().json();
        (tokens(&report), report["logprobs"].clone())
    };
    let penalties = ["--repeat-penalty", "1.2", "--presence-penalty", "0.5", "--frequency-penalty", "0.2"];
    let (ids, each) = run("0", &penalties);
    assert_eq!((ids.clone(), each.clone()), run("4", &penalties));
    assert_ne!(ids, run("0", &[]).0);
    let each = each.as_array().unwrap();
    assert_eq!(each.iter().map(|entry| entry["id"].as_u64().unwrap()).collect::<Vec<_>>(), ids);
    for entry in each {
        let top = entry["top"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        let best = top[0]["logprob"].as_f64().unwrap();
        assert!(best >= entry["logprob"].as_f64().unwrap() && best <= 0.0 && top[0]["token"].is_string(), "{entry}");
    }
    // What would come first is all but forbidden, and something else all but certain.
    let first = format!("{}=-100", ids[0]);
    assert_ne!(run("0", &["--logit-bias", &first]).0[0], ids[0]);
    assert!(run("2", &["--logit-bias", "42=100"]).0.iter().all(|id| *id == 42));
}

#[test]
fn an_answer_ends_at_the_stop_token_unless_told_otherwise() {
    let cli = Cli::new();
    let line = ["run", "--chat", "Tell me a story about a rabbit named Lily.", "-n", "600", "--json"];
    let report = cli.run(&line).ok().json();
    assert_eq!(report["finish"], "stop");
    let ids = tokens(&report);
    assert!([4091, 4093].contains(ids.last().unwrap()));
    assert!(!report["text"].as_str().unwrap().contains("<|"));
    let length = (ids.len() + 1).to_string();
    let more = cli.run(&[&line[..3], &["-n", &length, "--json", "--ignore-stop"]].concat()).ok().json();
    assert_eq!((tokens(&more).len(), &more["finish"]), (ids.len() + 1, &Value::from("length")));
    assert_eq!(tokens(&more)[..ids.len()], ids);
}

#[test]
fn zero_and_one_token_are_lengths_too() {
    let cli = Cli::new();
    assert_eq!(cli.run(&["run", STORY, "-n", "0"]).ok().out, "\n");
    assert_eq!(tokens(&cli.run(&["run", STORY, "-n", "1", "--json"]).ok().json()).len(), 1);
}

#[test]
fn a_full_context_ends_the_answer_and_says_so() {
    let cli = Cli::new();
    let ran = cli.run(&["run", STORY, "--ctx-tokens", "20"]).ok();
    assert!(ran.err.contains("context is full, raise --ctx-tokens"), "{ran:?}");
    let report = cli.run(&["run", STORY, "--ctx-tokens", "20", "--json"]).ok().json();
    assert_eq!((tokens(&report).len(), &report["finish"]), (10, &Value::from("context_full")));
}

#[test]
fn the_one_draft_head_beside_a_model_is_used_and_of_several_none() {
    let cli = Cli::new();
    cli.link(&tiny(cudafast_tiny::MODEL_FILE), "m.gguf");
    let alone = cli.run(&["run", STORY, "-n", "20", "-m", "m.gguf"]).ok();
    assert!(alone.err.contains("no drafts"), "{alone:?}");
    cli.link(&tiny(cudafast_tiny::DRAFT_HEAD_FILE), "mtp-a.gguf");
    let folder = cli.folder.path().to_str().unwrap().to_owned();
    for model in ["m.gguf", &folder, "."] {
        let one = cli.run(&["run", STORY, "-n", "20", "-m", model, "--depth", "2"]).ok();
        assert!(one.err.contains("drafts accepted") && one.out == alone.out, "{model}: {one:?}");
    }
    // Shards of one head are one head, hidden files none; that the set is not complete is told when it is opened.
    cli.link(&tiny(cudafast_tiny::DRAFT_HEAD_FILE), "._mtp-a.gguf");
    assert!(cli.run(&["run", STORY, "-n", "20", "-m", "m.gguf"]).ok().err.contains("drafts accepted"));
    std::fs::rename(cli.path("mtp-a.gguf"), cli.path("mtp-a-00001-of-00002.gguf")).unwrap();
    cli.link(&tiny(cudafast_tiny::DRAFT_HEAD_FILE), "mtp-a-00002-of-00002.gguf");
    cli.run(&["run", STORY, "-n", "20", "-m", "m.gguf"]).refused(1, &["mtp-a-00001-of-00002.gguf"]);
    std::fs::remove_file(cli.path("mtp-a-00002-of-00002.gguf")).unwrap();
    std::fs::rename(cli.path("mtp-a-00001-of-00002.gguf"), cli.path("mtp-a.gguf")).unwrap();
    cli.link(&tiny(cudafast_tiny::DRAFT_HEAD_FILE), "mtp-b.gguf");
    let several = cli.run(&["run", STORY, "-n", "20", "-m", "m.gguf"]).ok();
    assert!(several.err.contains("2 draft heads") && several.err.contains("no drafts"), "{several:?}");
    let named = cli.run(&["run", STORY, "-n", "20", "-m", "m.gguf", "--mtp-model", "mtp-b.gguf", "--depth", "1"]).ok();
    assert!(named.err.contains("drafts accepted") && named.err.lines().count() == 1, "{named:?}");
}

#[test]
fn threads_change_no_token() {
    let cli = Cli::new();
    let run = |threads| cli.run(&["run", STORY, "-n", "24", "--threads", threads]).ok().out;
    assert_eq!(run("1"), run("3"));
}

#[test]
fn chat_goes_on_from_what_it_has_and_forgets_when_told() {
    let cli = Cli::new();
    let said = "Tell me a story about a rabbit named Lily.\n/fly\n\nWhat is your name?\nTell me more.\n/reset\nHello.\n/quit\nnever read\n";
    let ran = cli.run_with(&["chat", "-n", "60"], said);
    assert!(!ran.out.contains("<|") && !ran.out.contains("> "), "{ran:?}");
    let notes: Vec<&str> = ran.err.lines().collect();
    assert_eq!((notes.len(), ran.code), (6, 1), "four answers, a command that does not exist, twice: {ran:?}");
    assert!(notes[1].contains("/fly"), "{ran:?}");
    // Prompts of less than a chunk leave nothing to go back to.
    assert!(!notes[0].contains("cached") && notes[3].contains("(64 more were cached)"), "{ran:?}");
    // Each turn alone says the same: nothing leaks from one conversation into the next.
    let hello = cli.run_with(&["chat", "-n", "60"], "Hello.\n").ok();
    assert!(ran.out.ends_with(&hello.out), "{ran:?} {hello:?}");
}

#[test]
fn chat_refuses_a_message_that_does_not_fit_and_goes_on() {
    let cli = Cli::new();
    let long = "rabbit ".repeat(200);
    let said = format!("{long}\nHello.\n");
    let ran = cli.run_with(&["chat", "-n", "5", "--ctx-tokens", "64"], said);
    let notes: Vec<&str> = ran.err.lines().collect();
    assert!(notes[0].contains("the context holds 64") && notes[0].contains("raise --ctx-tokens"), "{ran:?}");
    assert!(notes[1].contains("generated") && ran.code == 1, "{ran:?}");
}

#[test]
fn a_model_without_a_chat_template_runs_but_does_not_chat() {
    let cli = Cli::new();
    let model = oracle("tiny.gguf");
    let model = model.to_str().unwrap();
    let chat = cli.run_with(&["chat", "-m", model, "--no-mtp"], "Hello.\n");
    chat.refused(1, &["tiny.gguf", "tokenizer.chat_template"]);
    cli.run(&["run", "-m", model, "--no-mtp", "--chat", "Hello."]).refused(1, &["tokenizer.chat_template"]);
    assert_eq!(
        tokens(&cli.run(&["run", "-m", model, "--no-mtp", "--ids", "1,2,3", "-n", "4", "--json"]).ok().json()).len(),
        4
    );
}

/// Shape and values of an NPY file.
fn npy(bytes: &[u8]) -> (String, Vec<f32>) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let data = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    assert_eq!(data % 64, 0);
    let header = std::str::from_utf8(&bytes[10..data]).unwrap().trim_end().to_owned();
    (header, bytes[data..].chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect())
}

#[test]
fn eval_writes_the_logits_that_run_chooses_from() {
    let cli = Cli::new();
    let (model, head) = (oracle("mix-00002-of-00004.gguf"), oracle("mtp-mix.gguf"));
    let (model, head) = (model.to_str().unwrap(), head.to_str().unwrap());
    for precision in [&[][..], &["--f32"]] {
        let ids = "1,2,3,40,50";
        let run =
            ["run", "-m", model, "--mtp-model", head, "--ids", ids, "-n", "3", "--depth", "1", "--temp", "0", "--json"];
        let chosen = tokens(&cli.run(&[&run[..], precision].concat()).ok().json());
        let eval = ["eval", "-m", model, "--mtp-model", head, "--ids", ids, "--out", "l.npy"];
        let ran = cli.run(&[&eval[..], precision].concat()).ok();
        assert!(ran.out.is_empty() && ran.err.contains("5 rows of 512 logits"), "{ran:?}");
        let (header, values) = npy(&std::fs::read(cli.path("l.npy")).unwrap());
        assert_eq!(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 512), }");
        assert_eq!(values.len(), 5 * 512);
        let last = &values[4 * 512..];
        let best = (0..512).fold(0, |best, i| if last[i] > last[best] { i } else { best });
        assert_eq!(chosen[0], best as u64);
        assert_eq!(cli.files(), ["l.npy"]);
    }
}

#[test]
fn eval_gives_the_same_bits_each_time_and_with_or_without_a_head() {
    let cli = Cli::new();
    let head = tiny(cudafast_tiny::DRAFT_HEAD_FILE);
    let head = ["--mtp-model", head.to_str().unwrap()];
    for (out, more) in [("a.npy", &[][..]), ("b.npy", &[]), ("c.npy", &head), ("d.npy", &["--threads", "1"])] {
        cli.run(&[&["eval", STORY, "--out", out][..], more].concat()).ok();
    }
    let bytes = |name| std::fs::read(cli.path(name)).unwrap();
    assert!(["b.npy", "c.npy", "d.npy"].iter().all(|name| bytes(name) == bytes("a.npy")));
}

#[test]
fn tokenize_shows_a_line_per_token_or_one_array() {
    let cli = Cli::new();
    let ran = cli.run(&["tokenize", "Once upon a time<|im_end|>"]).ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.last(), Some(&"4093\t\"<|im_end|>\""));
    let ids = cli.run(&["tokenize", "--json", "Once upon a time<|im_end|>"]).ok().json();
    assert_eq!(ids.as_array().unwrap().len(), lines.len());
    let literal = cli.run(&["tokenize", "--json", "--no-special", "Once upon a time<|im_end|>"]).ok().json();
    assert!(literal.as_array().unwrap().len() > lines.len());
    assert_eq!(cli.run_with(&["tokenize", "--json"], "Once upon a time<|im_end|>").ok().json(), ids);
}

#[test]
fn tokenize_reads_a_vocabulary_without_weights_of_any_architecture() {
    let cli = Cli::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tokenizer");
    let file = |name: &str| std::fs::read(folder.join(name)).unwrap();
    std::fs::write(cli.path("vocab.gguf"), crate::qwen35::gguf()).unwrap();
    let (texts, ids) = (file("ggml-vocab-qwen35.gguf.inp"), file("ggml-vocab-qwen35.gguf.out"));
    let (texts, ids) = (String::from_utf8(texts).unwrap(), String::from_utf8(ids).unwrap());
    let pairs: Vec<_> = texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()).collect();
    // The text room compares all of them; here a few go through the program.
    for (text, want) in pairs.iter().rev().step_by(15) {
        let got = cli.run_with(&["tokenize", "-m", "vocab.gguf", "--json"], *text).ok().json();
        let want: Vec<u64> = want.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(got, Value::from(want), "{text:?}");
    }
}

#[test]
fn inspect_sums_the_files_by_family_and_plans_the_memory() {
    let cli = Cli::new();
    let report = cli.run(&["inspect", "--json"]).ok().json();
    let model = &report["model"];
    assert_eq!((&model["architecture"], &report["problem"]), (&Value::from("qwen4exp"), &Value::Null));
    let sum: u64 = model["families"].as_array().unwrap().iter().map(|f| f["bytes"].as_u64().unwrap()).sum();
    assert_eq!(model["tensor_bytes"].as_u64(), Some(sum));
    assert_eq!(report["geometry"]["context_tokens"], 4096);
    assert!(report["draft_head"]["parameters"].as_u64().unwrap() > 2_000_000);
    let planned = report["memory"]["total_bytes"].as_u64().unwrap();
    let less = cli.run(&["inspect", "--json", "--ctx-tokens", "64", "--no-mtp"]).ok().json();
    assert!(less["memory"]["total_bytes"].as_u64().unwrap() < planned && less["draft_head"].is_null());
    let table = cli.run(&["inspect"]).ok().out;
    for word in ["routed experts", "LM head", "draft head", "k/v cache", "total"] {
        assert!(table.contains(word), "no {word} in {table}");
    }
}

#[test]
fn inspect_lists_what_it_cannot_run_and_says_why() {
    let cli = Cli::new();
    let head = tiny(cudafast_tiny::DRAFT_HEAD_FILE);
    let line = ["inspect", "--no-mtp", "-m", head.to_str().unwrap()];
    let ran = cli.run(&line);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("draft head") && ran.err.lines().count() == 1, "{ran:?}");
    let ran = cli.run(&[&line[..], &["--json"]].concat());
    let report = ran.json();
    assert!(ran.code == 1 && report["memory"].is_null() && ran.err.contains(report["problem"].as_str().unwrap()));
}

#[test]
fn help_of_every_command_has_examples_and_goes_to_stdout() {
    let cli = Cli::new();
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["chat", "--help"],
        &["inspect", "--help"],
        &["tokenize", "--help"],
        &["detokenize", "--help"],
        &["eval", "--help"],
        &["completions", "--help"],
        &["verify", "--help"],
        &["synth", "--help"],
    ] {
        let help = cli.run(command).ok();
        assert!(help.out.contains("Examples:") && help.err.is_empty(), "{help:?}");
    }
    let version = cli.run(&["--version"]).ok().out;
    assert!(
        version.starts_with("cudafast ") && version.contains("\nCPU: ") && version.contains("\nCUDA: "),
        "{version}"
    );
}
