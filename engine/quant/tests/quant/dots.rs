//! Integer dots against `dots.json` (quant-formats.md 5).

use crate::vectors::{bits, f32s, hex, i8s, i32s, vectors};
use cudafast_quant::{ActRow, ActRows, GROUP, UnpackedRow, dot_ref, format_by_name};
use serde_json::Value;

struct Case {
    name: String,
    weights: UnpackedRow,
    activations: ActRows,
    want: Value,
}

fn cases() -> Vec<Case> {
    let Value::Object(all) = vectors("dots.json") else { panic!("dots.json is an object") };
    assert_eq!(all.len(), 20);
    all.into_iter()
        .map(|(name, want)| {
            let mut weights = UnpackedRow::new();
            format_by_name(&name).unwrap().unpack_row(&hex(&want["raw"]), &mut weights);
            let x = f32s(&want["x_f32"]);
            Case { activations: ActRows::quantise(&x, x.len()).unwrap(), name, weights, want }
        })
        .collect()
}

/// The vectors' second result: order (i) with every product rounded before its sum.
fn unfused(w: &UnpackedRow, a: ActRow<'_>) -> f32 {
    let mut acc = 0.0;
    let span = GROUP / w.halves;
    for g in 0..w.cols() / GROUP {
        let halves = (w.halves * g..).zip((GROUP * g..GROUP * (g + 1)).step_by(span));
        for (s, at) in halves.clone() {
            let dot: i32 = (at..at + span).map(|i| i32::from(w.codes[i]) * i32::from(a.q[i])).sum();
            acc += w.wa[s] * a.d[g] * dot as f32;
        }
        if !w.wb.is_empty() {
            for (s, at) in halves {
                let sum: i32 = a.q[at..at + span].iter().map(|&q| i32::from(q)).sum();
                acc += w.wb[s] * a.d[g] * sum as f32;
            }
        }
    }
    acc
}

#[test]
fn quantised_rows_match_the_vectors_of_every_format() {
    for Case { name, activations, want, .. } in cases() {
        let row = activations.row(0);
        assert_eq!(row.q, i8s(&want["xq_i8"]), "{name}");
        assert_eq!(bits(row.d), bits(&f32s(&want["xs_f32"])), "{name}");
        assert_eq!(row.sum, i32s(&want["xsum_i32"]), "{name}");
    }
}

#[test]
fn one_lane_matches_the_fused_and_unfused_vectors_bit_for_bit() {
    for Case { name, weights, activations, want } in cases() {
        let row = activations.row(0);
        assert_eq!(bits(&[dot_ref::<1>(&weights, row)]), bits(&f32s(&want["int_dot_fma_f32"])), "{name}");
        assert_eq!(bits(&[unfused(&weights, row)]), bits(&f32s(&want["int_dot_nofma_f32"])), "{name}");
    }
}

#[test]
fn more_lanes_are_as_near_the_exact_dot_as_one() {
    for Case { name, weights, activations, want } in cases() {
        let exact: f64 = want["int_dot_exact_f64"].as_str().unwrap().parse().unwrap();
        let row = activations.row(0);
        for dot in [dot_ref::<1>(&weights, row), dot_ref::<8>(&weights, row), dot_ref::<16>(&weights, row)] {
            // Sixteen groups of folds, each off by at most 2^-24 of a running sum that is of the order of the result
            // or of 10 where terms cancel.
            assert!((f64::from(dot) - exact).abs() < 1e-5 * exact.abs().max(10.0), "{name}: {dot} for {exact}");
        }
    }
}

/// A row of four groups with scales `wa`, code 1 at `ones` and 0 elsewhere, against activations of 1.
fn sparse<const LANES: usize>(wa: [f32; 4], ones: &[usize]) -> f32 {
    let codes = (0..4 * GROUP).map(|i| i8::from(ones.contains(&i))).collect();
    let w = UnpackedRow { codes, wa: wa.to_vec(), wb: Vec::new(), halves: 1 };
    dot_ref::<LANES>(&w, ActRow { q: &[1; 4 * GROUP], d: &[1.0; 4], sum: &[32; 4] })
}

#[test]
fn lanes_and_tree_are_folded_in_the_documented_order() {
    // 2^24 + 1 is not an f32 and rounds back to 2^24: ones are kept only where they meet each other first.
    let big = 16_777_216.0_f32;
    let wa = [big, 1.0, 1.0, 1.0];
    // Lane 0 of groups 1 and 3: one by one onto lane 0 of group 0, but together in lane 8 of sixteen.
    assert_eq!(sparse::<8>(wa, &[0, 32, 96]), big);
    assert_eq!(sparse::<16>(wa, &[0, 32, 96]), big + 2.0);
    assert_eq!(sparse::<1>(wa, &[0, 32, 96]), big);
    // Lanes 0 and 4 of group 1: each meets lane 0 alone (steps 8 and 4).
    assert_eq!(sparse::<8>(wa, &[0, 32, 48]), big);
    assert_eq!(sparse::<16>(wa, &[0, 32, 48]), big);
    assert_eq!(sparse::<1>(wa, &[0, 32, 48]), big + 2.0, "one exact partial for the group");
    // Lanes 2 and 6 of group 1 meet at step 4; lanes 1 and 2 only at lane 0, at steps 1 and 2.
    assert_eq!(sparse::<8>(wa, &[0, 40, 56]), big + 2.0);
    assert_eq!(sparse::<16>(wa, &[0, 40, 56]), big + 2.0);
    assert_eq!(sparse::<8>(wa, &[0, 36, 40]), big);
    // Lanes 1 and 3 meet at step 2.
    assert_eq!(sparse::<8>(wa, &[0, 36, 44]), big + 2.0);
    assert_eq!(sparse::<16>(wa, &[0, 36, 44]), big + 2.0);
}

#[test]
fn offsets_are_folded_by_group_mod_eight_and_added_last() {
    let groups = 9;
    let q = vec![1_i8; GROUP * groups];
    let (d, sum) = (vec![1.0; groups], vec![32; groups]);
    let mut w = UnpackedRow { codes: vec![0; GROUP * groups], wa: vec![1.0; groups], wb: vec![0.0; groups], halves: 1 };
    w.codes[0] = 1;
    // Groups 0 and 8 share an accumulator: 2^24 * 32 takes a 1 (32 / 32) away unseen, whichever comes first.
    w.wb[0] = 16_777_216.0;
    w.wb[8] = 1.0 / 32.0;
    w.wb[1] = -16_777_216.0;
    let a = ActRow { q: &q, d: &d, sum: &sum };
    assert_eq!(dot_ref::<8>(&w, a), 1.0);
    assert_eq!(dot_ref::<16>(&w, a), 1.0);
    assert_eq!(dot_ref::<1>(&w, a), 1.0, "in order, the codes' 1 is lost in the offset and the last 1 stays");
}

#[test]
#[should_panic(expected = "weight and activation row lengths")]
fn rows_of_different_lengths_have_no_dot() {
    let w = UnpackedRow { codes: vec![0; 64], wa: vec![0.0; 2], wb: Vec::new(), halves: 1 };
    let a = ActRows::quantise(&[0.0; 32], 32).unwrap();
    let _ = dot_ref::<8>(&w, a.row(0));
}
