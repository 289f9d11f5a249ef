//! The files in this repository: two oracle sets and the default model, each with its head.

use std::{collections::BTreeMap, path::PathBuf};

use cudafast_gguf::ShardSet;
use cudafast_model::{DraftHead, Error, Family, Hyperparams, Inspection, LayerKind, WeightSource, Weights};

use crate::fixture::{refusal, says};

fn source(path: &str) -> WeightSource {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    ShardSet::open(&path).unwrap().into()
}

/// An oracle set, bound.
pub(crate) fn oracle(file: &str) -> (Hyperparams, Weights, WeightSource) {
    let source = source(&format!("testdata/oracle/{file}"));
    let hyperparams = Hyperparams::from_source(&source).unwrap();
    let weights = Weights::bind(&source, &hyperparams).unwrap();
    (hyperparams, weights, source)
}

const PAIRS: [(&str, &str); 3] = [
    ("testdata/oracle/tiny.gguf", "testdata/oracle/mtp-tiny.gguf"),
    ("testdata/oracle/mix-00003-of-00004.gguf", "testdata/oracle/mtp-mix.gguf"),
    ("models/tiny/tiny-story-UD-Q4_K_XL.gguf", "models/tiny/mtp-tiny-story-Q8_0.gguf"),
];

fn bind(target: &str, head: &str) -> Result<(Hyperparams, Weights, DraftHead), Error> {
    let (target, head) = (source(target), source(head));
    let hyperparams = Hyperparams::from_source(&target)?;
    let weights = Weights::bind(&target, &hyperparams)?;
    let head = DraftHead::bind(&head, &target, &hyperparams, &weights)?;
    Ok((hyperparams, weights, head))
}

#[test]
fn every_model_here_binds_with_its_head() {
    for (target, head) in PAIRS {
        let (hp, weights, head) = bind(target, head).unwrap();
        assert_eq!(hp.layers.len(), weights.layers.len());
        assert_eq!(hp.layers.iter().position(|&kind| kind == LayerKind::Attention), Some(3));
        assert!(head.shares_target);
        assert_eq!(head.tensors().len(), 32);
    }
}

#[test]
fn a_head_of_another_model_here_is_refused_with_what_differs() {
    for (i, (target, _)) in PAIRS.iter().enumerate() {
        for (_, head) in PAIRS.iter().enumerate().filter(|(j, _)| i != *j).map(|(_, pair)| pair) {
            let (error, text) = refusal(bind(target, head));
            assert!(matches!(error, Error::HeadMismatch { .. }), "{text}");
        }
    }
    let (_, text) = refusal(bind(PAIRS[0].0, PAIRS[1].1));
    says(&text, &["mtp-mix.gguf: draft head does not fit", "tiny.gguf", "`qwen4exp.block_count` is 5, expected 9"]);
    says(&text, &["`qwen4exp.embedding_length` is 256, expected 64 (the target's)"]);
}

#[test]
fn the_tiny_oracle_is_unlike_production_in_every_size() {
    let (hp, weights, _) = oracle("tiny.gguf");
    assert_eq!((hp.layers.len(), hp.hidden, hp.streams, hp.hyper_rank, hp.vocab), (8, 64, 4, 16, 512));
    assert_eq!((hp.gdn.qkv_channels(), hp.gdn.inner(), hp.gdn.head_dim), (160, 96, 16));
    assert_eq!((hp.ngram.heads(), hp.ngram.width(), hp.ngram.used_rows()), (16, 128, 2124));
    assert_eq!((weights.ngram_table.rows, weights.ngram_table.cols), (2176, 8));
    assert_eq!((hp.rms_eps, hp.stop_tokens()), (1e-6, vec![260]));
}

#[test]
fn the_default_model_stops_at_its_chat_end_and_its_document_end() {
    let (hp, ..) = bind(PAIRS[2].0, PAIRS[2].1).unwrap();
    assert_eq!((hp.vocab, hp.stop_tokens()), (4096, vec![4091, 4093]));
}

#[test]
fn types_are_each_tensors_own() {
    let (_, weights, source) = oracle("mix-00001-of-00004.gguf");
    let moe = |at: usize| {
        let moe = &weights.layers[at].moe;
        (moe.gate.format.name, moe.up.format.name, moe.down.format.name)
    };
    assert_eq!(moe(0), ("Q4_K", "Q4_K", "Q8_0"));
    assert_eq!(moe(1), ("Q4_K", "Q4_K", "Q5_1"));
    assert_eq!(moe(2), ("Q5_K", "Q5_K", "Q8_0"));
    assert_eq!(weights.ngram_table.format.name, "IQ4_NL");

    let types: serde_json::Value = {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle/mix.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let listed = Inspection::of(&source);
    assert_eq!(listed.tensors.len(), types["types"].as_object().unwrap().len());
    for tensor in &listed.tensors {
        assert_eq!(types["types"][&tensor.name], tensor.type_name, "{}", tensor.name);
        assert!(tensor.family.is_some(), "{}", tensor.name);
    }
}

#[test]
fn a_listing_sums_types_by_family() {
    let (_, weights, source) = oracle("mix-00001-of-00004.gguf");
    let listed = Inspection::of(&source);
    let experts = &listed.families[0];
    assert_eq!((experts.family, experts.tensors), (Some(Family::RoutedExperts), 12));
    let types: BTreeMap<&str, usize> = experts.types.iter().map(|t| (t.name, t.tensors)).collect();
    assert_eq!(types, BTreeMap::from([("Q4_K", 6), ("Q5_1", 2), ("Q5_K", 2), ("Q8_0", 2)]));
    assert_eq!(experts.bytes, experts.types.iter().map(|t| t.bytes).sum::<u64>());

    assert_eq!(listed.families.iter().map(|f| f.tensors).sum::<usize>(), 113);
    assert_eq!(listed.families.iter().map(|f| f.bytes).sum::<u64>(), listed.bytes);
    assert_eq!(weights.tensors().iter().map(|(_, data)| data.len() as u64).sum::<u64>(), listed.bytes);
}

#[test]
fn a_listing_shows_what_binding_would_refuse() {
    let mut spoilt = crate::fixture::Fixture::target();
    spoilt.random("rope_freqs.weight", &[8]);
    spoilt.remove("qwen4exp.block_count");
    let listed = Inspection::of(&spoilt.source());
    let other = listed.families.last().unwrap();
    assert_eq!((other.family, other.tensors, other.bytes, other.types[0].name), (None, 1, 32, "F32"));
}
