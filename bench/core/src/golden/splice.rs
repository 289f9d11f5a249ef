//! Changes of a golden's raw bytes that touch one array and nothing else (benchd.md 4.3).
//!
//! Digits are replaced where they stand, so that blanks and line ends stay as they are: a depth whose run equals the serial
//! one has the serial golden's bytes, and its pin.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Demands, Golden, GoldenError};
use crate::json;

/// What a free run at some depth gave: the output of the capture tool (track-contract.md 7.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Follows the prompt.
    pub seed_token: i64,
    /// Follow that.
    pub tokens: Vec<i64>,
    /// Drafts proposed.
    pub drafted_total: u64,
    /// Drafts accepted.
    pub accepted_total: u64,
}

impl Capture {
    /// Reads the tool's output.
    pub fn parse(bytes: &[u8]) -> Result<Self, GoldenError> {
        json::document(bytes).map_err(GoldenError::Capture)
    }
}

/// The golden of a depth: the serial one's bytes with `expected_decode_tokens` replaced by the capture. The capture must
/// begin with the same seed token and be as long. The cases stay: they are the same at every depth (benchd.md 4.2).
pub fn per_depth_oracle(
    serial: &[u8],
    capture: &Capture,
    demands: &Demands<'_>,
) -> Result<(Vec<u8>, Golden), GoldenError> {
    let golden = Golden::load(serial, demands)?;
    let block = golden.benchmark().ok_or(GoldenError::NoBenchmark)?;
    if capture.seed_token != block.expected_decode_seed_token {
        return Err(GoldenError::SeedToken);
    }
    let (found, need) = (capture.tokens.len(), block.expected_decode_tokens.len());
    if found != need {
        return Err(GoldenError::CaptureLength { found, need });
    }
    let place = decode_tokens(serial).ok_or(GoldenError::RoundTrip)?;
    let mut bytes = serial[..place.start].to_vec();
    replace_numbers(&serial[place.clone()], &capture.tokens, &mut bytes);
    bytes.extend_from_slice(&serial[place.end..]);

    // Another length and digest than the serial golden's, so that golden's pin is not asked for.
    let spliced = Golden::load(&bytes, &Demands { pin: None, ..demands.clone() })?;
    let mut want = golden.document;
    if let Some(block) = &mut want.benchmark {
        block.expected_decode_tokens.clone_from(&capture.tokens);
    }
    if spliced.document != want {
        return Err(GoldenError::RoundTrip);
    }
    Ok((bytes, spliced))
}

/// A golden that must not pass: one digit of one expected token is another, so that the length stays and the digest does
/// not. Every authoring run shows that its own pin refuses this.
pub fn negative_control(bytes: &[u8], demands: &Demands<'_>) -> Result<Vec<u8>, GoldenError> {
    Golden::load(bytes, demands)?;
    let place = decode_tokens(bytes).ok_or(GoldenError::NoBenchmark)?;
    let first = bytes[place.clone()].iter().position(u8::is_ascii_digit).ok_or(GoldenError::NoBenchmark)?;
    let digits = bytes[place.start + first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut wrong = bytes.to_vec();
    // The last digit: the first could become a leading zero, which is no JSON.
    let last = &mut wrong[place.start + first + digits - 1];
    *last = if *last == b'0' { b'1' } else { *last - 1 };
    Ok(wrong)
}

/// Where the array `benchmark.expected_decode_tokens` stands in a golden that loads.
fn decode_tokens(bytes: &[u8]) -> Option<Range<usize>> {
    #[derive(Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        benchmark: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Inner<'a> {
        #[serde(borrow)]
        expected_decode_tokens: &'a RawValue,
    }
    let outer: Outer<'_> = serde_json::from_slice(bytes).ok()?;
    let inner: Inner<'_> = serde_json::from_str(outer.benchmark.get()).ok()?;
    // Both borrow from `bytes`, so the distance of the addresses is the offset.
    let array = inner.expected_decode_tokens.get();
    let start = array.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
    let place = start..start.checked_add(array.len())?;
    (bytes.get(place.clone())? == array.as_bytes()).then_some(place)
}

/// Appends an array of as many integers as there are tokens, with each in its place.
fn replace_numbers(array: &[u8], tokens: &[i64], out: &mut Vec<u8>) {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    let mut tokens = tokens.iter();
    let mut rest = array;
    while let Some(start) = rest.iter().position(is_number) {
        let length = rest[start..].iter().take_while(|byte| is_number(byte)).count();
        out.extend_from_slice(&rest[..start]);
        out.extend(tokens.next().map(i64::to_string).unwrap_or_default().bytes());
        rest = &rest[start + length..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden::ModelShape;
    use crate::testing::{recording, shape};

    fn capture_of(golden: &Golden) -> Capture {
        let block = golden.benchmark().unwrap();
        Capture {
            seed_token: block.expected_decode_seed_token,
            tokens: block.expected_decode_tokens.clone(),
            drafted_total: 0,
            accepted_total: 0,
        }
    }

    fn serial(shape: &ModelShape) -> (Vec<u8>, Golden) {
        recording(shape).author(&Demands::official(shape)).unwrap()
    }

    #[test]
    fn a_depth_that_runs_like_serial_has_the_serial_goldens_bytes() {
        let shape = shape(3, 4096);
        let demands = Demands::official(&shape);
        let (bytes, golden) = serial(&shape);
        assert_eq!(per_depth_oracle(&bytes, &capture_of(&golden), &demands).unwrap().0, bytes);
    }

    #[test]
    fn a_capture_that_does_not_belong_to_the_golden_is_refused() {
        let shape = shape(3, 4096);
        let demands = Demands::official(&shape);
        let (bytes, golden) = serial(&shape);
        let capture = capture_of(&golden);

        let seed = Capture { seed_token: capture.seed_token + 1, ..capture.clone() };
        assert!(matches!(per_depth_oracle(&bytes, &seed, &demands), Err(GoldenError::SeedToken)));
        let mut long = capture.clone();
        long.tokens.push(1);
        let refused = per_depth_oracle(&bytes, &long, &demands);
        assert!(matches!(refused, Err(GoldenError::CaptureLength { found: 129, need: 128 })));
        let mut outside = capture.clone();
        outside.tokens[5] = 4096;
        let refused = per_depth_oracle(&bytes, &outside, &demands).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "benchmark.expected_decode_tokens[5] is outside configured vocab range 0..<4096"
        );
        assert!(Capture::parse(br#"{"seed_token":1,"tokens":[2],"drafted_total":0}"#).is_err());
        let text = br#"{"seed_token":1,"tokens":[2],"drafted_total":4,"accepted_total":3}"#;
        assert_eq!(Capture::parse(text).unwrap().tokens, [2]);
    }

    #[test]
    fn the_negative_control_keeps_the_length_and_fails_the_pin_alone() {
        let shape = shape(3, 4096);
        let demands = Demands::official(&shape);
        let (bytes, golden) = serial(&shape);
        let wrong = negative_control(&bytes, &demands).unwrap();
        assert_eq!(wrong.len(), bytes.len());
        assert_eq!(wrong.iter().zip(&bytes).filter(|(a, b)| a != b).count(), 1);
        Golden::load(&wrong, &demands).unwrap();
        let pinned = Demands { pin: Some(golden.pin()), ..demands };
        assert!(matches!(Golden::load(&wrong, &pinned), Err(GoldenError::Sha256 { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn splicing_changes_the_one_array_and_keeps_its_layout(
            tokens in prop::collection::vec(0_i64..4096, 128),
            compact in any::<bool>(),
        ) {
            let shape = shape(3, 4096);
            let demands = Demands::official(&shape);
            let (mut bytes, golden) = serial(&shape);
            if compact { bytes.retain(|byte| !byte.is_ascii_whitespace()); }
            let capture = Capture { tokens, ..capture_of(&golden) };
            let (spliced, loaded) = per_depth_oracle(&bytes, &capture, &demands).unwrap();
            prop_assert_eq!(loaded.cases(), golden.cases());
            prop_assert_eq!(&loaded.benchmark().unwrap().expected_decode_tokens, &capture.tokens);
            let back = per_depth_oracle(&spliced, &capture_of(&golden), &demands).unwrap().0;
            prop_assert_eq!(back, bytes);
        }
    }
}
