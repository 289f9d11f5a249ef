//! The small files of `testdata/gguf-corpus`: what each is called, how opening it must end, and its bytes.
//!
//! Sound files come from the `Writer`; the others are a sound file with one thing spoilt.

use cudafast_gguf::{Array, RawFile, RawKv, StrArray, Value, Writer};

/// One file of the corpus.
pub(crate) struct Case {
    /// File name without `.gguf`.
    pub(crate) name: &'static str,
    /// `Ok`, or the name of the `Error` variant.
    pub(crate) ends: &'static str,
    pub(crate) bytes: Vec<u8>,
}

const F32: u32 = 0;
const Q8_0: u32 = 8;
const Q4_K: u32 = 12;
const HUGE: u64 = 1 << 60;

/// Three keys and two tensors: the smallest file that has one of everything.
fn sound() -> RawFile {
    let writer = Writer::new()
        .kv("general.architecture", "qwen4exp")
        .kv("a.count", 7u32)
        .kv("a.list", vec![1i32, -2, 3])
        .tensor("one.weight", &[8, 2], F32, (0..64).collect::<Vec<u8>>())
        .tensor("two.weight", &[32], Q8_0, vec![9; 34]);
    writer.to_raw().unwrap()
}

fn spoilt(spoil: impl FnOnce(&mut RawFile)) -> Vec<u8> {
    let mut raw = sound();
    spoil(&mut raw);
    raw.to_bytes()
}

/// The sound file with one more key of raw bytes.
fn with_kv(key: &[u8], type_id: u32, value: &[u8]) -> Vec<u8> {
    spoilt(|f| f.kv.push(RawKv { key: key.into(), type_id, value: value.into() }))
}

fn with_key(key: &str, value: impl Into<Value>) -> Vec<u8> {
    let value = value.into();
    spoilt(|f| f.kv.push(RawKv::new(key, &value)))
}

/// An array's element type, claimed length and bytes.
fn array(elements: u32, count: u64, bytes: &[u8]) -> Vec<u8> {
    [&elements.to_le_bytes()[..], &count.to_le_bytes(), bytes].concat()
}

fn string(len: u64, bytes: &[u8]) -> Vec<u8> {
    [&len.to_le_bytes()[..], bytes].concat()
}

/// The sound file's first `n` bytes; negative counts from the end of its header.
fn cut(n: i64) -> Vec<u8> {
    let raw = sound();
    let at = if n < 0 { raw.header().len() as i64 + n } else { n };
    raw.to_bytes()[..at as usize].to_vec()
}

/// The header of a file whose last key's value is cut by `lost` bytes.
fn cut_value(value: impl Into<Value>, lost: usize) -> Vec<u8> {
    let raw = RawFile { kv: vec![RawKv::new("a.key", &value.into())], ..RawFile::default() };
    let header = raw.header();
    header[..header.len() - lost].to_vec()
}

fn whole(writer: Writer<'_>) -> Vec<u8> {
    writer.to_vec().unwrap()
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = sound_files();
    cases.extend(not_headers());
    cases.extend(bad_metadata());
    cases.extend(bad_tensors());
    cases.extend(bad_splits());
    cases
}

fn case(name: &'static str, ends: &'static str, bytes: Vec<u8>) -> Case {
    Case { name, ends, bytes }
}

fn sound_files() -> Vec<Case> {
    let ok = |name, bytes| case(name, "Ok", bytes);
    let scalars = Writer::new()
        .kv("u8", 8u8)
        .kv("i8", -8i8)
        .kv("u16", 16u16)
        .kv("i16", -16i16)
        .kv("u32", 32u32)
        .kv("i32", -32i32)
        .kv("u64", u64::MAX)
        .kv("i64", i64::MIN)
        .kv("f32", 0.5f32)
        .kv("f64", -0.25f64)
        .kv("bool", true)
        .kv("string", "text");
    let arrays = Writer::new()
        .kv("u8", vec![8u8])
        .kv("i8", vec![-8i8])
        .kv("u16", vec![16u16])
        .kv("i16", vec![-16i16])
        .kv("u32", vec![32u32, 33])
        .kv("i32", vec![-32i32])
        .kv("u64", vec![u64::MAX])
        .kv("i64", vec![i64::MIN])
        .kv("f32", vec![0.5f32])
        .kv("f64", vec![-0.25f64])
        .kv("bool", vec![true, false])
        .kv("string", vec!["", "text", ""]);
    let ranks = Writer::new()
        .tensor("rank.1", &[4], F32, vec![1; 16])
        .tensor("rank.2", &[4, 2], F32, vec![2; 32])
        .tensor("rank.3", &[1, 2, 3], F32, vec![3; 24])
        .tensor("rank.4", &[1, 1, 1, 1], F32, vec![4; 4]);
    let small_alignment = Writer::new().kv("general.alignment", 8u32).tensor("a", &[1], F32, vec![1; 4]).tensor(
        "b",
        &[1],
        F32,
        vec![2; 4],
    );
    vec![
        ok("ok-sound", spoilt(|_| ())),
        ok("ok-nothing-in-it", whole(Writer::new())),
        ok("ok-all-scalar-kinds", whole(scalars)),
        ok("ok-all-array-kinds", whole(arrays)),
        ok("ok-empty-arrays", whole(Writer::new().kv("a", Vec::<u64>::new()).kv("b", StrArray::default()))),
        ok("ok-ranks-1-to-4", whole(ranks)),
        ok("ok-alignment-8", whole(small_alignment)),
        ok("ok-alignment-256", whole(Writer::new().kv("general.alignment", 256u32).tensor("a", &[1], F32, vec![1; 4]))),
        ok("ok-alignment-as-u64", with_key("general.alignment", 32u64)),
        ok("ok-k-block", whole(Writer::new().tensor("k", &[256, 2], Q4_K, vec![0; 288]))),
        ok(
            "ok-names-not-ascii",
            whole(Writer::new().kv("schlüssel", "wert").tensor("größe.重み", &[1], F32, vec![0; 4])),
        ),
        ok("ok-empty-names", whole(Writer::new().kv("", "").tensor("", &[1], F32, vec![0; 4]))),
        ok("ok-architecture-of-others", whole(Writer::new().kv("general.architecture", "llama"))),
        ok("ok-no-padding-without-tensors", RawFile { alignment: 1, ..RawFile::default() }.to_bytes()),
        ok("ok-no-padding-at-the-end", spoilt(|f| f.data.truncate(64 + 34))),
        ok("ok-bytes-after-the-last-tensor", spoilt(|f| f.data.extend([7; 100]))),
        ok(
            "ok-gap-between-tensors",
            spoilt(|f| {
                f.tensors[1].offset += 64;
                f.data.extend([0; 64]);
            }),
        ),
        ok(
            "ok-table-not-in-file-order",
            spoilt(|f| {
                f.tensors[0].offset = 64;
                f.tensors[1].offset = 0;
                f.data.extend([0; 64]);
            }),
        ),
        ok(
            "ok-set-of-one",
            whole(Writer::new().kv("split.no", 0u16).kv("split.count", 1u16).kv("split.tensors.count", 0i32)),
        ),
        ok("ok-split-keys-of-other-widths", with_key("split.count", 1i64)),
    ]
}

fn not_headers() -> Vec<Case> {
    let other = |name, bytes: &[u8]| case(name, "NotGguf", bytes.to_vec());
    let version = |name, version| case(name, "UnsupportedVersion", spoilt(|f| f.version = version));
    let short = |name, bytes| case(name, "TruncatedHeader", bytes);
    let count = |name, bytes| case(name, "CountTooLarge", bytes);
    vec![
        other("magic-empty-file", b""),
        other("magic-cut", b"GGU"),
        other("magic-big-endian", b"FUGG\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        other("magic-older-format", b"lmgg\x01\0\0\0"),
        other("magic-web-page", b"<!DOCTYPE html><html><body>Sign in to download</body></html>"),
        other("magic-git-lfs-pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10946624\n"),
        other("magic-safetensors", b"\x40\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}"),
        version("version-0", 0),
        version("version-1", 1),
        version("version-2", 2),
        version("version-4", 4),
        version("version-3-big-endian", 3u32.swap_bytes()),
        short("cut-behind-magic", cut(4)),
        short("cut-in-counts", cut(20)),
        short("cut-string-length", cut_value("text", 9)),
        short("cut-string", cut_value("text", 1)),
        short("cut-u64", cut_value(1u64, 1)),
        short("cut-value-type", cut_value(1u8, 2)),
        short("cut-array-element-type", cut_value(vec![1u8; 20], 29)),
        short("cut-array-length", cut_value(vec![1u8; 20], 21)),
        short("cut-string-of-array", cut_value(vec!["abc", "defghijkl"], 1)),
        short("cut-tensor-offset", cut(-1)),
        short("cut-tensor-type", cut(-9)),
        short("cut-tensor-dimension", cut(-13)),
        short("string-of-2-60-bytes", with_kv(b"a", 8, &string(HUGE, b"text"))),
        short("string-of-2-64-bytes", with_kv(b"a", 8, &string(u64::MAX, b"text"))),
        short("string-of-array-of-2-60-bytes", with_kv(b"a", 9, &array(8, 1, &string(HUGE, b"text")))),
        short("key-name-of-2-60-bytes", {
            let head = spoilt(|f| (f.kv, f.kv_count) = (Vec::new(), Some(1)));
            [&head[..24], &HUGE.to_le_bytes(), &[0; 80]].concat()
        }),
        count("count-cut-array", cut_value(vec![1u32; 20], 1)),
        count("count-2-60-keys", spoilt(|f| f.kv_count = Some(HUGE))),
        count("count-2-64-keys", spoilt(|f| f.kv_count = Some(u64::MAX))),
        count("count-2-60-tensors", spoilt(|f| f.tensor_count = Some(HUGE))),
        count("count-2-64-tensors", spoilt(|f| f.tensor_count = Some(u64::MAX))),
        count("count-array-of-2-60-bytes", with_kv(b"a", 9, &array(0, HUGE, b"text"))),
        count("count-array-of-2-61-u64", with_kv(b"a", 9, &array(10, 1 << 61, &[0; 64]))),
        count("count-array-of-2-60-bools", with_kv(b"a", 9, &array(7, HUGE, &[1; 8]))),
        count("count-array-of-2-60-strings", with_kv(b"a", 9, &array(8, HUGE, &[0; 64]))),
    ]
}

fn bad_metadata() -> Vec<Case> {
    let alignment = |name, value: Value| case(name, "BadAlignment", with_key("general.alignment", value));
    let text = |name, bytes| case(name, "NotUtf8", bytes);
    vec![
        case("dup-key", "DuplicateKey", with_key("a.list", 1u8)),
        case("dup-key-same-value", "DuplicateKey", with_key("general.architecture", "qwen4exp")),
        case("type-13", "UnknownValueType", with_kv(b"a", 13, &[0; 8])),
        case("type-2-32", "UnknownValueType", with_kv(b"a", u32::MAX, &[0; 8])),
        case("type-13-in-array", "UnknownValueType", with_kv(b"a", 9, &array(13, 1, &[0; 8]))),
        case("nested-array", "NestedArray", with_kv(b"a", 9, &array(9, 1, &array(0, 1, &[0])))),
        case("bool-2", "BadBool", with_kv(b"a", 7, &[2])),
        case("bool-255-in-array", "BadBool", with_kv(b"a", 9, &array(7, 3, &[0, 1, 255]))),
        text("utf8-key", with_kv(b"a\xff", 0, &[1])),
        text("utf8-string", with_kv(b"a", 8, &string(2, b"\xc3("))),
        text("utf8-string-of-array", with_kv(b"a", 9, &array(8, 2, &[string(1, b"a"), string(1, b"\x80")].concat()))),
        text(
            "utf8-letter-cut-in-two",
            with_kv(b"a", 9, &array(8, 2, &[string(1, b"\xc3"), string(1, b"\xa9")].concat())),
        ),
        text("utf8-tensor-name", spoilt(|f| f.tensors[1].name = b"two\xfe".into())),
        alignment("alignment-0", Value::U32(0)),
        alignment("alignment-4", Value::U32(4)),
        alignment("alignment-24", Value::U32(24)),
        alignment("alignment-negative", Value::I32(-32)),
        alignment("alignment-float", Value::F32(32.0)),
        alignment("alignment-string", Value::String("32".into())),
        alignment("alignment-array", Value::Array(Array::U32(vec![32]))),
    ]
}

fn bad_tensors() -> Vec<Case> {
    let shape = |name, ne: &[u64]| case(name, "BadShape", spoilt(|f| f.tensors[0].ne = ne.into()));
    let rank = |name, claimed| case(name, "BadShape", spoilt(|f| f.tensors[0].n_dims = Some(claimed)));
    let kind = |name, type_id| case(name, "UnsupportedType", spoilt(|f| f.tensors[1].type_id = type_id));
    let offset = |name, ends, offset| case(name, ends, spoilt(|f| f.tensors[1].offset = offset));
    vec![
        case("dup-tensor", "DuplicateTensor", spoilt(|f| f.tensors[1].name = f.tensors[0].name.clone())),
        rank("shape-no-dimensions", 0),
        rank("shape-5-dimensions", 5),
        rank("shape-2-32-dimensions", u32::MAX),
        shape("shape-zero-first", &[0, 2]),
        shape("shape-zero-last", &[8, 0]),
        shape("shape-2-64-elements", &[1 << 32, 1 << 32]),
        shape("shape-2-64-bytes", &[1 << 62]),
        shape("shape-wraps-to-16", &[(1 << 60) + 1, 16]),
        case("shape-half-a-block", "BadShape", spoilt(|f| f.tensors[1].ne = vec![16])),
        case("shape-block-across-rows", "BadShape", spoilt(|f| f.tensors[1].ne = vec![8, 4])),
        kind("tensor-type-4-retired", 4),
        kind("tensor-type-77", 77),
        kind("tensor-type-2-32", u32::MAX),
        offset("offset-odd", "MisalignedTensor", 65),
        offset("offset-of-another-alignment", "MisalignedTensor", 80),
        offset("offset-past-the-end", "TensorOutsideFile", 1 << 40),
        offset("offset-2-64", "TensorOutsideFile", u64::MAX - 31),
        offset("offset-2-63", "TensorOutsideFile", 1 << 63),
        offset("overlap-same-offset", "OverlappingTensors", 0),
        offset("overlap-by-half", "OverlappingTensors", 32),
        case(
            "overlap-inside-another",
            "OverlappingTensors",
            spoilt(|f| {
                f.tensors[0].ne = vec![64];
                f.tensors[1].offset = 128;
                f.data.resize(256, 0);
            }),
        ),
        case("truncated-by-one-byte", "Truncated", spoilt(|f| f.data.truncate(64 + 33))),
        case("truncated-to-the-header", "Truncated", sound().header()),
        case("truncated-one-tensor-lost", "Truncated", spoilt(|f| f.data.truncate(64))),
        case("truncated-4-exabytes-lost", "Truncated", spoilt(|f| f.tensors[1].ne = vec![1 << 61])),
    ]
}

fn bad_splits() -> Vec<Case> {
    let set = |no: u16, count: u16, tensors: i32| {
        let keys = [("split.no", Value::U16(no)), ("split.count", Value::U16(count))];
        spoilt(|f| {
            f.kv.extend(keys.iter().map(|(key, value)| RawKv::new(key, value)));
            f.kv.push(RawKv::new("split.tensors.count", &Value::I32(tensors)));
        })
    };
    vec![
        case("split-one-of-4", "SetInMemory", set(0, 4, 2)),
        case("split-second-of-1", "ForeignShard", set(1, 1, 2)),
        case("split-of-0", "ForeignShard", set(0, 0, 2)),
        case("split-tensor-missing", "TensorCount", set(0, 1, 3)),
        case("split-tensor-too-many", "TensorCount", set(0, 1, 1)),
        case("split-count-string", "WrongKind", with_key("split.count", "1")),
        case("split-no-negative", "WrongKind", with_key("split.no", -1i32)),
    ]
}
