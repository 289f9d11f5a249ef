//! The wire against its schema, its transcripts and itself (engine-protocol-v1.md 2 to 5, 11).
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod generate;
mod schema;

use bench_protocol::*;
use proptest::prelude::*;
use schema::Schema;

/// Keys of the cohort form (engine-protocol-v1.md 12), which is not spoken.
const COHORT_REQUEST: [&str; 7] = [
    "seed_tokens_by_stream",
    "batch_size",
    "replay_seeds_by_stream",
    "committed_by_stream",
    "logit_top_k",
    "rel_envelope",
    "replay_width",
];
const COHORT_RESPONSE: [&str; 11] = [
    "max_batch_size",
    "seed_token_by_stream",
    "effective_batch_size",
    "tokens_by_stream",
    "natural_accepted_by_stream",
    "rounds",
    "active_streams_by_round",
    "depth_clamp_reasons",
    "prefill_ns_by_stream",
    "decode_ns_by_stream",
    "cohort_reference_replay",
];

/// Lines of engine-protocol-v1.md 11, its ellipses filled in.
const TRANSCRIPT: &str = include_str!("../../../../testdata/track/protocol-transcript.ndjson");

fn is_request(line: &str) -> bool {
    line.contains(r#""kind":"#)
}

fn reads(line: &[u8]) -> (bool, bool) {
    (Request::<SpecConfig>::parse(line).is_ok(), Response::parse(line).is_ok())
}

#[test]
fn the_lines_of_the_transcripts_are_canonical_and_within_the_schema() {
    let schema = Schema::read();
    let mut requests = 0;
    for line in TRANSCRIPT.lines() {
        let (name, written) = match is_request(line) {
            true => ("WorkerRequest", Request::<SpecConfig>::parse(line.as_bytes()).unwrap().to_line().unwrap()),
            false => ("WorkerResponse", Response::parse(line.as_bytes()).unwrap().to_line().unwrap()),
        };
        requests += usize::from(is_request(line));
        assert_eq!(String::from_utf8(written).unwrap(), format!("{line}\n"));
        assert!(schema.accepts(name, line.as_bytes()), "{line}");
    }
    assert_eq!((requests, TRANSCRIPT.lines().count()), (14, 29));
}

#[test]
fn the_keys_are_those_of_the_schema_without_the_cohort_form() {
    let schema = Schema::read();
    for (name, cohort) in [("WorkerRequest", &COHORT_REQUEST[..]), ("WorkerResponse", &COHORT_RESPONSE[..])] {
        for key in schema.properties(name) {
            let line = format!(r#"{{"id":1,"kind":"prefill","ok":true,"{key}":false}}"#);
            let error = match name {
                "WorkerRequest" => {
                    Request::<SpecConfig>::parse(line.replace(r#""ok":true,"#, "").as_bytes()).unwrap_err()
                }
                _ => match Response::parse(line.replace(r#""kind":"prefill","#, "").as_bytes()) {
                    Err(error) => error,
                    Ok(_) => panic!("{key}"),
                },
            };
            let unknown = error.to_string().starts_with("unknown field");
            assert_eq!(unknown, cohort.contains(&key.as_str()), "{key}: {error}");
        }
    }
}

#[test]
fn an_envelope_with_an_unknown_key_is_refused_by_name() {
    let error = Request::<SpecConfig>::parse(br#"{"id":14,"kind":"prefill","prompt_tokens":[1],"bogus":true}"#);
    assert!(error.unwrap_err().to_string().starts_with("unknown field `bogus`"));
    let error = Response::parse(br#"{"id":1,"nonce":"n","ok":true,"tok_s":700.0}"#).unwrap_err();
    assert!(error.to_string().starts_with("unknown field `tok_s`"));
}

#[test]
fn a_key_given_twice_null_or_in_an_array_is_refused() {
    let refused = [
        r#"{"id":1,"id":1,"kind":"prefill","ok":true}"#,
        r#"{"id":1,"ok":true,"ok":true}"#,
        r#"{"id":1,"kind":"prefill","token":null}"#,
        r#"{"id":1,"ok":true,"error":null}"#,
        r#"[1,"prefill"]"#,
        r#"[1,"n",true]"#,
        r#"{"id":1,"ok":true,"top_logits":[[5,1.0]]}"#,
        r#"{"id":1,"ok":true,"effective_spec":["mtp",[2]]}"#,
        r#"{"id":1,"kind":"decode_begin","spec":["serial"]}"#,
        r#"{"id":1,"kind":"decode_begin","spec":{"mode":"mtp","mtp":{"depth":null}}}"#,
        r#"{"id":1,"kind":"decode_begin","spec":{"mode":"mtp","mtp":{"depth":2,"width":1}}}"#,
        r#"{"id":1,"kind":"prefill"} {}"#,
        r#"{"id":1.0,"kind":"prefill"}"#,
        r#"{"id":1,"kind":"free_decode_run","count":-1}"#,
        r#"{"id":9223372036854775808,"kind":"prefill"}"#,
        r#"{"id":1,"kind":"prefill","prompt_tokens":[1.5]}"#,
        r#"{"id":1,"ok":true,"runner":{"id":"","model_type":"","manifest_sha256":"AB","build":""}}"#,
        r#"{"id":1,"ok":true,"expert_stats":{"expert_cache_hits":0}}"#,
        "",
    ];
    for line in refused {
        assert_eq!(reads(line.as_bytes()), (false, false), "{line}");
    }
}

#[test]
fn a_lenient_spec_keeps_what_it_does_not_know_for_a_refusal_with_the_requests_id() {
    type Lenient = Request<LenientSpec>;
    let read = |spec: &str| {
        let line = format!(r#"{{"id":3,"kind":"decode_begin","spec":{spec}}}"#);
        Lenient::parse(line.as_bytes()).map(|request| request.spec.unwrap()).map_err(|error| error.to_string())
    };
    let spec = read(r#"{"mode":"medusa","heads":[1,{"a":null}],"mtp":{"depth":9}}"#).unwrap();
    assert_eq!(spec.mode, "medusa");
    assert_eq!(spec.other.as_deref(), Some("heads"));
    assert_eq!(spec.mtp, Some(MtpBlock { depth: Some(9) }));
    assert!(read(r#"{"mode":"mtp","mtp":{"depth":2,"width":1}}"#).unwrap_err().starts_with("unknown field `width`"));
    assert!(read(r#"{"mode":"mtp","mtp":[2]}"#).is_err());
    assert!(read(r#"{"mode":"mtp","mode":"serial"}"#).unwrap_err().starts_with("duplicate field `mode`"));
    assert!(read("{}").unwrap_err().starts_with("missing field `mode`"));
    assert!(read(r#"["mtp"]"#).is_err());
    assert!(read("null").is_err());
}

#[test]
fn a_number_that_json_has_not_is_not_written() {
    let mut response = Response::ok(1, "n");
    response.top_logits = Some(vec![TopLogit { token: 1, logit: f64::NAN }]);
    assert!(response.to_line().unwrap_err().to_string().contains("NaN is no JSON number"));
    response.top_logits = None;
    response.peak_ram_gb = Some(f64::INFINITY);
    assert!(response.to_line().is_err());
}

#[test]
fn a_hello_is_written_and_read_back_and_each_defect_has_a_name() {
    let hello = Hello {
        nonce: "5f1c0e77a2b94d10".into(),
        backend: "mock".into(),
        device: "none".into(),
        capabilities: vec![FREE_RUN_DECODE.into()],
        spec_modes: vec!["serial".into(), "mtp".into()],
        ..Hello::default()
    };
    let line = hello.clone().into_response().to_line().unwrap();
    assert_eq!(TRANSCRIPT.lines().next().unwrap().as_bytes(), line.trim_ascii_end());
    let response = Response::parse(&line).unwrap();
    assert_eq!(Hello::from_response(response.clone()).unwrap(), hello);

    let defect = |change: fn(&mut Response)| {
        let mut changed = response.clone();
        change(&mut changed);
        match Hello::from_response(changed) {
            Err(Error::Hello(defect)) => defect,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(defect(|hello| hello.id = 1), HelloDefect::Id { found: 1 });
    assert_eq!(defect(|hello| hello.ok = false), HelloDefect::NotOk { error: "unknown error".into() });
    assert_eq!(defect(|hello| hello.nonce = None), HelloDefect::Nonce);
    assert_eq!(defect(|hello| hello.nonce = Some(String::new())), HelloDefect::Nonce);
    assert_eq!(defect(|hello| hello.protocol_version = Some(2)), HelloDefect::Version { found: Some(2) });
    assert_eq!(defect(|hello| hello.protocol_version = None), HelloDefect::Version { found: None });
}

#[test]
fn noise_is_what_does_not_start_with_a_brace_and_blank_is_white_space() {
    for noise in ["", "loading", " \t\r", "[1]", "\u{b}{", "\u{feff}{}"] {
        assert!(is_noise(noise.as_bytes()), "{noise:?}");
    }
    for message in ["{", " \t\r{\"id\":0}", "{broken"] {
        assert!(!is_noise(message.as_bytes()), "{message:?}");
    }
    assert!(is_blank(b"") && is_blank(b" \t\r") && !is_blank(b" {}") && !is_blank(b"\xc2\xa0"));
}

#[test]
fn a_line_of_the_largest_size_is_read_and_a_longer_one_is_refused_and_skipped() {
    let mut stream = vec![b'a'; MAX_LINE_BYTES];
    stream.push(b'\n');
    stream.resize(stream.len() + MAX_LINE_BYTES + 1, b'b');
    stream.extend_from_slice(b"\nnext\nlast");
    let mut reader = LineReader::new(&stream[..]);
    assert!(matches!(reader.read().unwrap(), Line::Text(line) if line.len() == MAX_LINE_BYTES));
    assert_eq!(reader.read().unwrap(), Line::TooLong);
    assert_eq!(reader.read().unwrap(), Line::Text(b"next"));
    assert_eq!(reader.read().unwrap(), Line::Text(b"last"));
    assert_eq!(reader.read().unwrap(), Line::End);
}

#[test]
fn a_line_without_end_is_refused_before_the_stream_ends() {
    let mut reader = LineReader::new(std::io::BufReader::new(std::io::repeat(b'x')));
    assert_eq!(reader.read().unwrap(), Line::TooLong);
}

/// The same line with one thing changed, which may or may not make it invalid.
fn mutated(line: &[u8], at: prop::sample::Index, how: u8) -> Vec<u8> {
    let mut value: serde_json::Value = serde_json::from_slice(line).unwrap();
    let object = value.as_object_mut().unwrap();
    let key = object.keys().nth(at.index(object.len())).unwrap().clone();
    match how {
        0 => drop(object.remove(&key)),
        1 => drop(object.insert(key, serde_json::Value::Null)),
        2 => drop(object.insert(key, serde_json::json!(-1))),
        3 => drop(object.insert(key, serde_json::json!("serial"))),
        4 => drop(object.insert(key, serde_json::json!([]))),
        5 => drop(object.insert(key, serde_json::json!({"mode": "mtp"}))),
        6 => drop(object.insert(key + "s", serde_json::json!(1))),
        _ => drop(object.insert(key, serde_json::json!([{"token": 1, "logit": 1}]))),
    }
    serde_json::to_vec(&value).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_request_read_and_written_again_is_the_same_bytes_and_within_the_schema(request in generate::request()) {
        let line = request.to_line().unwrap();
        let read = Request::<SpecConfig>::parse(&line).unwrap();
        prop_assert_eq!(&read, &request);
        prop_assert_eq!(read.to_line().unwrap(), line.clone());
        prop_assert!(Schema::read().accepts("WorkerRequest", &line));
        prop_assert!(!line[..line.len() - 1].contains(&b'\n'));
    }

    #[test]
    fn a_response_read_and_written_again_is_the_same_bytes_and_within_the_schema(response in generate::response()) {
        let line = response.to_line().unwrap();
        let read = Response::parse(&line).unwrap();
        prop_assert_eq!(&read, &response);
        prop_assert_eq!(read.to_line().unwrap(), line.clone());
        prop_assert!(Schema::read().accepts("WorkerResponse", &line));
        prop_assert!(!line[..line.len() - 1].contains(&b'\n'));
    }

    #[test]
    fn a_changed_request_is_read_exactly_when_the_schema_has_it(
        request in generate::request(), at in any::<prop::sample::Index>(), how in 0u8..8,
    ) {
        let line = mutated(&request.to_line().unwrap(), at, how);
        // An unknown verb is read, to be refused with its own id.
        let named = Request::<SpecConfig>::parse(&line).is_ok_and(|request| request.verb().is_some());
        prop_assert_eq!(named, Schema::read().accepts("WorkerRequest", &line), "{}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn a_changed_response_is_read_exactly_when_the_schema_has_it(
        response in generate::response(), at in any::<prop::sample::Index>(), how in 0u8..8,
    ) {
        let line = mutated(&response.to_line().unwrap(), at, how);
        prop_assert_eq!(
            Response::parse(&line).is_ok(),
            Schema::read().accepts("WorkerResponse", &line),
            "{}", String::from_utf8_lossy(&line)
        );
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = (Request::<SpecConfig>::parse(&bytes), Request::<LenientSpec>::parse(&bytes), Response::parse(&bytes));
        let _ = (is_blank(&bytes), is_noise(&bytes));
    }

    #[test]
    fn lines_are_the_streams_lines_however_it_is_cut(
        lines in prop::collection::vec("[a-z]{0,5}", 0..5), capacity in 1usize..4,
    ) {
        let stream: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let mut reader = LineReader::new(std::io::BufReader::with_capacity(capacity, stream.as_bytes()));
        for line in &lines {
            prop_assert_eq!(reader.read().unwrap(), Line::Text(line.as_bytes()));
        }
        prop_assert_eq!(reader.read().unwrap(), Line::End);
    }
}
