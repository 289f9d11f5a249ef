use proptest::prelude::*;

use crate::{Format, Kind, format_by_name, formats, synth::*};

const NAME: &str = "blk.0.test.weight";

fn made(format: &Format, seed: u64, law: Law, first: u64, count: usize) -> Vec<u8> {
    let mut out = vec![0xAA; count * format.block_bytes];
    fill(format, tensor_key(seed, NAME), law, first, &mut out);
    out
}

fn values(format: &Format, bytes: &[u8]) -> Vec<f64> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes * format.block_elems];
    format.decode(bytes, &mut out);
    out.into_iter().map(f64::from).collect()
}

#[test]
fn every_format_has_a_recipe_of_its_own() {
    let recipes: Vec<u32> = RECIPES.iter().map(|r| r.ggml_id).collect();
    assert_eq!(recipes, formats().iter().map(|f| f.ggml_id).collect::<Vec<_>>());
}

/// A device makes the same. These bytes are the definition's: a second implementation, written from its text, gave those of
/// F32, BF16, Q8_0, Q5_1, IQ4_NL, Q4_K, Q5_K and Q6_K too.
#[test]
fn keys_words_and_blocks_are_pinned() {
    let key = tensor_key(7, NAME);
    let words = [word(key, 0), word(key, 1), word(key, u64::MAX)];
    assert_eq!(key, 15_954_077_238_943_949_180);
    assert_eq!(words, [7_414_959_158_757_860_812, 3_710_211_381_606_926_776, 11_137_546_413_961_302_707]);

    let q8_0 = made(format_by_name("Q8_0").unwrap(), 7, PINNED, 5, 1);
    let hex: String = q8_0.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "3f0cdbaa66cc93de8ea30e27586aea652a107f70a328d59c8c7a46a64931c7674360");
    let hash = |format: &Format| {
        let bytes = made(format, 7, PINNED, 5, 4);
        bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3))
    };
    let found: Vec<_> = formats().iter().map(|f| (f.name, hash(f))).collect();
    assert_eq!(found, BLOCKS);
}

/// FNV-1a of four blocks of each format.
#[rustfmt::skip]
const BLOCKS: [(&str, u64); 23] = [
        ("F32", 0xBAFE_185B_0797_6A9B),
        ("F16", 0xECDD_9E82_9BAA_0AD1),
        ("Q4_0", 0x453C_FE9E_6C83_1C9A),
        ("Q4_1", 0x0F48_6AF5_21AD_2340),
        ("Q5_0", 0x2C6B_65E4_7B4F_E224),
        ("Q5_1", 0x65E6_6CB7_97FC_ECAE),
        ("Q8_0", 0x3F19_7302_99CE_E964),
        ("Q2_K", 0x4121_2F76_3979_76D2),
        ("Q3_K", 0x5660_018E_370B_F03D),
        ("Q4_K", 0x3551_747B_A1DE_1D4C),
        ("Q5_K", 0x1D8E_1AC0_D72E_FAD9),
        ("Q6_K", 0xD4FB_9232_5308_7482),
        ("IQ2_XXS", 0x0327_9E80_05DA_FCB8),
        ("IQ2_XS", 0x7C84_03AB_E723_BF07),
        ("IQ3_XXS", 0x05C8_C087_70A3_B086),
        ("IQ4_NL", 0x453C_FE9E_6C83_1C9A),
        ("IQ4_XS", 0x4792_0930_25EF_B9E2),
        ("BF16", 0xC148_4C63_27D8_55D9),
        ("TQ1_0", 0xA87B_4D50_D5BE_2CD8),
        ("TQ2_0", 0x59A3_381D_5041_2442),
        ("MXFP4", 0xD80C_C644_CCA3_69F7),
        ("PQ2_0", 0xE49C_A40F_CEB3_B5C9),
        ("PTQ1_0", 0x5E85_5942_3EEB_AD9D),
];

/// A law with all parts, and a scale whose products round.
const PINNED: Law = Law { centre: 1 << 36, spread: 0x0123_4567 };

/// The bounds are five standard errors of 300,000 values (the scale's own spread included), and 3 % for the moment.
#[test]
fn values_have_the_variance_that_was_asked_for_and_no_bias() {
    for format in formats() {
        let law = Law::weights(format, 8, 2560);
        let values = values(format, &made(format, 3, law, 0, 300_000 / format.block_elems));
        let n = values.len() as f64;
        let (mean, square) = (values.iter().sum::<f64>() / n, values.iter().map(|v| v * v).sum::<f64>() / n);
        let wanted = 4.0 / 2560.0;
        assert!(values.iter().all(|v| v.is_finite()), "{}", format.name);
        assert!((square / wanted - 1.0).abs() < 0.05, "{}: variance {square} for {wanted}", format.name);
        assert!(mean.abs() < 0.02 * wanted.sqrt(), "{}: mean {mean}", format.name);
    }
}

#[test]
fn values_around_a_centre_stay_within_their_width() {
    for name in ["F32", "F16", "BF16"] {
        let format = format_by_name(name).unwrap();
        let values = values(format, &made(format, 1, Law::around(-64, 48), 0, 10_000));
        let (least, most) = values.iter().fold((0.0_f64, -9.0_f64), |(a, b), &v| (a.min(v), b.max(v)));
        assert!((-1.75..-1.74).contains(&least) && (-0.26..=-0.25).contains(&most), "{name}: {least} to {most}");
    }
}

#[test]
fn ternary_blocks_use_no_fourth_value_and_are_packed_as_encoders_pack() {
    for name in ["TQ1_0", "TQ2_0", "PQ2_0", "PTQ1_0"] {
        let format = format_by_name(name).unwrap();
        let bytes = made(format, 2, Law { centre: 0, spread: 1 << FRACTION }, 0, 50);
        let mut codes = crate::UnpackedRow::new();
        format.unpack_row(&bytes, &mut codes);
        assert!(codes.codes.iter().all(|c| (-1..=1).contains(c)), "{name}");
        assert!((-1..=1).all(|c| codes.codes.contains(&c)), "{name}");
    }
    for (digits, top) in [(3_u32.pow(5), 1), (3_u32.pow(4), 3)] {
        let packed: std::collections::BTreeSet<u32> =
            (0..=255_u32).map(|b| (((b * digits) >> 8) * top * 256).div_ceil(243)).collect();
        assert_eq!(packed.len() as u32, digits);
    }
}

#[test]
fn a_scale_that_binary16_does_not_hold_becomes_its_largest_number() {
    assert_eq!([half_bits(65_504 << 36, 36), half_bits(u64::MAX, 36), half_bits(1, 36)], [0x7BFF, 0x7BFF, 0]);
}

proptest! {
    /// Any run, in any order, by anybody.
    #[test]
    fn a_block_does_not_depend_on_where_its_run_begins(
        at in 0_usize..23, seed: u64, first in 0_u64..1 << 40, spread in 1_u64..1 << 37, cut in 0_usize..8,
    ) {
        let format = &formats()[at];
        let law = Law { centre: 0, spread };
        let whole = made(format, seed, law, first, 8);
        let mut parts = made(format, seed, law, first, cut);
        parts.extend(made(format, seed, law, first + cut as u64, 8 - cut));
        prop_assert_eq!(&whole, &parts);
        if format.kind != Kind::Plain {
            prop_assert!(values(format, &whole).iter().all(|v| v.is_finite()));
        }
    }

    /// Against the conversion of the compiler and of the `half` crate, both rounded towards zero.
    #[test]
    fn narrowed_numbers_are_the_nearest_towards_zero(magnitude in 0_u64..1 << 61, shift in 0_u32..61) {
        let magnitude = magnitude >> shift;
        let exact = magnitude as f64 / 2_f64.powi(ELEMENT_FRACTION as i32); // 53 bits: enough to compare with 24
        let single = f64::from(f32::from_bits(single_bits(magnitude)));
        prop_assert!(single <= exact * (1.0 + 1e-15) && exact <= single * (1.0 + 2_f64.powi(-23)));
        let half = f64::from(crate::f16_to_f32(half_bits(magnitude, ELEMENT_FRACTION)));
        prop_assert!(half <= exact * (1.0 + 1e-15) && exact <= half * (1.0 + 2_f64.powi(-10)) + 2_f64.powi(-24));
    }
}
