//! Failures that users of other engines reported in public, each as a test that this one does not have them.
//!
//! Wrong or missing shards that loaded as nonsense: sgl-project/sglang#28209, pie-project/pie#383,
//! FlashML-org/FreeToken#154, vllm-gguf-plugin#54, JustVugg/colibri#1317. The tests named `shards_` hold the facts that
//! those loaders had wrong between them.

use std::{fs, path::Path};

use cudafast_gguf::{Error, ShardSet, Split, Value, Writer};

/// `blocks` layers in shards of one tensor, all keys in the first.
fn write_set(dir: &Path, base: &str, blocks: u8) -> Vec<std::path::PathBuf> {
    let writer = Writer::new().kv("general.architecture", "qwen4exp").kv("qwen4exp.block_count", u32::from(blocks));
    let tensor = |w: Writer<'static>, n| w.tensor(format!("blk.{n}.ffn_norm.weight"), &[4], 0, vec![n; 16]);
    let split = Split { max_shard_bytes: 16, keys_alone: false };
    (0..blocks).fold(writer, tensor).write_set(dir, base, split).unwrap()
}

/// sgl-project/sglang#28209 and its kin, above.
#[test]
fn sglang_28209_a_missing_shard_is_an_error_with_its_name_and_the_remedy() {
    for gone in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let paths = write_set(dir.path(), "m", 4);
        fs::remove_file(&paths[gone]).unwrap();
        for given in &paths {
            let text = ShardSet::open(given).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{}: missing shard", paths[gone].display())), "{text}");
            assert!(text.contains("download"), "{text}");
        }
    }
}

#[test]
fn shards_of_another_set_are_refused_under_the_right_name_too() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths = write_set(dir.path(), "m", 3);
    let foreign = write_set(other.path(), "m", 4);
    fs::copy(&foreign[1], &paths[1]).unwrap();
    match ShardSet::open(&paths[0]).unwrap_err() {
        Error::ForeignShard { path, key, found, expected } => {
            assert_eq!(
                (path, key.as_str(), found.as_str(), expected.as_str()),
                (paths[1].clone(), "split.count", "4", "3")
            );
        }
        other => panic!("{other}"),
    }
}

/// Only the first shard has it.
#[test]
fn shards_give_the_architecture_from_whichever_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    for given in write_set(dir.path(), "m", 3) {
        let set = ShardSet::open(&given).unwrap();
        assert_eq!(set.metadata().str("general.architecture").unwrap(), "qwen4exp");
        assert_eq!(set.tensors().len(), 3);
    }
}

/// `split.no` counts from 0, file names from 1, and `split.tensors.count` is the set's total.
#[test]
fn shards_are_numbered_as_the_format_says() {
    let dir = tempfile::tempdir().unwrap();
    let paths = write_set(dir.path(), "m", 3);
    let says = |no: u16, tensors: i32| {
        Writer::new()
            .kv("split.no", no)
            .kv("split.count", 3u16)
            .kv("split.tensors.count", tensors)
            .tensor("blk.2.ffn_norm.weight", &[4], 0, vec![2; 16])
            .write_file(&paths[2])
            .unwrap();
        ShardSet::open(&paths[0]).map(|set| set.tensors().len()).map_err(|e| e.to_string())
    };
    assert_eq!(says(2, 3), Ok(3));
    assert!(says(3, 3).unwrap_err().contains("`split.no` is 3, expected 2"));
    assert!(says(2, 1).unwrap_err().contains("`split.tensors.count` is 1, expected 3"));
}

/// The vLLM report on FP8_PB_WO: an unknown quantisation was read as something else.
#[test]
fn vllm_fp8_pb_wo_a_foreign_tensor_type_is_refused_with_tensor_and_type() {
    let mut raw = Writer::new()
        .kv("general.architecture", Value::String("qwen4exp".into()))
        .tensor("blk.0.attn_qkv.weight", &[32, 2], 8, vec![0; 68])
        .to_raw()
        .unwrap();
    raw.tensors[0].type_id = 200;
    let error = ShardSet::from_vec("m.gguf", raw.to_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "m.gguf: tensor `blk.0.attn_qkv.weight`: unsupported type 200, unknown to this build; pick another quantisation"
    );
}
