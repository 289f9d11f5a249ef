//! Laws that hold for any bytes and any values.

use crate::vectors::{bits, bits_but_zero_sign};
use cudafast_quant::{ActRows, Format, Kind, UnpackedRow, dot_ref, format_by_id, formats};
use proptest::{prelude::*, sample::select};

fn block_formats() -> Vec<&'static Format> {
    formats().iter().filter(|f| f.kind != Kind::Plain).collect()
}

fn encodable_block_formats() -> Vec<&'static Format> {
    let encodes = |f: &&Format| f.encode(&vec![0.0; f.block_elems], &mut Vec::new()).is_ok();
    block_formats().into_iter().filter(encodes).collect()
}

/// A format and a row of it of 256 to 1024 elements, any bytes.
fn any_row() -> impl Strategy<Value = (&'static Format, Vec<u8>)> {
    (select(block_formats()), 1..=4_usize).prop_flat_map(|(f, quarters)| {
        let bytes = f.row_bytes(256 * quarters).unwrap();
        (Just(f), prop::collection::vec(any::<u8>(), bytes))
    })
}

/// A row whose scales are of usual size: binary16 fields are made small, nothing else is touched.
fn sane_row() -> impl Strategy<Value = (&'static Format, Vec<u8>)> {
    any_row().prop_map(|(f, mut bytes)| {
        for block in bytes.chunks_exact_mut(f.block_bytes) {
            let fields: &[usize] = match f.name {
                "Q4_1" | "Q5_1" | "Q4_K" | "Q5_K" => &[0, 2],
                "Q2_K" => &[80, 82],
                "Q3_K" => &[108],
                "Q6_K" => &[208],
                "TQ1_0" => &[52],
                "TQ2_0" => &[64],
                "PTQ1_0" => &[26],
                "MXFP4" => &[],
                _ => &[0],
            };
            for &at in fields {
                block[at + 1] = 0x20 | block[at + 1] & 0x87; // exponent field 8..=9: 0.008 to 0.03
            }
            if f.name == "MXFP4" {
                block[0] = 118 + block[0] % 8;
            }
        }
        (f, bytes)
    })
}

fn values_of(f: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / f.block_bytes * f.block_elems];
    f.decode(bytes, &mut values);
    values
}

proptest! {
    #[test]
    fn decoded_values_are_codes_times_scales_plus_offsets((f, bytes) in any_row()) {
        let values = values_of(f, &bytes);
        let mut row = UnpackedRow::new();
        f.unpack_row(&bytes, &mut row);
        let span = 32 / row.halves;
        let rebuilt: Vec<f32> = row.codes.iter().enumerate().map(|(i, &code)| {
            let product = row.wa[i / span] * f32::from(code);
            row.wb.get(i / span).map_or(product, |wb| product + wb)
        }).collect();
        let quiet = |v: &[f32]| bits_but_zero_sign(&v.iter().map(|v| if v.is_nan() { f32::NAN } else { *v }).collect::<Vec<_>>());
        prop_assert_eq!(quiet(&values), quiet(&rebuilt));
        prop_assert_eq!(row.cols(), values.len());
        prop_assert_eq!(row.wa.len(), values.len() / span);
    }

    #[test]
    fn blocks_do_not_see_their_neighbours((f, bytes) in any_row()) {
        let whole = values_of(f, &bytes);
        for (i, block) in bytes.chunks_exact(f.block_bytes).enumerate() {
            let alone = values_of(f, block);
            prop_assert_eq!(bits(&alone), bits(&whole[i * f.block_elems..][..f.block_elems]));
        }
    }

    #[test]
    fn a_row_has_as_many_bytes_as_its_blocks(f in select(formats().iter().collect::<Vec<_>>()), cols in any::<usize>()) {
        let whole = cols.checked_rem(f.block_elems) == Some(0);
        let want = if whole { (cols / f.block_elems).checked_mul(f.block_bytes) } else { None };
        prop_assert_eq!(f.row_bytes(cols), want);
        prop_assert!(std::ptr::eq(format_by_id(f.ggml_id).unwrap(), f));
    }

    #[test]
    fn a_quantised_activation_is_within_half_a_step(x in prop::collection::vec(-1e4_f32..1e4, 96), scale in 1e-20_f32..1e20) {
        let x: Vec<f32> = x.iter().map(|v| v * scale).collect();
        let rows = ActRows::quantise(&x, 96).unwrap();
        let row = rows.row(0);
        for (i, v) in x.iter().enumerate() {
            let d = f64::from(row.d[i / 32]);
            // Half a step, and 127 steps times the roundings of d, 1 / d and their product.
            let bound = d * (0.5 + 127.0 * 3.0 * f64::from(f32::EPSILON));
            prop_assert!((f64::from(*v) - f64::from(row.q[i]) * d).abs() <= bound, "{v} as {} * {d}", row.q[i]);
            prop_assert!(row.q[i] != -128);
        }
    }

    #[test]
    fn an_activation_row_does_not_depend_on_its_neighbours(x in prop::collection::vec(-10_f32..10.0, 4 * 64)) {
        let all = ActRows::quantise(&x, 64).unwrap();
        for (i, alone) in x.chunks_exact(64).enumerate() {
            let alone = ActRows::quantise(alone, 64).unwrap();
            prop_assert_eq!(all.row(i).q, alone.row(0).q);
            prop_assert_eq!(bits(all.row(i).d), bits(alone.row(0).d));
            prop_assert_eq!(all.row(i).sum, alone.row(0).sum);
        }
    }

    #[test]
    fn an_encoded_value_decodes_to_within_its_formats_step(
        f in select(encodable_block_formats()),
        x in prop::collection::vec(-1_f32..1.0, 256),
    ) {
        let mut bytes = Vec::new();
        f.encode(&x, &mut bytes).unwrap();
        let values = values_of(f, &bytes);
        for (block, (x, values)) in x.chunks_exact(f.block_elems).zip(values.chunks_exact(f.block_elems)).enumerate() {
            let (min, max) = x.iter().fold((0.0_f32, 0.0_f32), |(a, b), v| (a.min(*v), b.max(*v)));
            let largest = max.max(-min);
            // Steps between neighbouring values, over the largest magnitude or the range. The symmetric 4- and 5-bit
            // formats lack one code on one side; ternary values can be off by the whole scale.
            let step = match f.name {
                "Q8_0" => 0.5 * largest / 127.0,
                "Q4_0" => largest / 8.0,
                "Q5_0" => largest / 16.0,
                "Q4_1" => 0.5 * (max - min) / 15.0,
                "Q5_1" => 0.5 * (max - min) / 31.0,
                "MXFP4" => largest / 4.0,
                "TQ1_0" | "TQ2_0" => 0.5 * largest,
                _ => largest,
            };
            // binary16 scales and minima: 2^-11 of the largest value each.
            let bound = step + 2.0 * (max - min) / 1024.0;
            for (x, v) in x.iter().zip(values) {
                prop_assert!((x - v).abs() <= bound, "{} block {block}: {x} as {v}", f.name);
            }
        }
    }

    #[test]
    fn encoding_a_ternary_row_twice_gives_the_same_bytes(
        name in select(vec!["TQ1_0", "TQ2_0"]),
        codes in prop::collection::vec(-1_i8..=1, 256),
        d in 0x0400_u16..0x7000,
    ) {
        let f = formats().iter().find(|f| f.name == name).unwrap();
        let d = cudafast_quant::f16_to_f32(d);
        let x: Vec<f32> = codes.iter().map(|&c| d * f32::from(c)).collect();
        let (mut bytes, mut again) = (Vec::new(), Vec::new());
        f.encode(&x, &mut bytes).unwrap();
        let values = values_of(f, &bytes);
        prop_assert_eq!(&values, &x);
        f.encode(&values, &mut again).unwrap();
        prop_assert_eq!(bytes, again);
    }

    #[test]
    fn every_lane_count_is_near_the_dot_of_the_dequantised_values((f, bytes) in sane_row(), seed in prop::collection::vec(-3_f32..3.0, 1024)) {
        let mut row = UnpackedRow::new();
        f.unpack_row(&bytes, &mut row);
        let x = &seed[..row.cols()];
        let acts = ActRows::quantise(x, x.len()).unwrap();
        let a = acts.row(0);
        let terms = values_of(f, &bytes).into_iter().zip(a.q.iter().zip(a.d.iter().flat_map(|d| [*d; 32])));
        let terms: Vec<f64> = terms.map(|(w, (&q, d))| f64::from(w) * f64::from(q) * f64::from(d)).collect();
        let (exact, size) = (terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum::<f64>());
        // The group form splits a value into code and offset, which can be larger than their sum.
        let split: f64 = (0..row.cols()).map(|i| {
            let s = i / (32 / row.halves);
            let wb = row.wb.get(s).copied().unwrap_or(0.0);
            f64::from(row.wa[s] * f32::from(row.codes[i])).abs().max(f64::from(wb).abs()) * 3.0
        }).sum();
        for dot in [dot_ref::<1>(&row, a), dot_ref::<8>(&row, a), dot_ref::<16>(&row, a)] {
            prop_assert!((f64::from(dot) - exact).abs() <= 1e-5 * (size + split), "{}: {dot} for {exact}", f.name);
        }
    }
}
