//! Synthetic models: the published plan, the same bytes from file and memory, what is refused.

use cudafast_gguf::{ShardSet, Split};
use cudafast_model::{
    DraftHead, Error, Hyperparams, Inspection, MemoryPlan, SynthFile, SynthShape, SynthSpec, SynthTypes, WeightSource,
    Weights,
};
use cudafast_quant::formats;

use crate::{
    fixture::{refusal, says},
    published::{listed, real},
};

fn no_step(_bytes: u64) -> std::io::Result<()> {
    Ok(())
}

/// Names, types and shapes, in the order of the file.
fn listing(file: &SynthFile) -> Vec<(String, u32, Vec<u64>, u64)> {
    let row = |t: &cudafast_model::SynthTensor| {
        (t.name().to_owned(), t.format().ggml_id, t.ne().to_vec(), t.byte_len() as u64)
    };
    file.tensors().iter().map(row).collect()
}

fn published(name: &str) -> Vec<(String, u32, Vec<u64>, u64)> {
    listed(name).into_iter().map(|t| (t.name, t.type_id, t.ne, t.bytes)).collect()
}

fn sorted(mut rows: Vec<(String, u32, Vec<u64>, u64)>) -> Vec<(String, u32, Vec<u64>, u64)> {
    rows.sort();
    rows
}

/// A model and its head, in memory.
fn filled(spec: &SynthSpec) -> (WeightSource, WeightSource) {
    let fill = |file: SynthFile| WeightSource::from(file.fill(&no_step).unwrap());
    (fill(spec.model().unwrap()), fill(spec.draft_head().unwrap()))
}

/// Binds both, and lists what was found in them.
fn bind(model: &WeightSource, head: &WeightSource) -> (Hyperparams, Weights, DraftHead) {
    let hyperparams = Hyperparams::from_source(model).unwrap();
    let weights = Weights::bind(model, &hyperparams).unwrap();
    let head = DraftHead::bind(head, model, &hyperparams, &weights).unwrap();
    (hyperparams, weights, head)
}

#[test]
fn the_whole_plan_is_the_published_one_tensor_by_tensor() {
    let spec = SynthSpec::shipped();
    let model = spec.model().unwrap();
    assert_eq!(listing(&model), published("ud_q4_k_xl"));
    assert_eq!(model.tensor_bytes(), 111_323_630_080);
    let head = spec.draft_head().unwrap();
    assert_eq!(sorted(listing(&head)), sorted(published("mtp_q8_0")));
    assert_eq!(Hyperparams::from_metadata(model.metadata()).unwrap(), real());
    assert_eq!(spec.hyperparams().unwrap(), real());
}

#[test]
fn the_shards_are_cut_where_the_published_set_is() {
    let spec = SynthSpec::shipped();
    let model = spec.model().unwrap();
    let split = Split { max_shard_bytes: 50_000_000_000, keys_alone: true };
    let files = model.writer(&no_step).outline_set(&spec.set_name(), split).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[0], "Qwen3.8-Flash-Next-UD-Q4_K_XL-00001-of-00004.gguf");
    assert_eq!(names[3], "Qwen3.8-Flash-Next-UD-Q4_K_XL-00004-of-00004.gguf");
    let bytes: Vec<u64> = files.iter().skip(1).map(|(_, bytes)| *bytes).collect();
    assert_eq!(bytes, [49_859_583_136, 49_376_141_504, 12_087_983_520]);
}

#[test]
fn a_set_on_disk_has_the_bytes_of_the_one_in_memory() {
    let spec = SynthSpec::small();
    let dir = tempfile::tempdir().unwrap();
    let (model, head) = (spec.model().unwrap(), spec.draft_head().unwrap());
    let split = Split { max_shard_bytes: 500_000, keys_alone: true };
    let paths = model.writer(&no_step).write_set(dir.path(), &spec.set_name(), split).unwrap();
    assert!(paths.len() > 3, "{paths:?}");
    let outlined = model.writer(&no_step).outline_set(&spec.set_name(), split).unwrap();
    for (path, (name, bytes)) in paths.iter().zip(&outlined) {
        assert_eq!((path.file_name().unwrap().to_str().unwrap(), path.metadata().unwrap().len()), (&name[..], *bytes));
    }
    let head_path = dir.path().join(spec.draft_head_name());
    head.writer(&no_step).write_file(&head_path).unwrap();
    assert_eq!(head_path.metadata().unwrap().len(), head.writer(&no_step).outline_file().unwrap());

    let (in_memory, head_in_memory) = filled(&spec);
    for (path, memory) in [(dir.path(), &in_memory), (&head_path, &head_in_memory)] {
        let file = WeightSource::from(ShardSet::open(path).unwrap());
        assert_eq!(file.tensors().count(), memory.tensors().count());
        for (f, m) in file.tensors().zip(memory.tensors()) {
            assert_eq!((f.name, f.ne, f.type_id), (m.name, m.ne, m.type_id));
            assert!(f.data[..] == m.data[..], "{}", f.name);
            assert!(memory.tensor(f.name).unwrap().data[..] == m.data[..], "{}", f.name);
        }
        for (key, value) in memory.metadata().iter() {
            assert_eq!(file.metadata().get(key), Some(value), "{key}");
        }
    }
    bind(&in_memory, &head_in_memory);
    bind(&ShardSet::open(dir.path()).unwrap().into(), &ShardSet::open(&head_path).unwrap().into());
}

#[test]
fn every_layer_count_vocabulary_and_type_binds() {
    let small = SynthSpec::small();
    for layers in 2..=9 {
        let (model, head) = filled(&SynthSpec { layers, ..small });
        let (hyperparams, ..) = bind(&model, &head);
        assert_eq!(hyperparams.layers.len(), layers);
    }
    for vocab in [289, 290, 1000] {
        let (model, head) = filled(&SynthSpec { vocab, ngram_rows: 5000, ..small });
        assert_eq!(bind(&model, &head).0.vocab, vocab);
    }
    let names = formats().iter().map(|f| f.name).chain(["ud-q4_k_xl"]);
    for types in names.filter_map(SynthTypes::by_name) {
        let (model, head) = filled(&SynthSpec { types, ..small });
        let (_, weights, _) = bind(&model, &head);
        let (name, format) = (types.to_string(), weights.layers[0].moe.gate.format.name);
        assert!(name == "UD-Q4_K_XL" && format == "Q4_K" || name == format, "{name}: {format}");
    }
}

#[test]
fn another_seed_or_name_gives_other_bytes() {
    let spec = SynthSpec::small();
    let (a, b) = (filled(&spec).0, filled(&SynthSpec { seed: 1, ..spec }).0);
    for (x, y) in a.tensors().zip(b.tensors()) {
        assert!(x.data[..] != y.data[..], "{}", x.name);
    }
    let bytes = |name| a.tensor(name).unwrap().data;
    assert!(bytes("blk.0.attn_qkv.weight")[..] != bytes("blk.1.attn_qkv.weight")[..]);
}

#[test]
fn an_outline_plans_and_lists_as_the_whole_does() {
    let spec = SynthSpec::small();
    let (model, head) = filled(&spec);
    let outline = |file: SynthFile| WeightSource::from(file.outline().unwrap());
    let (thin, thin_head) = (outline(spec.model().unwrap()), outline(spec.draft_head().unwrap()));
    assert_eq!(Inspection::of(&thin), Inspection::of(&model));
    let plan = |model: &WeightSource, head: &WeightSource| {
        let (hyperparams, weights, head) = bind(model, head);
        MemoryPlan::new(&hyperparams, &weights, Some(&head), 64, 2)
    };
    assert_eq!(plan(&thin, &thin_head), plan(&model, &head));
    // Vectors alone are made, also where matrices have the vectors' format.
    let f32 = SynthSpec { types: SynthTypes::by_name("F32").unwrap(), ..spec };
    for tensor in outline(f32.model().unwrap()).tensors() {
        assert_eq!(tensor.data.iter().any(|byte| *byte != 0), tensor.ne.len() == 1, "{}", tensor.name);
    }
}

#[test]
fn a_step_that_fails_ends_the_work_and_is_the_cause() {
    let stop = |_bytes| Err(std::io::Error::other("enough"));
    let (error, text) = refusal(SynthSpec::small().model().unwrap().fill(&stop));
    assert!(matches!(error, Error::SynthFill { .. }));
    says(&text, &["synthetic model (4 layers, UD-Q4_K_XL, seed 0)", "output.weight"]);
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "enough");
}

#[test]
fn numbers_that_no_model_can_have_are_refused() {
    let small = SynthSpec::small();
    assert_eq!(small.shape, SynthShape::Small);
    for (spec, parts) in [
        (SynthSpec { layers: 1, ..small }, ["layers: 1", "2 to 4096"]),
        (SynthSpec { layers: 5000, ..small }, ["layers: 5000", "2 to 4096"]),
        (SynthSpec { vocab: 288, ..small }, ["vocabulary: 288", "289 "]),
        (SynthSpec { vocab: 2 << 20, ..small }, ["vocabulary: 2097152", "to 1048576"]),
        (SynthSpec { ngram_rows: 63, ..small }, ["n-gram rows: 63", "64 to"]),
        (SynthSpec { ngram_rows: u64::MAX, ..small }, ["n-gram rows: 18446744073709551615", "64 to"]),
        (SynthSpec { ngram_rows: (4 << 31) + 1, ..small }, ["n-gram rows: 8589934593", "64 to 8589934592"]),
        (SynthSpec { ngram_rows: (16 << 31) + 1, ..SynthSpec::shipped() }, ["n-gram rows: 34359738369", "34359738368"]),
    ] {
        let (error, text) = refusal(spec.model());
        assert!(matches!(error, Error::Synth { .. }));
        says(&text, &parts);
    }
    assert!(SynthTypes::by_name("PQ2_0").is_none() && SynthTypes::by_name("Q9").is_none());
}
