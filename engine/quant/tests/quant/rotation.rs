//! The rotation against `rotation.json`, and its refusals (lowbitflash-rotation.md 3, 5, 6).

use crate::vectors::{bits, f32s, hex, i8s, i32s, vectors};
use cudafast_quant::{
    ActRows, Error, Rotation, UnpackedRow, converter_segments, converter_signs, dot_ref, format_by_name,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn sha256(bytes: impl IntoIterator<Item = u8>) -> String {
    let bytes: Vec<u8> = bytes.into_iter().collect();
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn le_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn le_i32(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn usize_of(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn segments_of(value: &Value) -> Vec<i32> {
    value.as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as i32).collect()
}

fn plus_minus(signs: &[i32]) -> String {
    signs.iter().map(|&s| if s > 0 { '+' } else { '-' }).collect()
}

/// Input and signs as the cases state them. All layouts there keep rows end to end.
fn lcg(rows: usize, width: usize) -> (Vec<f32>, Vec<i32>) {
    let mut state = 0x9E37_79B9_u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let value = |k: usize, r: u32| (r >> 8) as f32 / 8_388_608.0 * (0.25 + 0.5 * (k % 7) as f32);
    let x = (0..rows * width).map(|i| value(i % width, draw())).collect();
    let signs = (0..width).map(|_| if draw() & 1 == 1 { 1 } else { -1 }).collect();
    (x, signs)
}

#[test]
fn every_case_rotates_and_quantises_to_the_hashes_of_the_vectors() {
    let file = vectors("rotation.json");
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let (rows, width) = (usize_of(&case["rows"]), usize_of(&case["width"]));
        let (x, signs) = lcg(rows, width);
        assert_eq!(bits(&x[..8]), bits(&f32s(&case["x_first8_f32"])), "{name}");
        assert_eq!(sha256(le_i32(&signs)), case["signs_sha256_i32le"], "{name}");

        let rotation = Rotation::new(name, &segments_of(&case["segments"]), &signs).unwrap();
        let (mut y, mut acts) = (Vec::new(), ActRows::new());
        rotation.quantise_into(&x, &mut y, &mut acts).unwrap();
        let row = |i: usize| acts.row(i);
        let all = || 0..acts.rows();
        assert_eq!(acts.rows(), rows, "{name}");
        assert_eq!(bits(&y[..32]), bits(&f32s(&case["y_first32_f32"])), "{name}");
        assert_eq!(sha256(le_f32(&y)), case["y_sha256_f32le"], "{name}");
        assert_eq!(sha256(all().flat_map(|i| row(i).q).map(|q| q.cast_unsigned())), case["xq_sha256"], "{name}");
        assert_eq!(sha256(all().flat_map(|i| le_f32(row(i).d))), case["xs_sha256_f32le"], "{name}");
        assert_eq!(sha256(all().flat_map(|i| le_i32(row(i).sum))), case["xsum_sha256_i32le"], "{name}");
    }
}

#[test]
fn the_complete_case_matches_from_signs_to_ternary_dots() {
    let file = vectors("rotation.json");
    let case = &file["full_640"];
    let signs: Vec<i32> = i8s(&case["signs_i8"]).into_iter().map(i32::from).collect();
    let segments = segments_of(&case["segments"]);
    let name = case["weight_name"].as_str().unwrap();
    assert_eq!(converter_segments(640), segments);
    assert_eq!(converter_signs(name, &segments), signs);

    let rotation = Rotation::new(name, &segments, &signs).unwrap();
    let (mut y, mut acts) = (Vec::new(), ActRows::new());
    rotation.quantise_into(&f32s(&case["x_f32"]), &mut y, &mut acts).unwrap();
    assert_eq!(bits(&y), bits(&f32s(&case["y_f32"])));
    assert_eq!(acts.row(0).q, i8s(&case["xq_i8"]));
    assert_eq!(bits(acts.row(0).d), bits(&f32s(&case["xs_f32"])));
    assert_eq!(acts.row(0).sum, i32s(&case["xsum_i32"]));

    // The converter folds a weight row with the same operation: multiply by the signs, then transform.
    let mut folded = f32s(&case["W_f32"]);
    rotation.apply(&mut folded).unwrap();
    assert_eq!(bits(&folded), bits(&f32s(&case["W_folded_f32"])));
    let pq2_0 = format_by_name("PQ2_0").unwrap();
    let mut raw = Vec::new();
    pq2_0.encode(&folded, &mut raw).unwrap();
    assert_eq!(raw, hex(&case["W_folded_pq2_0_raw"]));

    let mut row = UnpackedRow::new();
    let mut dots = Vec::new();
    for (bytes, want) in raw.chunks_exact(170).zip(case["y_dot_dequant_f64"].as_array().unwrap()) {
        pq2_0.unpack_row(bytes, &mut row);
        dots.push(dot_ref::<1>(&row, acts.row(0)));
        let want: f64 = want.as_str().unwrap().parse().unwrap();
        // All of the difference is the rounding of the activations to int8.
        let size = row.wa[0].abs() as f64 * y.iter().map(|v| f64::from(v * v)).sum::<f64>().sqrt();
        assert!((f64::from(dot_ref::<8>(&row, acts.row(0))) - want).abs() < 2e-2 * size.max(want.abs()));
    }
    assert_eq!(bits(&dots), bits(&f32s(&case["int_dot_fma_f32"])));
}

#[test]
fn converter_signs_match_their_samples() {
    for sample in vectors("rotation.json")["converter_signs"]["samples"].as_array().unwrap() {
        let segments = converter_segments(usize_of(&sample["width"]));
        assert_eq!(segments, segments_of(&sample["segments"]));
        let signs = converter_signs(sample["name"].as_str().unwrap(), &segments);
        assert_eq!(plus_minus(&signs[..64]), sample["first64"]);
        assert_eq!(sha256(le_i32(&signs)), sample["sha256_i32le"]);
    }
}

#[test]
fn the_transform_is_the_sylvester_matrix_and_its_own_inverse() {
    let n = 128;
    let rotation = Rotation::new("t", &[n], &[1; 128]).unwrap();
    for column in [0, 1, 77, 127] {
        let mut unit = [0.0; 128];
        unit[column] = 1.0;
        rotation.apply(&mut unit).unwrap();
        for (r, v) in unit.iter().enumerate() {
            let want = if (r & column).count_ones() % 2 == 0 { 1.0 } else { -1.0 } / (n as f32).sqrt();
            assert!((v - want).abs() < 1e-7, "row {r} column {column}");
        }
        rotation.apply(&mut unit).unwrap();
        assert!(unit.iter().enumerate().all(|(i, v)| (v - f32::from(u8::from(i == column))).abs() < 1e-6));
    }
}

/// lowbitflash-rotation.md 7: each of these must show in the output.
#[test]
fn a_flipped_sign_or_two_swapped_segments_change_the_result() {
    let (x, mut signs) = lcg(1, 640);
    let turned = |segments: &[i32], signs: &[i32]| {
        let mut y = x.clone();
        Rotation::new("t", segments, signs).unwrap().apply(&mut y).unwrap();
        y
    };
    let right = turned(&[512, 128], &signs);
    assert_ne!(right, turned(&[128, 512], &signs));
    let negated: Vec<i32> = signs.iter().map(|s| -s).collect();
    assert_eq!(turned(&[512, 128], &negated), right.iter().map(|v| -v).collect::<Vec<_>>());
    signs[600] = -signs[600];
    let flipped = turned(&[512, 128], &signs);
    assert_eq!(right[..512], flipped[..512]);
    assert!((512..640).all(|i| right[i] != flipped[i]), "every output of that segment moves");
}

#[test]
fn two_tensors_share_an_input_only_when_segments_and_signs_are_equal() {
    let turn = |name: &str, segments: &[i32], sign: i32| Rotation::new(name, segments, &[sign; 640]).unwrap();
    let gate = turn("gate", &[512, 128], 1);
    assert!(gate.is_same_turn(&turn("up", &[512, 128], 1)));
    assert!(!gate.is_same_turn(&turn("up", &[128, 512], 1)));
    assert!(!gate.is_same_turn(&turn("up", &[512, 128], -1)));
    assert_eq!((gate.width(), gate.segments(), gate.signs()[639]), (640, &[512, 128][..], 1.0));
}

#[test]
fn segment_lists_outside_the_rules_are_refused_by_tensor_name() {
    let lists: [&[i32]; 9] = [&[], &[64], &[2560], &[2048], &[384], &[0], &[-128], &[512, 100], &[128; 9]];
    for list in lists {
        let sum = list.iter().map(|&n| n.max(0) as usize).sum();
        let error = Rotation::new("blk.3.ffn_down_exps.weight", list, &vec![1; sum]).unwrap_err();
        assert!(matches!(&error, Error::RotationSegments { found, .. } if found == list), "{list:?}");
        assert!(error.to_string().starts_with("blk.3.ffn_down_exps.weight: "), "{error}");
    }
    Rotation::new("t", &[128; 8], &[1; 1024]).unwrap();
}

#[test]
fn signs_that_do_not_cover_the_row_or_are_not_signs_are_refused() {
    let count = |n: usize| Rotation::new("t", &[512, 128], &vec![1; n]).unwrap_err();
    assert!(matches!(count(0), Error::RotationSignCount { found: 0, wanted: 640, .. }));
    assert!(matches!(count(641), Error::RotationSignCount { found: 641, wanted: 640, .. }));
    for bad in [0, 2, -2, i32::MIN] {
        let mut signs = vec![-1; 640];
        signs[639] = bad;
        let error = Rotation::new("t", &[512, 128], &signs).unwrap_err();
        assert!(matches!(error, Error::RotationSign { index: 639, found, .. } if found == bad));
    }
}

#[test]
fn rows_of_another_width_are_refused_and_stay_as_they_were() {
    let rotation = Rotation::new("t", &[512, 128], &[-1; 640]).unwrap();
    let mut x = vec![1.0; 641];
    assert!(matches!(rotation.apply(&mut x), Err(Error::RotationWidth { values: 641, width: 640, .. })));
    assert_eq!(x, vec![1.0; 641]);
    let mut acts = ActRows::new();
    assert!(rotation.quantise_into(&x[..512], &mut Vec::new(), &mut acts).is_err());
    assert_eq!(acts.rows(), 0);
}
