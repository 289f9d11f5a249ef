//! Tensors: presence, shape, type, plausible values.

use cudafast_gguf::type_layout;
use cudafast_model::{Error, Mixer};
use cudafast_quant::{format_by_name, formats};

use crate::fixture::{EXPERTS, FF, Fixture, H, ROW_WIDTH, USED_ROWS, V, refusal, says};

/// What a target spoilt in one way is refused with.
fn spoilt(spoil: impl FnOnce(&mut Fixture)) -> (Error, String) {
    let mut target = Fixture::target();
    spoil(&mut target);
    let (error, text) = refusal(target.bind());
    says(&text, &["fixture.gguf"]);
    (error, text)
}

/// Norms, taps, decays, router: F32 in every file.
fn is_f32_only(name: &str) -> bool {
    let part = name.rsplit_once("blk.").map_or(name, |(_, part)| part.split_once('.').unwrap().1);
    part.contains("norm")
        || part.starts_with("ssm_") && part != "ssm_out.weight"
        || part.starts_with("ffn_gate_inp")
        || part == "ple_conv1d.weight"
}

#[test]
fn each_tensor_is_missed_by_name() {
    let target = Fixture::target();
    for t in &target.tensors {
        let mut without = target.clone();
        without.tensors.retain(|other| other.name != t.name);
        let (error, text) = refusal(without.bind());
        assert!(matches!(error, Error::MissingTensor { .. }));
        says(&text, &["fixture.gguf", &format!("missing tensor `{}`", t.name)]);
        if t.name != "per_layer_token_embd.weight" {
            says(&text, &[&format!("expected ne {:?}", t.ne)]);
        }
    }
}

#[test]
fn each_tensor_of_another_shape_is_refused_with_both_shapes() {
    let target = Fixture::target();
    for t in &target.tensors {
        let wider = [&[t.ne[0] + 32][..], &t.ne[1..]].concat();
        let deeper = [&t.ne[..], &[2]].concat();
        for ne in [wider, deeper] {
            let mut other = target.clone();
            other.tensor(&t.name).reshape(&ne);
            let (error, text) = refusal(other.bind());
            assert!(matches!(error, Error::TensorShape { .. }), "{text}");
            says(&text, &["fixture.gguf", &format!("`{}` has ne {ne:?}, expected [{}", t.name, t.ne[0])]);
        }
    }
}

#[test]
fn a_tensor_that_nothing_asks_for_is_refused_by_name() {
    for name in ["blk.4.attn_q.weight", "blk.3.nextn.enorm.weight", "blk.3.attn_qkv.weight", "rope_freqs.weight"] {
        let (error, text) = spoilt(|f| f.random(name, &[8]));
        assert!(matches!(error, Error::UnexpectedTensor { .. }));
        says(&text, &[&format!("unexpected tensor `{name}`"), "[8]"]);
    }
}

#[test]
fn every_matrix_may_have_every_format_that_divides_its_row() {
    for format in formats().iter().filter(|f| f.name != "F32" && !["PQ2_0", "PTQ1_0"].contains(&f.name)) {
        let mut target = Fixture::target();
        let mut changed = 0;
        for t in target.tensors.iter_mut().filter(|t| !is_f32_only(&t.name)) {
            let Some(row) = format.row_bytes(t.ne[0] as usize) else { continue };
            let rows: u64 = t.ne[1..].iter().product();
            (t.type_id, t.bytes) = (format.ggml_id, vec![0; row * rows as usize]);
            changed += 1;
        }
        assert!(changed > 20, "{}", format.name);
        let (_, weights) = target.bind().unwrap_or_else(|e| panic!("{}: {e}", format.name));
        assert_eq!(weights.output.format.name, format.name);
        assert_eq!(weights.layers[0].moe.gate.format.name, format.name);
    }
}

#[test]
fn gate_up_and_down_of_one_block_may_differ() {
    let mut target = Fixture::target();
    for (part, name) in [("gate", "Q4_K"), ("up", "Q5_K"), ("down", "Q5_1")] {
        let format = format_by_name(name).unwrap();
        let t = target.tensor(&format!("blk.2.ffn_{part}_exps.weight"));
        let row = format.row_bytes(t.ne[0] as usize).unwrap();
        let rows: u64 = t.ne[1..].iter().product();
        (t.type_id, t.bytes) = (format.ggml_id, vec![0; row * rows as usize]);
    }
    let (_, weights) = target.bind().unwrap();
    let moe = &weights.layers[2].moe;
    assert_eq!((moe.gate.format.name, moe.up.format.name, moe.down.format.name), ("Q4_K", "Q5_K", "Q5_1"));
    assert_eq!((moe.gate.experts, moe.gate.rows, moe.gate.cols), (EXPERTS as usize, FF as usize, H as usize));
    assert_eq!((moe.down.rows, moe.down.cols), (H as usize, FF as usize));
}

#[test]
fn each_f32_tensor_in_another_type_is_refused() {
    let target = Fixture::target();
    let mut seen = 0;
    for t in target.tensors.iter().filter(|t| is_f32_only(&t.name)) {
        let mut other = target.clone();
        let half = other.tensor(&t.name);
        (half.type_id, half.bytes) = (1, vec![0; half.bytes.len() / 2]);
        let (error, text) = refusal(other.bind());
        assert!(matches!(error, Error::TensorType { .. }), "{text}");
        says(&text, &["fixture.gguf", &format!("`{}` has type F16 (1), allowed F32 only", t.name)]);
        seen += 1;
    }
    assert_eq!(seen, 4 * 4 + 3 * 6 + 4 + 4 + 1);
}

#[test]
fn a_type_that_cannot_be_computed_with_is_refused_with_those_that_can() {
    let nvfp4 = type_layout(40).unwrap();
    let (error, text) = spoilt(|f| {
        let t = f.tensor("output.weight");
        (t.type_id, t.bytes) = (40, vec![0; (H * V / nvfp4.block_elems) as usize * nvfp4.block_bytes as usize]);
    });
    assert!(matches!(error, Error::TensorType { .. }));
    says(&text, &["`output.weight` has type NVFP4 (40)", "Q8_0", "Q4_K", "BF16"]);
}

#[test]
fn ternary_experts_are_refused_because_they_need_the_rotation() {
    for (id, name, bytes) in [(142, "PQ2_0", 34), (143, "PTQ1_0", 28)] {
        let (error, text) = spoilt(|f| {
            let t = f.tensor("blk.2.ffn_up_exps.weight");
            (t.type_id, t.bytes) = (id, vec![0; (H / 128 * FF * EXPERTS) as usize * bytes]);
        });
        assert!(matches!(error, Error::RotatedExperts { .. }));
        let parts =
            ["`blk.2.ffn_up_exps.weight`", name, "needs the rotation of lowbitflash-rotation.md, not supported yet"];
        says(&text, &parts);
    }
}

#[test]
fn the_shared_experts_gate_may_have_rank_one_or_two() {
    let mut target = Fixture::target();
    target.tensor("blk.0.ffn_gate_inp_shexp.weight").ne = vec![H, 1];
    let (_, weights) = target.bind().unwrap();
    let (kept, dropped) = (&weights.layers[0].moe.shared_router, &weights.layers[1].moe.shared_router);
    assert_eq!((kept.rows, kept.cols, dropped.rows, dropped.cols), (1, 256, 1, 256));
    target.tensor("blk.0.ffn_gate_inp_shexp.weight").ne = vec![1, H];
    says(&refusal(target.bind()).1, &["has ne [1, 256], expected [256] or [256, 1]"]);
}

#[test]
fn embedding_and_output_have_one_row_per_token() {
    for name in ["token_embd.weight", "output.weight"] {
        let (error, text) = spoilt(|f| f.tensor(name).reshape(&[H, V - 1]));
        assert!(matches!(error, Error::Vocabulary { .. }));
        says(&text, &["vocabulary mismatch", name, "is 511", "expected 512"]);
    }
}

#[test]
fn the_ngram_table_ends_with_its_last_head_or_a_little_later() {
    for rows in [USED_ROWS, USED_ROWS + 255] {
        let mut target = Fixture::target();
        target.tensor("per_layer_token_embd.weight").reshape(&[ROW_WIDTH, rows]);
        assert_eq!(target.bind().unwrap().1.ngram_table.rows as u64, rows);
    }
    for rows in [USED_ROWS - 1, USED_ROWS + 256] {
        let (error, text) = spoilt(|f| f.tensor("per_layer_token_embd.weight").reshape(&[ROW_WIDTH, rows]));
        assert!(matches!(error, Error::Ngram { .. }));
        says(&text, &["per_layer_token_embd.weight", &format!("is {rows}"), "expected 36"]);
    }
}

#[test]
fn decays_are_finite_and_negative() {
    for value in [0.0, 0.5, f32::NAN, f32::NEG_INFINITY] {
        let (error, text) = spoilt(|f| f.tensor("blk.2.ssm_a").put(1, value));
        assert!(matches!(error, Error::NotDecay { index: 1, .. }));
        says(&text, &[&format!("`blk.2.ssm_a[1]` = {value}"), "not a -exp(A_log)"]);
    }
}

#[test]
fn vectors_are_finite() {
    for name in [
        "blk.0.ssm_dt.bias",
        "blk.1.ple_conv1d.weight",
        "blk.3.attn_q_norm.weight",
        "output_hc_norm.weight",
        "blk.0.ssm_norm.weight",
        "blk.2.ssm_conv1d.weight",
        "blk.3.ffn_gate_inp_shexp.weight",
    ] {
        for value in [f32::NAN, f32::INFINITY] {
            let last = if name.ends_with("bias") { 1 } else { 15 };
            let (error, text) = spoilt(|f| f.tensor(name).put(last, value));
            assert!(matches!(error, Error::NotFinite { .. }));
            says(&text, &[&format!("`{name}[{last}]` = {value}"), "expected a finite number"]);
        }
    }
}

/// Bounds of gguf-qwen4exp.md 7: under 15 % negative is a trained `1 + w`, from 25 % on it is raw `w`.
#[test]
fn norm_gains_without_the_baked_one_are_refused() {
    let with_negative = |n: usize| {
        let mut target = Fixture::target();
        (0..n).for_each(|i| target.tensor("blk.1.ple_norm_query.weight").put(i, -0.25));
        target.bind()
    };
    assert!(with_negative(76).is_ok()); // 14.8 % of 512
    for (n, raw) in [(77, false), (127, false), (128, true), (300, true)] {
        let (error, text) = refusal(with_negative(n));
        match raw {
            true => assert!(matches!(error, Error::ZeroCentredNorm { .. })),
            false => assert!(matches!(error, Error::AmbiguousNorm { .. })),
        }
        let counted = format!("{n} of 512 are negative");
        says(&text, &["`blk.1.ple_norm_query.weight`", "norm gains look zero-centred", &counted]);
    }
}

#[test]
fn the_delta_nets_norm_is_a_plain_gain_of_any_sign() {
    let mut target = Fixture::target();
    (0..16).for_each(|i| target.tensor("blk.0.ssm_norm.weight").put(i, -1.0));
    let (_, weights) = target.bind().unwrap();
    let Mixer::Gdn(gdn) = &weights.layers[0].mixer else { panic!("block 0 is a GDN block") };
    assert_eq!(gdn.norm.as_slice(), [-1.0; 16]);
    assert_eq!((gdn.a.as_slice(), gdn.a.len()), (&[-0.5, -3.0][..], 2));
}

#[test]
fn every_tensor_is_bound_exactly_once() {
    let target = Fixture::target();
    let (_, weights) = target.bind().unwrap();
    let mut bound: Vec<(String, usize)> = weights.tensors().iter().map(|(n, d)| (n.to_string(), d.len())).collect();
    let mut written: Vec<(String, usize)> = target.tensors.iter().map(|t| (t.name.clone(), t.bytes.len())).collect();
    bound.sort();
    written.sort();
    assert_eq!(bound, written);
}
