//! What the writer refuses, how it cuts sets, and that it needs no tensor in memory.

use std::{
    cell::Cell,
    io::{self, Write},
    path::Path,
};

use cudafast_gguf::{Error, ShardSet, Split, Value, Writer, limits};

fn refusal(writer: Writer<'_>) -> String {
    let error = writer.write_to(&mut io::sink()).unwrap_err();
    assert!(writer.to_vec().is_err());
    error.to_string()
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn what_the_reader_would_refuse_is_not_written() {
    let w = Writer::new;
    assert_says(&refusal(w().kv("a", 1u8).kv("a", 2u8)), &["duplicate key `a`"]);
    assert_says(
        &refusal(w().tensor("t", &[1], 0, [0; 4].to_vec()).tensor("t", &[1], 0, [0; 4].to_vec())),
        &["duplicate tensor `t`"],
    );
    assert_says(&refusal(w().kv("general.alignment", 12u32)), &["`general.alignment` is u32 12"]);
    assert_says(&refusal(w().tensor("t", &[], 0, vec![])), &["`t`", "no dimensions"]);
    assert_says(&refusal(w().tensor("t", &[1; 5], 0, vec![])), &["`t`", "5 dimensions"]);
    assert_says(&refusal(w().tensor("t", &[0], 0, vec![])), &["`t`", "dimension is 0"]);
    assert_says(&refusal(w().tensor("t", &[33], 8, vec![])), &["`t`", "blocks of 32 (Q8_0)"]);
    assert_says(&refusal(w().tensor("t", &[1], 77, vec![])), &["`t`", "unsupported type 77"]);
    assert_says(&refusal(w().tensor("t", &[2], 0, vec![0; 7])), &["`t` was given 7 bytes", "take 8"]);
    assert_says(&refusal(w().kv("k".repeat(65536), 1u8)), &["the length of the name", "65536"]);
    let huge = |_: &mut dyn Write| Ok(());
    let two = w().tensor_with("t", &[1 << 61], 0, huge).tensor_with("u", &[1 << 61], 0, huge);
    assert_says(&refusal(two), &["`u`", "64 bits"]);
}

#[test]
fn a_header_past_the_limit_is_not_written() {
    let writer = Writer::new().kv("a", vec![0u8; limits::MAX_HEADER_BYTES as usize]);
    let error = writer.write_to(&mut io::sink()).unwrap_err();
    assert!(matches!(error, Error::HeaderTooLarge { .. }), "{error:?}");
}

#[test]
fn a_stream_of_the_wrong_length_is_refused_and_overwrites_nothing() {
    for (given, bytes) in [(3, 8), (8, 8), (13, 8)] {
        let writer =
            Writer::new().tensor_with("t", &[2], 0, move |out| (0..given).try_for_each(|i| out.write_all(&[i])));
        let mut out = Vec::new();
        match writer.write_to(&mut out) {
            Ok(()) => assert_eq!(given, bytes),
            Err(Error::WrongLength { tensor, found, expected: 8, .. }) => {
                assert_eq!((tensor.as_str(), found), ("t", u64::from(given)));
                assert!(out.len() % 32 <= usize::from(bytes), "nothing is written past the tensor");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_failing_stream_is_refused_with_its_tensor_and_cause() {
    let writer = Writer::new().tensor_with("t", &[2], 0, |_| Err(io::Error::other("no more numbers")));
    let error = writer.write_to(&mut io::sink()).unwrap_err();
    assert_says(&error.to_string(), &["output: cannot be written, failed at tensor `t`"]);
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no more numbers");
}

#[test]
fn a_path_that_cannot_be_written_is_refused_with_its_name() {
    let error = Writer::new().write_file(Path::new("/nowhere/m.gguf")).unwrap_err();
    assert_says(&error.to_string(), &["/nowhere/m.gguf: cannot be written"]);
}

/// Keeps nothing, counts bytes and the largest write.
struct Gauge {
    bytes: u64,
    largest: usize,
}

impl Write for Gauge {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.largest = self.largest.max(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn tensors_larger_than_memory_pass_through() {
    let chunk = vec![7u8; 1 << 20];
    let asked = Cell::new(0);
    let writer = Writer::new().tensor_with("t", &[1 << 30, 4], 24, |out| {
        asked.set(asked.get() + 1);
        (0..4096).try_for_each(|_| out.write_all(&chunk))
    });
    let mut gauge = Gauge { bytes: 0, largest: 0 };
    writer.write_to(&mut gauge).unwrap();
    assert_eq!(asked.get(), 1);
    assert_eq!(gauge.largest, chunk.len());
    assert_eq!(gauge.bytes, (4 << 30) + 96);
}

fn five() -> Writer<'static> {
    (0..5u8).fold(Writer::new().kv("a.key", 1u8), |w, i| w.tensor(format!("t{i}"), &[4], 0, vec![i; 16]))
}

fn shards_of(writer: &Writer<'_>, split: Split) -> Vec<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let paths = writer.write_set(dir.path(), "m", split).unwrap();
    let set = ShardSet::open(&paths[0]).unwrap();
    assert_eq!(set.shards().len(), paths.len());
    let mut shards = vec![Vec::new(); paths.len()];
    for t in set.tensors() {
        assert_eq!(t.data()[0], t.name().as_bytes()[1] - b'0');
        shards[t.shard()].push(t.name().to_owned());
    }
    shards
}

#[test]
fn a_set_is_cut_before_the_tensor_that_would_pass_the_size() {
    let cut = |max_shard_bytes, keys_alone| shards_of(&five(), Split { max_shard_bytes, keys_alone });
    assert_eq!(cut(47, false), [vec!["t0", "t1"], vec!["t2", "t3"], vec!["t4"]]);
    assert_eq!(cut(48, false), [vec!["t0", "t1", "t2"], vec!["t3", "t4"]]);
    assert_eq!(cut(48, true), [vec![], vec!["t0", "t1", "t2"], vec!["t3", "t4"]]);
    assert_eq!(cut(u64::MAX, false), [vec!["t0", "t1", "t2", "t3", "t4"]]);
    assert_eq!(cut(0, false).len(), 5, "a shard holds a tensor at least");
    assert_eq!(shards_of(&Writer::new(), Split { max_shard_bytes: 1, keys_alone: false }), [Vec::<String>::new()]);
}

#[test]
fn every_shard_of_a_set_keeps_the_alignment() {
    let dir = tempfile::tempdir().unwrap();
    let split = Split { max_shard_bytes: 16, keys_alone: false };
    let paths = five().kv("general.alignment", 128u32).write_set(dir.path(), "m", split).unwrap();
    let set = ShardSet::open(&paths[3]).unwrap();
    assert_eq!(set.tensors().len(), 5);
    assert!(set.tensors().iter().all(|t| t.file_offset() % 128 == 0));
}

#[test]
fn split_keys_of_a_set_are_the_writers_own() {
    let dir = tempfile::tempdir().unwrap();
    let split = Split { max_shard_bytes: 16, keys_alone: false };
    let error = five().kv("split.no", 0u16).write_set(dir.path(), "m", split).unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { .. }), "{error:?}");
    let set = ShardSet::open(&five().write_set(dir.path(), "m", split).unwrap()[0]).unwrap();
    assert_eq!(set.metadata().get("split.no"), Some(&Value::U16(0)));
    assert_eq!(set.metadata().get("split.count"), Some(&Value::U16(5)));
    assert_eq!(set.metadata().get("split.tensors.count"), Some(&Value::I32(5)));
}

#[test]
fn all_ways_to_write_a_file_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut written = Vec::new();
    five().write_to(&mut written).unwrap();
    five().write_file(&path).unwrap();
    assert_eq!(five().to_vec().unwrap(), written);
    assert_eq!(std::fs::read(path).unwrap(), written);
}
