//! Every file of `testdata/gguf-corpus` ends as its index says, and is still what the generator makes.
//! `cargo run -p cudafast-gguf --example gguf_corpus` writes the files after a change of `cases.rs`.
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod cases;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use cudafast_gguf::ShardSet;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gguf-corpus")
}

fn index() -> BTreeMap<String, String> {
    let text = fs::read_to_string(corpus().join("index.txt")).unwrap();
    text.lines().map(|line| line.split_once(' ').map(|(name, ends)| (name.into(), ends.into())).unwrap()).collect()
}

/// Opens, touches everything, and says how it ended.
fn ending(set: Result<ShardSet, cudafast_gguf::Error>) -> String {
    let set = match set {
        Ok(set) => set,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("label: "), "{text}");
            assert!(text.contains("; ") && !text.contains('\n'), "says what to do, on one line: {text}");
            let variant = format!("{error:?}");
            return variant.split(' ').next().unwrap().into();
        }
    };
    for (key, value) in set.metadata().iter() {
        assert_eq!(set.metadata().get(key), Some(value));
    }
    for tensor in set.tensors() {
        assert_eq!(tensor.data().len() as u64, tensor.byte_len());
        assert!(tensor.data().as_ptr().addr().is_multiple_of(8));
        assert_eq!(set.tensor(tensor.name()).map(|t| t.file_offset()), Some(tensor.file_offset()));
    }
    "Ok".into()
}

#[test]
fn every_file_ends_as_the_index_says() {
    let index = index();
    assert!(index.len() >= 60);
    for (name, ends) in &index {
        let bytes = fs::read(corpus().join(name)).unwrap();
        assert!(bytes.len() < 1024, "{name} is small");
        assert_eq!(ending(ShardSet::from_vec("label", bytes)), *ends, "{name}");
    }
}

#[test]
fn every_file_ends_the_same_when_mapped() {
    for (name, ends) in index() {
        let end = match ShardSet::open(&corpus().join(&name)) {
            Ok(_) => "Ok".into(),
            Err(error) => format!("{error:?}").split(' ').next().unwrap().to_owned(),
        };
        // Of these two kinds of place only one has names to be wrong.
        let end = if end == "ShardName" { "SetInMemory" } else { &end };
        assert_eq!(end, ends, "{name}");
    }
}

#[test]
fn index_files_and_generator_agree() {
    let mut index = index();
    for case in cases::all() {
        let name = format!("{}.gguf", case.name);
        assert_eq!(fs::read(corpus().join(&name)).unwrap(), case.bytes, "{name}");
        assert_eq!(index.remove(&name).as_deref(), Some(case.ends), "{name}");
    }
    assert!(index.is_empty(), "not generated: {index:?}");
    let files = fs::read_dir(corpus()).unwrap().filter(|f| f.as_ref().unwrap().path().extension().unwrap() == "gguf");
    assert_eq!(files.count(), cases::all().len());
}
