//! The files the repository ships: opened as they are, and with parts of the set gone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cudafast_gguf::{Error, ShardSet};

fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

const SINGLE: [(&str, usize, usize); 5] = [
    ("testdata/oracle/tiny.gguf", 50, 214),
    ("testdata/oracle/mtp-tiny.gguf", 34, 32),
    ("testdata/oracle/mtp-mix.gguf", 34, 32),
    ("models/tiny/tiny-story-UD-Q4_K_XL.gguf", 52, 214),
    ("models/tiny/mtp-tiny-story-Q8_0.gguf", 34, 32),
];

#[test]
fn every_single_file_opens_with_its_keys_and_tensors() {
    for (path, keys, tensors) in SINGLE {
        let set = ShardSet::open(&repo(path)).unwrap();
        assert_eq!(set.metadata().len(), keys, "{path}");
        assert_eq!(set.tensors().len(), tensors, "{path}");
        assert_eq!(set.shards().len(), 1, "{path}");
        assert_eq!(set.metadata().str("general.architecture").unwrap(), "qwen4exp", "{path}");
        let bytes = fs::read(repo(path)).unwrap();
        for t in set.tensors() {
            let at = t.file_offset() as usize;
            assert_eq!(*t.data(), bytes[at..at + t.byte_len() as usize], "{path} {}", t.name());
        }
    }
}

fn mix_shard(no: usize) -> String {
    format!("mix-{no:05}-of-00004.gguf")
}

fn copy_of_mix(dir: &Path) {
    for no in 1..=4 {
        fs::copy(repo("testdata/oracle").join(mix_shard(no)), dir.join(mix_shard(no))).unwrap();
    }
}

#[test]
fn the_mix_set_opens_from_each_of_its_shards() {
    for no in 1..=4 {
        let set = ShardSet::open(&repo("testdata/oracle").join(mix_shard(no))).unwrap();
        assert_eq!(set.shards().len(), 4);
        assert_eq!(set.tensors().len(), 113);
        assert_eq!(set.metadata().u64("split.tensors.count").unwrap(), 113);
        assert_eq!(set.metadata().str("general.architecture").unwrap(), "qwen4exp");
        assert!(set.tensors().iter().all(|t| t.shard() != 0), "the first shard holds keys alone");
        assert!(set.label().ends_with("mix-00001-of-00004.gguf"), "{}", set.label());
    }
}

#[test]
fn a_set_without_one_shard_names_that_shard_wherever_it_is_opened() {
    for gone in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        copy_of_mix(dir.path());
        fs::remove_file(dir.path().join(mix_shard(gone))).unwrap();
        let from = (1..=4).map(|no| dir.path().join(mix_shard(no))).chain([dir.path().to_path_buf()]);
        for path in from {
            match ShardSet::open(&path).unwrap_err() {
                Error::MissingShard { path, missing: 1, count: 4 } => assert!(path.ends_with(mix_shard(gone))),
                other => panic!("{other}"),
            }
        }
    }
}
