//! Sets and directories: what opens, and which file a refusal names.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cudafast_gguf::{Error, ShardSet, Split, Value, Writer};
use tempfile::TempDir;

/// A set of three: keys alone, `a` and `b`, `c`.
fn three() -> (TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let paths = three_at(dir.path(), "set");
    (dir, paths)
}

fn three_at(dir: &Path, base: &str) -> Vec<PathBuf> {
    let writer = Writer::new()
        .kv("general.architecture", "qwen4exp")
        .tensor("a", &[4], 0, vec![1; 16])
        .tensor("b", &[4], 0, vec![2; 16])
        .tensor("c", &[4], 0, vec![3; 16]);
    writer.write_set(dir, base, Split { max_shard_bytes: 32, keys_alone: true }).unwrap()
}

/// Writes one shard by hand.
fn shard(path: &Path, keys: &[(&str, Value)], tensor: &str) {
    let writer = keys.iter().fold(Writer::new(), |w, (key, value)| w.kv(*key, value.clone()));
    writer.tensor(tensor, &[4], 0, vec![9; 16]).write_file(path).unwrap();
}

fn place(no: u16, count: u16, tensors: i32) -> [(&'static str, Value); 3] {
    [("split.no", no.into()), ("split.count", count.into()), ("split.tensors.count", tensors.into())]
}

fn refusal(path: &Path) -> (Error, String) {
    let error = ShardSet::open(path).unwrap_err();
    let text = error.to_string();
    (error, text)
}

#[test]
fn a_set_opens_from_any_shard_and_from_its_directory() {
    let (dir, paths) = three();
    assert_eq!(paths.len(), 3);
    for from in paths.iter().map(PathBuf::as_path).chain([dir.path()]) {
        let set = ShardSet::open(from).unwrap();
        assert_eq!(set.shards().iter().map(|s| s.path()).collect::<Vec<_>>(), paths);
        assert_eq!(
            set.tensors().iter().map(|t| (t.name(), t.shard())).collect::<Vec<_>>(),
            [("a", 1), ("b", 1), ("c", 2)]
        );
        assert_eq!(set.tensor("c").unwrap().data().to_vec(), vec![3; 16]);
        assert_eq!(set.tensor("d").map(|t| t.name()), None);
        assert_eq!(set.metadata().str("general.architecture").unwrap(), "qwen4exp");
        for shard in set.shards() {
            assert_eq!(shard.file_bytes(), fs::metadata(shard.path()).unwrap().len());
            assert_eq!(shard.data_start() % 32, 0);
        }
    }
}

#[test]
fn tensor_data_outlives_its_set_and_crosses_threads() {
    let (_dir, paths) = three();
    let data = ShardSet::open(&paths[0]).unwrap().tensor("b").unwrap().data();
    let copy = data.clone();
    assert_eq!(std::thread::spawn(move || copy.to_vec()).join().unwrap(), *data);
}

#[test]
fn each_missing_shard_is_named_with_the_remedy() {
    for gone in 0..3 {
        let (dir, paths) = three();
        fs::remove_file(&paths[gone]).unwrap();
        for from in paths.iter().map(PathBuf::as_path).chain([dir.path()]) {
            let (error, text) = refusal(from);
            assert!(
                matches!(&error, Error::MissingShard { path, missing: 1, count: 3 } if *path == paths[gone]),
                "{text}"
            );
            assert!(text.contains("download"), "{text}");
        }
    }
}

#[test]
fn of_several_missing_shards_the_first_is_named() {
    let (_dir, paths) = three();
    fs::remove_file(&paths[0]).unwrap();
    fs::remove_file(&paths[2]).unwrap();
    let (error, text) = refusal(&paths[1]);
    assert!(matches!(&error, Error::MissingShard { path, missing: 2, .. } if *path == paths[0]), "{text}");
}

#[test]
fn a_shard_under_another_name_is_refused_with_its_own() {
    let (dir, paths) = three();
    let renamed = dir.path().join("part2.gguf");
    fs::rename(&paths[1], &renamed).unwrap();
    let (error, text) = refusal(&renamed);
    assert!(matches!(error, Error::ShardName { count: 3, .. }), "{error:?}");
    assert!(text.contains("<base>-00002-of-00003.gguf"), "{text}");
}

#[test]
fn swapped_shards_are_refused_with_the_first_wrong_one() {
    for (one, other, says) in [(1, 2, "`split.no` is 2, expected 1"), (0, 1, "`split.no` is 1, expected 0")] {
        let (dir, paths) = three();
        let aside = dir.path().join("aside");
        fs::rename(&paths[one], &aside).unwrap();
        fs::rename(&paths[other], &paths[one]).unwrap();
        fs::rename(&aside, &paths[other]).unwrap();
        let (error, text) = refusal(&paths[0]);
        assert!(matches!(&error, Error::ForeignShard { path, .. } if *path == paths[one]), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_shard_of_another_count_total_or_model_is_refused() {
    let cases: [(&[(&str, Value)], &str); 4] = [
        (&place(2, 4, 3), "`split.count` is 4, expected 3"),
        (&place(2, 3, 5), "`split.tensors.count` is 5, expected 3"),
        (
            &[&place(2, 3, 3)[..], &[("general.architecture", "llama".into())]].concat(),
            "`general.architecture` is string `llama`",
        ),
        (&[&place(2, 3, 3)[..], &[("a.new", 1u8.into())]].concat(), "`a.new` is u8 1, expected no such key"),
    ];
    for (keys, says) in cases {
        let (_dir, paths) = three();
        shard(&paths[2], keys, "c");
        let (error, text) = refusal(&paths[0]);
        assert!(matches!(&error, Error::ForeignShard { path, .. } if *path == paths[2]), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_shard_that_repeats_a_key_of_the_first_one_is_fine() {
    let (_dir, paths) = three();
    shard(&paths[2], &[&place(2, 3, 3)[..], &[("general.architecture", "qwen4exp".into())]].concat(), "c");
    assert!(ShardSet::open(&paths[2]).is_ok());
}

#[test]
fn split_keys_may_have_any_integer_width() {
    let (_dir, paths) = three();
    let keys = [("split.no", 2u64.into()), ("split.count", 3i8.into()), ("split.tensors.count", 3u8.into())];
    shard(&paths[2], &keys, "c");
    assert!(ShardSet::open(&paths[2]).is_ok());
}

#[test]
fn a_shard_without_split_keys_is_refused_by_key() {
    for gone in 0..3 {
        let (_dir, paths) = three();
        let mut keys = place(2, 3, 3).to_vec();
        let (key, _) = keys.remove(gone);
        shard(&paths[2], &keys, "c");
        let (error, text) = refusal(&paths[0]);
        assert!(matches!(&error, Error::MissingKey { path, key: k, .. } if *path == paths[2] && k == key), "{text}");
    }
}

#[test]
fn a_set_whose_tables_do_not_add_up_is_refused_with_both_numbers() {
    let (_dir, paths) = three();
    for (no, tensor) in [(0, "x"), (1, "y"), (2, "z")] {
        shard(&paths[usize::from(no)], &place(no, 3, 4), tensor);
    }
    let (error, text) = refusal(&paths[2]);
    assert!(matches!(error, Error::TensorCount { found: 3, expected: 4, .. }), "{error:?}");
    assert!(text.contains("has 3 of 4 tensors"), "{text}");
}

#[test]
fn a_tensor_in_two_shards_is_refused_with_both_files() {
    let (_dir, paths) = three();
    shard(&paths[2], &place(2, 3, 3), "a");
    let (error, text) = refusal(&paths[0]);
    let Error::DuplicateTensor { path, tensor, first } = error else { panic!("{text}") };
    assert_eq!((path, tensor.as_str(), first), (paths[2].clone(), "a", paths[1].clone()));
}

#[test]
fn a_broken_shard_is_named_even_when_the_set_is_opened_from_another() {
    let (_dir, paths) = three();
    let whole = fs::read(&paths[2]).unwrap();
    fs::write(&paths[2], &whole[..whole.len() - 20]).unwrap();
    let (error, text) = refusal(&paths[0]);
    assert!(matches!(&error, Error::Truncated { path, .. } if *path == paths[2]), "{text}");
}

#[test]
fn shard_numbers_outside_the_set_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf"] {
        shard(&dir.path().join(name), &place(0, 2, 1), "a");
        let (error, text) = refusal(&dir.path().join(name));
        assert!(matches!(error, Error::ForeignShard { .. }), "{text}");
    }
    let (error, text) = refusal(&dir.path().join("m-00001-of-99999.gguf"));
    assert!(matches!(error, Error::TooMany { found: 99999, most: 4096, .. }), "{text}");
}

#[test]
fn a_whole_model_may_be_named_like_a_set_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m-00001-of-00001.gguf");
    for keys in [&[][..], &place(0, 1, 1)] {
        shard(&path, keys, "a");
        assert_eq!(ShardSet::open(&path).unwrap().tensors().len(), 1);
        assert_eq!(ShardSet::open(dir.path()).unwrap().tensors().len(), 1);
    }
}

#[test]
fn a_directory_of_one_model_opens_beside_its_draft_head_and_other_files() {
    let dir = tempfile::tempdir().unwrap();
    shard(&dir.path().join("model.gguf"), &[], "m");
    shard(&dir.path().join("mtp-model.gguf"), &[], "head");
    for other in ["README.md", "._model.gguf", "model.gguf.part"] {
        fs::write(dir.path().join(other), "not a model").unwrap();
    }
    fs::create_dir(dir.path().join("old.gguf")).unwrap();
    assert!(ShardSet::open(dir.path()).unwrap().tensor("m").is_some());
}

#[test]
fn a_directory_of_several_models_lists_them() {
    let dir = tempfile::tempdir().unwrap();
    three_at(dir.path(), "set");
    shard(&dir.path().join("other.gguf"), &[], "m");
    let (error, text) = refusal(dir.path());
    let Error::SeveralModels { models, .. } = error else { panic!("{text}") };
    assert_eq!(models, ["other.gguf", "set-00001-of-00003.gguf"]);
    for i in 0..20 {
        shard(&dir.path().join(format!("x{i}.gguf")), &[], "m");
    }
    let (_, text) = refusal(dir.path());
    assert!(text.contains("holds 22 models") && text.ends_with("and 14 more"), "{text}");
}

#[test]
fn a_directory_without_a_model_says_so() {
    let dir = tempfile::tempdir().unwrap();
    shard(&dir.path().join("mtp-model.gguf"), &[], "head");
    let (error, text) = refusal(dir.path());
    assert!(matches!(error, Error::NoModel { drafts: 1, .. }), "{text}");
    assert!(text.contains("holds no model (1 draft heads)"), "{text}");
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (error, text) = refusal(&dir.path().join("none.gguf"));
    assert!(matches!(error, Error::Open { .. }), "{text}");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("No such file"));
    #[cfg(unix)]
    {
        let (error, text) = refusal(Path::new("/dev/null"));
        assert!(matches!(error, Error::NotAFile { .. }), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn links_into_a_download_cache_open_under_their_own_names() {
    let (blobs, paths) = three();
    let dir = tempfile::tempdir().unwrap();
    for (i, path) in paths.iter().enumerate() {
        let blob = blobs.path().join(format!("blob{i}"));
        fs::rename(path, &blob).unwrap();
        std::os::unix::fs::symlink(&blob, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(ShardSet::open(dir.path()).unwrap().tensors().len(), 3);
    fs::remove_file(blobs.path().join("blob1")).unwrap();
    let (error, text) = refusal(dir.path());
    assert!(matches!(&error, Error::MissingShard { path, .. } if path.ends_with("set-00002-of-00003.gguf")), "{text}");
}

#[test]
fn one_shard_in_memory_is_refused() {
    let (_dir, paths) = three();
    let error = ShardSet::from_vec("m.gguf", fs::read(&paths[1]).unwrap()).unwrap_err();
    assert!(matches!(error, Error::SetInMemory { count: 3, .. }), "{error:?}");
    assert!(error.to_string().starts_with("m.gguf: is one of 3 shards"), "{error}");
}

#[test]
fn static_bytes_open_at_any_address_with_aligned_tensors() {
    let file = Writer::new().tensor("a", &[4], 0, vec![1; 16]).to_vec().unwrap();
    for shift in 0..16 {
        let moved = Box::leak([vec![0; shift], file.clone()].concat().into_boxed_slice());
        let set = ShardSet::from_static("embedded", &moved[shift..]).unwrap();
        assert_eq!(set.label(), "embedded");
        let data = set.tensor("a").unwrap().data();
        assert!(data.as_ptr().addr().is_multiple_of(8));
        assert_eq!(*data, [1; 16]);
    }
}
