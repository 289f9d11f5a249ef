//! Activation quantisers against `activations.json` (quant-formats.md 4), and the edges the vectors do not reach.

use crate::vectors::{bits, f32s, hex, i8s, i32s, u16s, vectors};
use cudafast_quant::{
    ActRows, Error, GROUP,
    llama::{Q8_1, Q8_1Mmq, Q8K},
};

#[test]
fn the_group_of_32_quantiser_matches_the_vectors_bit_for_bit() {
    let file = vectors("activations.json");
    let want = &file["ds4_group32"];
    let rows = ActRows::quantise(&f32s(&file["x_f32"]), 256).unwrap();
    let row = rows.row(0);
    assert_eq!((rows.rows(), rows.cols()), (1, 256));
    assert_eq!(row.q, i8s(&want["q_i8"]));
    assert_eq!(bits(row.d), bits(&f32s(&want["d_f32"])));
    assert_eq!(row.sum, i32s(&want["sum_i32"]));
}

#[test]
fn the_other_engines_quantisers_match_the_vectors_bit_for_bit() {
    let file = vectors("activations.json");
    let x = f32s(&file["x_f32"]);
    let groups = x.as_chunks::<32>().0;

    let vector = groups.iter().map(Q8_1::quantise).collect::<Vec<_>>();
    assert_eq!(vector.iter().flat_map(|g| g.q).collect::<Vec<_>>(), i8s(&file["q8_1_cuda"]["q_i8"]));
    assert_eq!(vector.iter().map(|g| g.d).collect::<Vec<_>>(), u16s(&file["q8_1_cuda"]["d_f16"]));
    assert_eq!(vector.iter().map(|g| g.s).collect::<Vec<_>>(), u16s(&file["q8_1_cuda"]["s_f16"]));

    let matrix = groups.iter().map(Q8_1Mmq::quantise).collect::<Vec<_>>();
    let scales = matrix.iter().map(|g| g.d).collect::<Vec<_>>();
    assert_eq!(matrix.iter().flat_map(|g| g.q).collect::<Vec<_>>(), i8s(&file["q8_1_mmq_d4"]["q_i8"]));
    assert_eq!(bits(&scales), bits(&f32s(&file["q8_1_mmq_d4"]["d_f32"])));

    let block = Q8K::quantise(x.first_chunk().unwrap());
    let sums = hex(&file["q8_k"]["bsums_i16"]);
    assert_eq!(block.q.to_vec(), i8s(&file["q8_k"]["q_i8"]));
    assert_eq!(bits(&[block.d]), bits(&f32s(&file["q8_k"]["d_f32"])));
    assert_eq!(block.sums.map(i16::to_le_bytes).as_flattened(), sums);
    assert_eq!(Q8K::quantise(&[0.0; 256]), Q8K { q: [0; 256], d: 0.0, sums: [0; 16] });
}

/// The rule as quant-formats.md 4a words it, with the language's own rounding.
fn quantise_group_ref(x: &[f32; GROUP]) -> ([i8; GROUP], f32) {
    let d = x.iter().fold(0.0_f32, |max, v| if v.abs() > max || v.is_nan() { v.abs() } else { max }) / 127.0;
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    (x.map(|v| (v * id).round_ties_even() as i8), d)
}

#[test]
fn every_tie_and_every_extreme_rounds_as_the_rule_says() {
    let tiny = f32::from_bits(1);
    let mut groups = vec![
        [0.0; GROUP],
        [-0.0; GROUP],
        [tiny; GROUP],                                                   // max / 127 rounds to zero
        std::array::from_fn(|i| i as f32 * 100.0 * tiny),                // 1 / d is infinite: zeros meet infinity
        std::array::from_fn(|i| (i as f32 - 16.0) * 2.0_f32.powi(-125)), // d is subnormal, 1 / d is not
        std::array::from_fn(|i| (i as f32 - 15.5) * f32::MAX / 16.0),
    ];
    // A largest value of 127 gives d = id = 1, so every x + 0.5 is a tie.
    for start in -127..127 {
        let mut group = [start as f32 + 0.5; GROUP];
        group[31] = 127.0;
        groups.push(group);
    }
    for x in groups {
        let rows = ActRows::quantise(&x, GROUP).unwrap();
        let (q, d) = quantise_group_ref(&x);
        assert_eq!(rows.row(0).q, q, "{x:?}");
        assert_eq!(bits(rows.row(0).d), bits(&[d]));
        assert_eq!(rows.row(0).sum, [q.iter().map(|&q| i32::from(q)).sum::<i32>()]);
    }
}

#[test]
fn a_value_that_is_not_finite_shows_in_its_own_group_only() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = [1.0; 3 * GROUP];
        x[40] = bad;
        let rows = ActRows::quantise(&x, 3 * GROUP).unwrap();
        let finite = rows.row(0).d.iter().map(|d| d.is_finite()).collect::<Vec<_>>();
        assert_eq!(finite, [true, false, true], "{bad}");
    }
}

#[test]
fn a_reused_buffer_holds_the_last_call_only() {
    let wide: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).sin()).collect();
    let mut reused = ActRows::quantise(&wide, 128).unwrap();
    reused.quantise_into(&wide[..64], 32).unwrap();
    assert_eq!((reused.rows(), reused.cols()), (2, 32));
    let clean = ActRows::quantise(&wide[..64], 32).unwrap();
    for i in 0..2 {
        assert_eq!(reused.row(i).q, clean.row(i).q);
        assert_eq!(bits(reused.row(i).d), bits(clean.row(i).d));
        assert_eq!(reused.row(i).sum, clean.row(i).sum);
    }
}

#[test]
fn rows_that_are_not_whole_groups_are_refused_by_their_length() {
    assert!(matches!(ActRows::quantise(&[0.0; 80], 40), Err(Error::ActCols { cols: 40 })));
    assert!(matches!(ActRows::quantise(&[0.0; 80], 0), Err(Error::ActCols { cols: 0 })));
    assert!(matches!(ActRows::quantise(&[0.0; 80], 64), Err(Error::PartialRows { values: 80, cols: 64 })));
    assert_eq!(ActRows::quantise(&[], 64).unwrap().rows(), 0);
}
