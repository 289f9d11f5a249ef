//! f32 values as nine significant digits, `%.9g` in C: enough that the same f32 is read back.

/// The digits of a finite value, a JSON number.
pub fn nine_digits(value: f32) -> String {
    let scientific = format!("{value:.8e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..9).contains(&exponent) {
        let decimals = usize::try_from(8 - exponent).unwrap_or(0);
        return shortened(&format!("{:.decimals$}", f64::from(value))).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", shortened(digits), exponent.unsigned_abs())
}

/// Without the zeros that end a fraction.
fn shortened(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_written_as_c_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (8.5, "8.5"),
            (12.0, "12"),
            (-3.25, "-3.25"),
            (0.1, "0.100000001"),
            (1.0 / 3.0, "0.333333343"),
            (123_456.79, "123456.789"),
            (1e9, "1e+09"),
            (999_999_999.0, "1e+09"),
            (123_456_790_000.0, "1.23456791e+11"),
            (1e-4, "9.99999975e-05"),
            (1.2e-4, "0.000119999997"),
            (f32::MAX, "3.40282347e+38"),
            (f32::MIN_POSITIVE, "1.17549435e-38"),
            (f32::from_bits(1), "1.40129846e-45"),
        ];
        for (value, text) in cases {
            assert_eq!(nine_digits(value), text);
        }
    }

    proptest! {
        /// engine-protocol-v1.md 10: the decimal, narrowed to f32 and widened, is the f64 that the value itself widens to.
        #[test]
        fn a_logit_read_back_from_the_wire_has_its_bits(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let read: f64 = serde_json::from_str(&nine_digits(value)).unwrap();
            prop_assert_eq!((read as f32).to_bits(), bits);
            prop_assert_eq!(f64::from(read as f32).to_bits(), f64::from(value).to_bits());
        }
    }
}
