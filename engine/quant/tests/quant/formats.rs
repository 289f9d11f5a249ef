//! Decoders, group form and encoders against the vectors (quant-formats.md 2, 3, 6).

use crate::vectors::{bits, bits_but_zero_sign, f32s, hex, i8s, u16s, vectors};
use cudafast_quant::{
    Encode, Error, Format, Kind, UnpackedRow, blocks, decode, f16_to_f32, f32_to_bf16, f32_to_f16, format_by_id,
    format_by_name, formats, unpack_row,
};

fn block_formats() -> impl Iterator<Item = (&'static Format, usize, bool)> {
    formats().iter().filter_map(|f| match f.kind {
        Kind::Plain => None,
        Kind::Block { sub, offset } => Some((f, sub, offset)),
    })
}

#[test]
fn the_registry_holds_each_type_once_with_the_size_of_the_type_table() {
    let index = vectors("index.json");
    let types = &index["all_ggml_types"];
    for format in formats() {
        let entry = &types[format.name];
        assert_eq!(entry["id"], format.ggml_id, "{}", format.name);
        assert_eq!(entry["block_elements"], format.block_elems, "{}", format.name);
        assert_eq!(entry["block_bytes"], format.block_bytes, "{}", format.name);
        assert!(std::ptr::eq(format_by_id(format.ggml_id).unwrap(), format));
        assert!(std::ptr::eq(format_by_name(&format.name.to_lowercase()).unwrap(), format));
    }
    assert!(formats().is_sorted_by(|a, b| a.ggml_id < b.ggml_id));
    // The formats with decode vectors are all here: 20, and three plain ones.
    let with_vectors = index.as_object().unwrap().keys().filter(|k| *k != "all_ggml_types");
    assert!(with_vectors.clone().all(|name| format_by_name(name).is_some()));
    assert_eq!(formats().len(), with_vectors.count() + 3);
    assert!(format_by_id(9).is_none() && format_by_id(40).is_none(), "activation and unknown types are not formats");
}

#[test]
fn every_block_decodes_to_the_vectors_bit_for_bit() {
    for (format, ..) in block_formats() {
        let file = vectors(&format!("{}.json", format.name.to_lowercase()));
        assert_eq!(file["ggml_type"], format.ggml_id);
        for (i, block) in file["blocks"].as_array().unwrap().iter().enumerate() {
            let mut values = vec![f32::NAN; format.block_elems];
            format.decode(&hex(&block["raw"]), &mut values);
            let want = f32s(&block["f32_le"]);
            assert_eq!(bits_but_zero_sign(&values), bits_but_zero_sign(&want), "{} block {i}", format.name);
        }
    }
}

#[test]
fn every_block_unpacks_to_the_group_form_of_the_vectors() {
    for (format, sub, offset) in block_formats() {
        let file = vectors(&format!("{}.json", format.name.to_lowercase()));
        let list = file["blocks"].as_array().unwrap();
        let bytes: Vec<u8> = list.iter().flat_map(|b| hex(&b["raw"])).collect();
        let mut row = UnpackedRow::new();
        format.unpack_row(&bytes, &mut row);
        assert_eq!(row.halves, if sub == 16 { 2 } else { 1 }, "{}", format.name);
        // One scale covers 16 or 32 elements of the row, whatever the format's own sub-block is.
        let span = 32 / row.halves;
        let per_row = |key: &str| -> Vec<f32> {
            let spread = |scale: &f32| std::iter::repeat_n(*scale, sub / span);
            list.iter().flat_map(|b| f32s(&b["group_form"][key]).iter().flat_map(spread).collect::<Vec<_>>()).collect()
        };
        let codes: Vec<i8> = list.iter().flat_map(|b| i8s(&b["group_form"]["codes_i8"])).collect();
        assert_eq!(list[0]["group_form"]["sub"], sub, "{}", format.name);
        assert_eq!(row.codes, codes, "{}", format.name);
        assert_eq!(bits(&row.wa), bits(&per_row("wa_f32")), "{}", format.name);
        if offset {
            assert_eq!(bits(&row.wb), bits(&per_row("wb_f32")), "{}", format.name);
        } else {
            assert!(row.wb.is_empty() && per_row("wb_f32").iter().all(|wb| *wb == 0.0), "{}", format.name);
        }
    }
}

#[test]
fn a_row_that_was_wider_or_had_offsets_before_leaves_no_trace() {
    let mut row = UnpackedRow::new();
    format_by_name("Q2_K").unwrap().unpack_row(&[0xFF; 84 * 3], &mut row);
    let bytes = [0x3C; 34 * 2];
    format_by_name("Q8_0").unwrap().unpack_row(&bytes, &mut row);
    let mut clean = UnpackedRow::new();
    unpack_row::<blocks::Q8_0>(bytemuck::cast_slice(&bytes), &mut clean);
    assert_eq!((row.codes, row.wa, row.wb, row.halves), (clean.codes, clean.wa, clean.wb, clean.halves));
}

#[test]
fn every_encoder_writes_the_bytes_of_the_vectors() {
    let file = vectors("encode.json");
    for (key, case) in file.as_object().unwrap() {
        let x = f32s(&case["f32_in"]);
        let mut bytes = vec![0xA5];
        if key == "pq2_0_amax" {
            let largest = x.as_chunks::<128>().0.iter().map(blocks::Pq2_0::encode_about_the_largest);
            bytes.extend(largest.flat_map(|block| bytemuck::bytes_of(&block).to_vec()));
        } else {
            format_by_name(key.trim_end_matches("_absmean")).unwrap().encode(&x, &mut bytes).unwrap();
        }
        assert_eq!(bytes[0], 0xA5, "encode appends");
        assert_eq!(bytes[1..], hex(&case["raw"]), "{key}");
    }
    assert_eq!(file.as_object().unwrap().len(), 11);
}

#[test]
fn pq2_0_and_ptq1_0_hold_the_same_values() {
    let x = f32s(&vectors("encode.json")["pq2_0_absmean"]["f32_in"]);
    let (mut wide, mut dense) = ([0.0; 128], [0.0; 128]);
    for values in x.chunks_exact(128) {
        decode(&[blocks::Pq2_0::encode(values)], &mut wide);
        decode(&[blocks::Ptq1_0::encode(values)], &mut dense);
        assert_eq!(bits(&wide), bits(&dense));
    }
}

#[test]
fn pq2_0_field_three_means_twice_the_scale() {
    let mut values = [0.0; 128];
    decode(&[blocks::Pq2_0 { d: 0x3C00_u16.to_le_bytes(), qs: [0b1110_0100; 32] }], &mut values);
    assert!(values.as_chunks::<4>().0.iter().all(|v| *v == [-1.0, 0.0, 1.0, 2.0]));
}

#[test]
fn sixteen_bit_floats_round_as_the_vectors_do() {
    let file = vectors("f16_bf16.json");
    let x = f32s(&file["f32_in"]);
    assert_eq!(x.iter().map(|&v| f32_to_f16(v)).collect::<Vec<_>>(), u16s(&file["f16"]));
    assert_eq!(x.iter().map(|&v| f32_to_bf16(v)).collect::<Vec<_>>(), u16s(&file["bf16"]));
    for (name, key) in [("F16", "f16"), ("BF16", "bf16")] {
        let format = format_by_name(name).unwrap();
        let mut bytes = Vec::new();
        format.encode(&x, &mut bytes).unwrap();
        assert_eq!(bytes, hex(&file[key]), "{name}");
        let (mut values, mut again) = (vec![0.0; x.len()], Vec::new());
        format.decode(&bytes, &mut values);
        format.encode(&values, &mut again).unwrap();
        assert_eq!(bytes, again, "{name}: what was decoded encodes to itself");
    }
    assert_eq!(f32_to_bf16(f32::from_bits(0x7F80_0001)), 0x7FC0, "a NaN must not round to infinity");
}

#[test]
fn widening_a_binary16_agrees_with_the_half_crate_on_every_pattern() {
    for pattern in 0..=u16::MAX {
        let (ours, theirs) = (f16_to_f32(pattern), half::f16::from_bits(pattern).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{pattern:#06x}");
    }
}

#[test]
fn plain_floats_come_back_as_they_were() {
    let x = [0.0, -0.0, 1.5, f32::MIN_POSITIVE / 2.0, f32::INFINITY, -3.25e-30];
    let (mut bytes, mut values) = (Vec::new(), [0.0; 6]);
    let f32_format = format_by_name("F32").unwrap();
    f32_format.encode(&x, &mut bytes).unwrap();
    f32_format.decode(&bytes, &mut values);
    assert_eq!(bits(&values), bits(&x));
}

#[test]
fn a_format_without_encoder_says_which_have_one() {
    let error = format_by_name("Q4_K").unwrap().encode(&[0.0; 256], &mut Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Q4_K has no encoder; encode to one of F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, BF16, TQ1_0, TQ2_0, MXFP4, PQ2_0, \
         PTQ1_0 or take the bytes from a file"
    );
}

#[test]
fn values_that_no_block_can_hold_are_refused_and_the_output_is_unchanged() {
    for (format, ..) in block_formats() {
        let mut out = vec![7];
        let mut x = vec![0.5; 2 * format.block_elems];
        if format.encode(&x, &mut Vec::new()).is_err() {
            continue;
        }
        assert!(matches!(format.encode(&x[1..], &mut out), Err(Error::PartialBlock { .. })), "{}", format.name);
        x[format.block_elems + 1] = f32::NAN;
        let at = format.block_elems + 1;
        assert!(matches!(format.encode(&x, &mut out), Err(Error::NotFinite { index, .. }) if index == at));
        // 3e38 over 127 or 31 is still no binary16; MXFP4 has the range.
        x[format.block_elems..].fill(3e38);
        let at = format.block_elems;
        let result = format.encode(&x, &mut out);
        if format.name == "MXFP4" {
            result.unwrap();
            continue;
        }
        assert!(matches!(result, Err(Error::ScaleOverflow { index, .. }) if index == at), "{}", format.name);
        assert_eq!(out, [7], "{}", format.name);
    }
}

#[test]
fn a_row_is_whole_blocks_or_refused() {
    for format in formats() {
        assert_eq!(format.row_bytes(0), Some(0));
        assert_eq!(format.row_bytes(5 * format.block_elems), Some(5 * format.block_bytes), "{}", format.name);
        if format.block_elems > 1 {
            assert_eq!(format.row_bytes(5 * format.block_elems + 1), None, "{}", format.name);
            assert_eq!(format.row_bytes(format.block_elems - 1), None, "{}", format.name);
        }
    }
    assert_eq!(format_by_name("Q5_1").unwrap().row_bytes(640), Some(480));
    assert_eq!(format_by_name("Q4_K").unwrap().row_bytes(640), None, "why routed down weights are Q5_1");
    assert_eq!(format_by_name("F32").unwrap().row_bytes(usize::MAX), None, "the size does not fit");
}
