//! Manifests as text: what is read, and every way to be refused.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

use bench_pins::{Digest, Error, MAX_MANIFEST_BYTES, Manifest, Pin};
use proptest::prelude::*;

const A: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const B: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn parse(text: impl AsRef<[u8]>) -> Result<Manifest, Error> {
    Manifest::parse("M", text.as_ref())
}

fn paths(manifest: &Manifest) -> Vec<&str> {
    manifest.pins().iter().map(|pin| &pin.path[..]).collect()
}

/// Refused on one line that names the manifest and has the word.
#[track_caller]
fn refused(text: impl AsRef<[u8]>, word: &str) {
    let error = parse(text).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let line = format!("{error}: {source}");
    assert!(line.starts_with('M') && line.contains(word), "no `{word}` in {line}");
}

#[test]
fn the_lines_of_sha256sum_are_read() {
    let text = format!(
        "# made by hand\n{A}  a b.gguf\r\n\n{B} *sub/b\n{A}  ./c\n\\{A}  d\\\\e\\nf\\r\n{}  - \n",
        A.to_uppercase()
    );
    let manifest = parse(text).unwrap();
    assert_eq!(paths(&manifest), ["a b.gguf", "sub/b", "c", "d\\e\nf\r", "- "]);
    assert!(manifest.pins().iter().all(|pin| pin.bytes.is_none()));
    assert_eq!(manifest.pins()[1].sha256.to_string(), B);
    assert_eq!(manifest.pins()[4].sha256.to_string(), A);
}

#[test]
fn both_json_forms_are_read_and_other_keys_are_not_ours() {
    let hub = format!(r#" {{"revision":1,"files":[{{"path":"a","size_bytes":3,"sha256":"{A}","lfs":true}}]}}"#);
    let track = format!(r#"{{"id":"t","target":{{"files":[{{"path":"a","bytes":3,"sha256":"{A}"}}],"x":1}}}}"#);
    for text in [hub, track] {
        let manifest = parse(text).unwrap();
        assert_eq!(manifest.pins(), [Pin { path: "a".into(), bytes: Some(3), sha256: A.parse().unwrap() }]);
    }
}

#[test]
fn a_text_that_is_no_manifest_is_refused_with_its_line() {
    refused("", "lists no file");
    refused("\n# nothing\n", "lists no file");
    refused("hello", "M:1:");
    refused(format!("{A}  a\n{}  b", &A[1..]), "M:2:");
    refused(format!("{A} a"), "M:1: is no line of `sha256sum`: two blanks");
    refused(A, "two blanks");
    refused(format!("{A}0  a"), "two blanks");
    refused(format!("{}  a", A.replace('a', "g")), "64 hexadecimal digits");
    refused(format!("\\{A}  a\\t"), "escape");
    refused(format!("\\{A}  a\\"), "escape");
    refused([b'\n', 0xff, b'\n'], "not UTF-8 at byte 1");
    refused("é".repeat(64), "64 hexadecimal digits");
    refused(vec![b'x'; MAX_MANIFEST_BYTES as usize + 1], "longer than");
}

#[test]
fn names_that_lead_out_or_nowhere_or_stand_twice_are_refused() {
    for (name, word) in [
        ("/etc/passwd", "absolute"),
        ("../a", "`..`"),
        ("a/../../b", "`..`"),
        ("a/..", "`..`"),
        ("a//b", "empty part"),
        ("a/./b", "or a `.`"),
        ("a/", "empty part"),
        (".", "or a `.`"),
        ("", "no name"),
        ("././a", "or a `.`"),
        ("a\0b", "NUL"),
    ] {
        refused(format!("{A}  {name}"), word);
        let entry = serde_json::json!({ "files": [{ "path": name, "size_bytes": 1, "sha256": A }] });
        refused(entry.to_string(), word);
    }
    refused(format!("{A}  a\n{A}  a"), "`a` twice");
    refused(format!("{A}  a\n{B} *./a"), "`a` twice");
}

#[test]
fn json_that_lies_is_refused() {
    let file =
        |size: &str, hash: &str| format!(r#"{{"files":[{{"path":"a","size_bytes":{size},"sha256":"{hash}"}}]}}"#);
    refused(file("0", A), "0 bytes");
    refused(file("-1", A), "-1");
    refused(file("1.5", A), "1.5");
    refused(file("18446744073709551616", A), "expected u64");
    refused(file("\"3\"", A), "expected u64");
    refused(file("3", &A[1..]), "64 hexadecimal digits");
    refused(file("3,\"bytes\":4", A), "duplicate field");
    refused(format!(r#"{{"files":[{{"path":"a","sha256":"{A}"}}]}}"#), "size_bytes");
    let huge = format!(r#"{{"path":"a","bytes":{},"sha256":"{A}"}}"#, u64::MAX);
    refused(format!(r#"{{"files":[{huge},{}]}}"#, huge.replace("\"a\"", "\"b\"")), "2^64");
    refused(r#"{"files":[]}"#, "lists no file");
    refused("{}", "no list");
    refused(r#"{"files":[],"target":{"files":[]}}"#, "two lists");
    refused(r#"{"files":[],"files":[]}"#, "duplicate field");
    refused("[]", "JSON");
    refused("{\"files\":", "EOF");
    refused("[".repeat(100_000), "JSON");
    refused(format!(r#"{{"x":{}"#, "[".repeat(100_000)), "JSON");
}

#[test]
fn json_has_no_files_without_bytes() {
    let digest: Digest = A.parse().unwrap();
    let pins = |bytes| Manifest::new("M", vec![Pin { path: "a".into(), bytes, sha256: digest }]).unwrap();
    assert!(pins(Some(1)).to_json("M").is_ok());
    assert!(pins(Some(0)).to_json("M").is_err() && pins(None).to_json("M").is_err());
}

fn manifests() -> impl Strategy<Value = Manifest> {
    let part = "[^/\0]{1,6}".prop_filter("no part of a path", |part| part != "." && part != "..");
    let path = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    let pin = (path, 1u64..1 << 50, any::<[u8; 32]>());
    prop::collection::btree_map("[^\0]{0,3}", pin, 1..8).prop_filter_map("twice", |pins| {
        let pins = pins.into_values().map(|(path, bytes, hash)| Pin { path, bytes: Some(bytes), sha256: Digest(hash) });
        Manifest::new("M", pins.collect()).ok()
    })
}

proptest! {
    #[test]
    fn what_is_written_as_json_is_read_back(manifest in manifests()) {
        let text = manifest.to_json("M").unwrap();
        prop_assert_eq!(parse(text).unwrap(), manifest);
    }

    #[test]
    fn what_is_written_as_text_is_read_back_without_sizes(manifest in manifests()) {
        let read = parse(manifest.to_text()).unwrap();
        let pins: Vec<Pin> = manifest.pins().iter().map(|pin| Pin { bytes: None, ..pin.clone() }).collect();
        prop_assert_eq!(read.pins(), &pins[..]);
    }

    #[test]
    fn any_bytes_are_a_manifest_that_is_safe_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(manifest) = parse(bytes) {
            prop_assert!(!manifest.pins().is_empty());
        }
    }

    #[test]
    fn no_listed_path_leaves_its_folder(name in "[./a]{0,8}") {
        if let Ok(manifest) = parse(format!("{A}  {name}")) {
            let path = std::path::Path::new(&manifest.pins()[0].path);
            prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
        }
    }
}
