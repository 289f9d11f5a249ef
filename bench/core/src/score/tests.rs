use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const WEIGHTS: Axes = Axes { decode: 0.75, prefill: 0.25 };
const ALL: [PairCombine; 3] = [PairCombine::RatioOfSums, PairCombine::LowerMedian, PairCombine::Mean];

fn bands() -> Bands {
    Bands {
        prefill_up: 0.05,
        prefill_down: 0.05,
        prefill_down_enabled: false,
        decode_up: 0.02,
        decode_down: 0.2,
        decode_down_enabled: false,
    }
}

fn rule(combine: PairCombine) -> Rule {
    let floors = Axes { decode: 0.95, prefill: 0.95 };
    Rule { combine, weights: WEIGHTS, floors, decode_ceiling: Some(5.0), bands: bands() }
}

fn pair(control: (f64, f64), candidate: (f64, f64)) -> Pair {
    let axes = |(prefill, decode)| Axes { decode, prefill };
    Pair { control: axes(control), candidate: axes(candidate) }
}

/// That of benchd.md 9.2.
fn worked() -> [Pair; 2] {
    [pair((0.00230, 0.0680), (0.00230, 0.0450)), pair((0.00232, 0.0670), (0.00229, 0.0440))]
}

#[test]
fn the_specifications_worked_example_has_its_figures() {
    let score = rule(PairCombine::RatioOfSums).judge(&worked()).unwrap();
    assert!((score.gains.decode - 1.516853932584).abs() < 1e-12, "{score:?}");
    assert!((score.gains.prefill - 1.006535947712).abs() < 1e-12, "{score:?}");
    assert!((score.score - 1.369036868322).abs() < 1e-12, "{score:?}");
    // Of two pairs the lower median is the lower one.
    let lower = rule(PairCombine::LowerMedian).judge(&worked()).unwrap();
    assert_eq!((lower.control, lower.candidate), (worked()[0].control, worked()[0].candidate));
    let mean = rule(PairCombine::Mean).judge(&worked()).unwrap();
    let each = worked().map(|pair| composite(pair.gains(), WEIGHTS));
    assert_eq!(mean.score, (each[0] + each[1]) / 2.0);
}

#[test]
fn a_gain_of_no_time_is_nothing_and_a_composite_of_no_gain_is_no_number() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!((gain(1.0, bad), gain(bad, 1.0)), (0.0, 0.0));
    }
    assert_eq!(gain(3.0, 2.0), 1.5);
    let gains = Axes { decode: 1.7, prefill: 0.0 };
    assert!(composite(gains, WEIGHTS).is_nan());
    // Weight 0 is not looked at, the whole weight returns the gain itself.
    assert_eq!(composite(gains, Axes { decode: 0.3, prefill: 0.0 }), 1.7);
    for (decode, prefill) in [(0.0, 0.0), (-1.0, 2.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (f64::MAX, f64::MAX)] {
        assert!(composite(Axes { decode: 1.0, prefill: 1.0 }, Axes { decode, prefill }).is_nan(), "{decode} {prefill}");
    }
}

#[test]
fn exactly_at_a_floor_or_the_ceiling_passes_and_beyond_is_refused_by_name() {
    let judged = |combine, gains: (f64, f64)| {
        let (prefill, decode) = gains;
        rule(combine).judge(&[pair((prefill, decode), (1.0, 1.0)); 2]).map_err(|error| {
            assert!(!error.to_string().contains('\n'));
            (error.refusal(), error.to_string())
        })
    };
    for combine in ALL {
        judged(combine, (0.95, 0.95)).unwrap();
        judged(combine, (1.0, 5.0)).unwrap();
        let (name, text) = judged(combine, (1.0, 0.9499999)).unwrap_err();
        assert_eq!(name, Refusal::PerformanceFloorFailed);
        let want =
            "performance floor failed: decode_speedup=0.950000 floor=0.950000 prefill_speedup=1.000000 floor=0.950000";
        assert_eq!(text, want);
        assert_eq!(judged(combine, (0.94, 1.0)).unwrap_err().0, Refusal::PerformanceFloorFailed);
        let (name, text) = judged(combine, (1.0, 5.1)).unwrap_err();
        assert_eq!(name, Refusal::DecodeGainAboveCeiling);
        assert!(text.starts_with("DECODE-GAIN-ABOVE-CEILING: "), "{text}");
    }
}

#[test]
fn a_bands_fast_side_counts_where_it_is_switched_on_and_prefill_comes_first() {
    let both = pair((1.2, 1.5), (1.0, 1.0));
    let mut rule = rule(PairCombine::RatioOfSums);
    rule.judge(&[both]).unwrap();
    rule.bands.decode_down_enabled = true;
    let error = rule.judge(&[both]).unwrap_err();
    assert_eq!(error.refusal(), Refusal::AcceptanceBandFailed);
    assert!(
        error.to_string().starts_with("acceptance band failed: decode_speedup=1.500000 is above 1.250000"),
        "{error}"
    );
    rule.judge(&[pair((1.0, 1.25), (1.0, 1.0))]).unwrap();
    rule.bands.prefill_down_enabled = true;
    assert!(matches!(rule.judge(&[both]), Err(ScoreError::Band { axis: "prefill", .. })));
    // A floor that fails is named before a band.
    assert!(matches!(rule.judge(&[pair((0.1, 1.5), (1.0, 1.0))]), Err(ScoreError::Floor { .. })));
}

#[test]
fn the_mean_of_pairs_gates_each_of_them() {
    let pairs = [pair((1.0, 0.9), (1.0, 1.0)), pair((1.0, 3.0), (1.0, 1.0))];
    rule(PairCombine::RatioOfSums).judge(&pairs).unwrap();
    assert!(matches!(rule(PairCombine::Mean).judge(&pairs), Err(ScoreError::Floor { .. })));
}

#[test]
fn no_pairs_and_ratios_beyond_all_numbers_give_no_score() {
    for combine in ALL {
        assert_eq!(aggregate(&[], combine, WEIGHTS), Err(ScoreError::NoPairs));
        let far = pair((f64::MAX, f64::MAX), (f64::MIN_POSITIVE, f64::MIN_POSITIVE));
        assert_eq!(aggregate(&[far], combine, WEIGHTS), Err(ScoreError::NotFinite));
    }
}

fn seconds() -> impl Strategy<Value = f64> {
    1e-6_f64..10.0
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    let axes = || (seconds(), seconds());
    vec((axes(), axes()).prop_map(|(control, candidate)| pair(control, candidate)), 1..6)
}

fn combines() -> impl Strategy<Value = PairCombine> {
    prop::sample::select(&ALL[..])
}

proptest! {
    #[test]
    fn the_score_does_not_depend_on_the_order_of_the_pairs(
        (before, after) in pairs().prop_flat_map(|pairs| (Just(pairs.clone()), Just(pairs).prop_shuffle())),
        combine in combines(),
    ) {
        let (before, after) = (aggregate(&before, combine, WEIGHTS).unwrap(), aggregate(&after, combine, WEIGHTS).unwrap());
        prop_assert_eq!(before.score, after.score);
        if combine != PairCombine::LowerMedian {
            prop_assert_eq!((before.gains, before.control, before.candidate), (after.gains, after.control, after.candidate));
        }
    }

    #[test]
    fn a_gain_that_grows_never_lowers_the_composite(
        decode in 1e-3_f64..1e3, prefill in 1e-3_f64..1e3, factor in 1.0_f64..10.0, weight in 0.0_f64..=1.0,
    ) {
        let weights = Axes { decode: weight, prefill: 1.0 - weight };
        let of = |decode, prefill| composite(Axes { decode, prefill }, weights);
        let before = of(decode, prefill);
        prop_assert!(of(decode * factor, prefill) >= before * (1.0 - 1e-14));
        prop_assert!(of(decode, prefill * factor) >= before * (1.0 - 1e-14));
        // Much faster is strictly better, where the axis has weight to speak of.
        prop_assert!(weight < 0.01 || of(decode * 2.0, prefill) > before);
    }

    #[test]
    fn a_leg_that_gets_faster_never_lowers_the_score_and_a_slower_control_never_either(
        pairs in pairs(), at in any::<prop::sample::Index>(), factor in 1.0_f64..10.0, combine in combines(),
        leg in any::<bool>(), decode in any::<bool>(),
    ) {
        let before = aggregate(&pairs, combine, WEIGHTS).unwrap().score;
        let mut changed = pairs.clone();
        let at = at.index(pairs.len());
        let (axes, factor) = if leg { (&mut changed[at].candidate, 1.0 / factor) } else { (&mut changed[at].control, factor) };
        *(if decode { &mut axes.decode } else { &mut axes.prefill }) *= factor;
        let after = aggregate(&changed, combine, WEIGHTS).unwrap().score;
        prop_assert!(after >= before * (1.0 - 1e-12), "{} {}", before, after);
    }

    #[test]
    fn a_time_that_is_none_is_refused_and_named(
        pairs in pairs(), at in any::<prop::sample::Index>(), combine in combines(), leg in any::<bool>(), decode in any::<bool>(),
        bad in prop::sample::select(vec![f64::NAN, 0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY]),
    ) {
        let (mut pairs, at) = (pairs.clone(), at.index(pairs.len()));
        let axes = if leg { &mut pairs[at].candidate } else { &mut pairs[at].control };
        *(if decode { &mut axes.decode } else { &mut axes.prefill }) = bad;
        let error = rule(combine).judge(&pairs).unwrap_err();
        prop_assert_eq!(error.refusal(), Refusal::ScoreNotFinite);
        let want = format!("pair {}, {} leg: {} took", at + 1, if leg { "candidate" } else { "control" }, if decode { "decode" } else { "prefill" });
        prop_assert!(error.to_string().contains(&want), "{}", error);
    }

    #[test]
    fn equal_legs_score_one(times in (seconds(), seconds()), count in 1_usize..5, combine in combines()) {
        let score = aggregate(&vec![pair(times, times); count], combine, WEIGHTS).unwrap();
        prop_assert!((score.score - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_passes_every_gate_is_inside_them(pairs in pairs(), combine in combines()) {
        if let Ok(score) = rule(combine).judge(&pairs) {
            prop_assert!(score.score.is_finite());
            prop_assert!(score.gains.decode >= 0.95 * (1.0 - 1e-12) && score.gains.decode <= 5.0 * (1.0 + 1e-12));
            prop_assert!(score.gains.prefill >= 0.95 * (1.0 - 1e-12));
        }
    }
}
