//! The container rows of gguf-qwen4exp.md 7, in its order: each refusal names the file, the key or tensor, what was found
//! and what was expected. Which byte patterns lead to which refusal is the corpus's job (`tests/corpus`).

use std::path::Path;

use cudafast_gguf::{Error, RawFile, RawKv, ShardSet, Value, Writer, limits};

fn sound() -> RawFile {
    let writer =
        Writer::new().kv("a.count", 7u32).tensor("one", &[8, 2], 0, vec![1; 64]).tensor("two", &[32], 8, vec![2; 34]);
    writer.to_raw().unwrap()
}

/// The refusal of the sound file with one thing spoilt, and its text.
fn refusal(spoil: impl FnOnce(&mut RawFile)) -> (Error, String) {
    let mut raw = sound();
    spoil(&mut raw);
    let error = ShardSet::from_vec("m.gguf", raw.to_bytes()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("m.gguf: "), "{text}");
    (error, text)
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

macro_rules! assert_refused {
    ($spoil:expr, $pattern:pat, $($says:literal),+) => {{
        let (error, text) = refusal($spoil);
        assert!(matches!(error, $pattern), "{error:?}");
        assert_says(&text, &[$($says),+]);
    }};
}

fn push(key: &str, value: impl Into<Value>) -> impl FnOnce(&mut RawFile) {
    let kv = RawKv::new(key, &value.into());
    |f| f.kv.push(kv)
}

fn push_raw(key: &[u8], type_id: u32, value: &[u8]) -> impl FnOnce(&mut RawFile) {
    let kv = RawKv { key: key.into(), type_id, value: value.into() };
    |f| f.kv.push(kv)
}

#[test]
fn what_is_not_gguf_is_refused_with_its_first_bytes() {
    assert_refused!(|f| f.magic = *b"PK\x03\x04", Error::NotGguf { .. }, "`PK\\x03\\x04`", "expected `GGUF`");
}

#[test]
fn another_version_is_refused_with_its_number() {
    assert_refused!(|f| f.version = 2, Error::UnsupportedVersion { found: 2, .. }, "version 2", "expected 3");
}

#[test]
fn counts_are_held_against_the_bytes_left() {
    assert_refused!(
        |f| f.kv_count = Some(1 << 60),
        Error::CountTooLarge { found: 0x1000_0000_0000_0000, most: 0..100, .. },
        "the number of keys is 1152921504606846976"
    );
    assert_refused!(
        |f| f.tensor_count = Some(u64::MAX),
        Error::CountTooLarge { found: u64::MAX, .. },
        "the number of tensors is 18446744073709551615"
    );
    let claim = [&4u32.to_le_bytes()[..], &(1u64 << 62).to_le_bytes()].concat();
    assert_refused!(
        push_raw(b"a.list", 9, &claim),
        Error::CountTooLarge { .. },
        "the array length of `a.list` is 4611686018427387904"
    );
}

#[test]
fn lengths_are_held_against_the_end_of_the_file() {
    assert_refused!(
        push_raw(b"a.text", 8, &(1u64 << 40).to_le_bytes()),
        Error::TruncatedHeader { .. },
        "the value of `a.text` ends at byte 1099511627",
        "the file has"
    );
}

#[test]
fn honest_numbers_past_the_limits_are_refused_as_such() {
    let name = "n".repeat(limits::MAX_NAME_BYTES as usize);
    let longest = [(name.clone(), 1u8)];
    assert!(ShardSet::from_vec("m.gguf", file(&longest)).is_ok());
    let error = ShardSet::from_vec("m.gguf", file(&[(name + "n", 1)])).unwrap_err();
    assert!(matches!(error, Error::TooMany { found: 65536, most: 65535, .. }), "{error:?}");
    assert_says(&error.to_string(), &["the length of the name of key 0 is 65536", "at most 65535"]);

    let keys: Vec<_> = (0..limits::MAX_KEYS + 1).map(|i| (i.to_string(), 0u8)).collect();
    assert!(ShardSet::from_vec("m.gguf", file(&keys[1..])).is_ok());
    let error = ShardSet::from_vec("m.gguf", file(&keys)).unwrap_err();
    assert_says(&error.to_string(), &["the number of keys is 65537", "at most 65536"]);

    let most = limits::MAX_HEADER_BYTES;
    let error = ShardSet::from_vec("m.gguf", file(&[("long".into(), vec![0u8; most as usize])])).unwrap_err();
    assert!(matches!(error, Error::HeaderTooLarge { .. }), "{error:?}");
    assert_says(&error.to_string(), &["pass 33554432 bytes", "the value of `long`"]);
}

fn file(keys: &[(String, impl Into<Value> + Clone)]) -> Vec<u8> {
    let kv = keys.iter().map(|(key, value)| RawKv::new(key, &value.clone().into())).collect();
    RawFile { kv, ..RawFile::default() }.to_bytes()
}

#[test]
fn a_duplicate_key_is_refused_by_name() {
    assert_refused!(push("a.count", 7u32), Error::DuplicateKey { .. }, "duplicate key `a.count`");
}

#[test]
fn a_duplicate_tensor_is_refused_by_name() {
    assert_refused!(
        |f| f.tensors[1].name = b"one".into(),
        Error::DuplicateTensor { .. },
        "duplicate tensor `one`",
        "already in m.gguf"
    );
}

#[test]
fn corrupt_metadata_is_refused_with_its_key() {
    assert_refused!(push_raw(b"a.new", 13, &[0; 8]), Error::UnknownValueType { found: 13, .. }, "`a.new`", "type 13");
    let nested = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[0; 12]].concat();
    assert_refused!(push_raw(b"a.new", 9, &nested), Error::NestedArray { .. }, "`a.new`", "array of arrays");
    assert_refused!(push_raw(b"a.new", 7, &[2]), Error::BadBool { found: 2, .. }, "`a.new`", "bool 2", "0 or 1");
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_place() {
    let string = |s: &[u8]| [&(s.len() as u64).to_le_bytes()[..], s].concat();
    assert_refused!(push_raw(b"a\xff", 0, &[1]), Error::NotUtf8 { .. }, "the name of key 1", "`a\\xff`");
    assert_refused!(push_raw(b"a", 8, &string(b"\x80")), Error::NotUtf8 { .. }, "the value of `a`", "`\\x80`");
    let two = [&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &string(b"fine"), &string(b"\xc3")].concat();
    assert_refused!(push_raw(b"a", 9, &two), Error::NotUtf8 { .. }, "element 1 of `a`", "`\\xc3`");
    assert_refused!(|f| f.tensors[1].name = vec![0xfe], Error::NotUtf8 { .. }, "the name of tensor 1", "`\\xfe`");
}

#[test]
fn an_alignment_that_is_no_power_of_two_from_8_is_refused() {
    for bad in [0u32, 1, 4, 24, 33] {
        let (error, text) = refusal(push("general.alignment", bad));
        assert!(matches!(error, Error::BadAlignment { .. }), "{error:?}");
        assert_says(&text, &[&format!("`general.alignment` is u32 {bad},"), "power of two"]);
    }
}

#[test]
fn bad_shapes_are_refused_with_the_tensor_and_the_reason() {
    assert_refused!(|f| f.tensors[1].n_dims = Some(0), Error::BadShape { .. }, "`two`", "0 dimensions", "1 to 4");
    assert_refused!(|f| f.tensors[1].n_dims = Some(5), Error::BadShape { .. }, "`two`", "5 dimensions", "1 to 4");
    assert_refused!(|f| f.tensors[1].ne = vec![32, 0], Error::BadShape { .. }, "`two`", "[32, 0]", "dimension is 0");
    assert_refused!(|f| f.tensors[0].ne = vec![1 << 33, 1 << 31], Error::BadShape { .. }, "`one`", "64 bits");
    assert_refused!(|f| f.tensors[1].ne = vec![48], Error::BadShape { .. }, "`two`", "[48]", "blocks of 32", "Q8_0");
}

#[test]
fn an_unknown_type_is_refused_with_the_tensor_and_the_type() {
    assert_refused!(|f| f.tensors[1].type_id = 77, Error::UnsupportedType { found: 77, .. }, "`two`", "type 77");
}

#[test]
fn an_offset_off_the_alignment_is_refused() {
    assert_refused!(
        |f| f.tensors[1].offset = 72,
        Error::MisalignedTensor { offset: 72, alignment: 32, .. },
        "`two`",
        "72 is not a multiple of the alignment 32"
    );
}

#[test]
fn a_tensor_outside_the_file_is_refused() {
    assert_refused!(
        |f| f.tensors[1].offset = 1 << 20,
        Error::TensorOutsideFile { offset: 0x10_0000, bytes: 34, len: 128, .. },
        "`two` outside the file",
        "offset 1048576 + 34 bytes"
    );
    assert_refused!(|f| f.tensors[1].offset = u64::MAX - 31, Error::TensorOutsideFile { .. }, "`two`");
}

#[test]
fn overlapping_tensors_are_refused_by_both_names() {
    assert_refused!(
        |f| f.tensors[1].offset = 32,
        Error::OverlappingTensors { offset: 32, .. },
        "tensor `two` overlapping `one` at offset 32"
    );
}

#[test]
fn a_file_that_stops_early_is_refused_with_both_lengths() {
    let whole = sound().to_bytes();
    let last = whole.len() - (64 - 34);
    for len in [last - 1, last - 34, whole.len() - 128] {
        let error = ShardSet::from_vec("m.gguf", whole[..len].to_vec()).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{error:?}");
        assert_says(&error.to_string(), &["truncated", &format!("has {len} bytes, expected {last}"), "download"]);
    }
    assert!(ShardSet::from_vec("m.gguf", whole[..last].to_vec()).is_ok());
}

#[test]
fn no_proper_prefix_of_a_file_opens() {
    let whole = sound().to_bytes();
    for len in 0..whole.len() - (64 - 34) {
        assert!(ShardSet::from_vec("m.gguf", whole[..len].to_vec()).is_err(), "{len} bytes");
    }
}

#[test]
fn names_from_a_file_cannot_break_the_line_or_fill_the_screen() {
    let (_, text) = refusal(|f| {
        f.tensors[1].name = format!("x\n\x1b[31m{}", "y".repeat(60_000)).into();
        f.tensors[1].type_id = 77;
    });
    assert!(text.len() < 300 && !text.contains(['\n', '\x1b']), "{text}");
}

#[test]
fn getters_take_integers_of_any_width_that_fit() {
    let writer = Writer::new()
        .kv("u8", 8u8)
        .kv("i16", 16i16)
        .kv("u64", u64::MAX)
        .kv("neg", -1i64)
        .kv("f32", 0.5f32)
        .kv("f64", 0.5f64)
        .kv("bool", true)
        .kv("str", "text")
        .kv("u16s", vec![1u16, 2])
        .kv("i8s", vec![-1i8, 2])
        .kv("f32s", vec![0.5f32])
        .kv("strs", vec!["a", "", "b"]);
    let set = ShardSet::from_vec("m.gguf", writer.to_vec().unwrap()).unwrap();
    let m = set.metadata();
    assert_eq!(m.u64("u8").unwrap(), 8);
    assert_eq!(m.u64("i16").unwrap(), 16);
    assert_eq!(m.u64("u64").unwrap(), u64::MAX);
    assert_eq!(m.u32("i16").unwrap(), 16);
    assert_eq!(m.i64("neg").unwrap(), -1);
    assert_eq!(m.f32("f32").unwrap(), 0.5);
    assert!(m.bool("bool").unwrap());
    assert_eq!(m.str("str").unwrap(), "text");
    assert_eq!(m.u64_array("u16s").unwrap(), [1, 2]);
    assert_eq!(m.i64_array("i8s").unwrap(), [-1, 2]);
    assert_eq!(m.f32_array("f32s").unwrap(), [0.5]);
    assert_eq!(m.array("u16s").unwrap().len(), 2);
    let strings = m.str_array("strs").unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), ["a", "", "b"]);
    assert_eq!((strings.get(2), strings.get(3)), (Some("b"), None));
    assert_eq!(m.iter().map(|(key, _)| key).last(), Some("strs"), "file order");

    let wrong = |error: Error, parts: &[&str]| {
        assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
        assert_says(&error.to_string(), parts);
    };
    wrong(m.u64("neg").unwrap_err(), &["m.gguf: key `neg` is i64 -1", "a non-negative integer"]);
    wrong(m.u32("u64").unwrap_err(), &["u64 18446744073709551615", "32 bits"]);
    wrong(m.i64("u64").unwrap_err(), &["u64 18446744073709551615"]);
    wrong(m.f32("f64").unwrap_err(), &["f64 0.5", "an f32"]);
    wrong(m.bool("u8").unwrap_err(), &["u8 8", "a bool"]);
    wrong(m.str("strs").unwrap_err(), &["array of 3 strings", "a string"]);
    wrong(m.u64_array("i8s").unwrap_err(), &["array of 2 i8", "non-negative"]);
    wrong(m.i64_array("f32s").unwrap_err(), &["array of 1 f32", "an array of integers"]);
    wrong(m.f32_array("f32").unwrap_err(), &["f32 0.5", "an array of f32"]);
    wrong(m.str_array("str").unwrap_err(), &["string `text`", "an array of strings"]);
    wrong(m.u64_opt("str").unwrap_err(), &["string `text`"]);

    let missing = m.u64("none").unwrap_err();
    assert!(matches!(missing, Error::MissingKey { .. }), "{missing:?}");
    assert_says(&missing.to_string(), &["m.gguf: missing key `none`, expected a non-negative integer"]);
    assert_eq!(m.u64_opt("none").unwrap(), None);
    assert_eq!(m.path(), Path::new("m.gguf"));
}
