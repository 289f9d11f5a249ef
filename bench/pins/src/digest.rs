//! A SHA-256 as bytes and as the 64 hexadecimal digits it is written with.

use std::fmt;
use std::str::FromStr;

/// The SHA-256 of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 is 64 hexadecimal digits")]
pub struct BadDigest;

impl FromStr for Digest {
    type Err = BadDigest;

    /// Of either case, as hash tools compare them.
    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(BadDigest) };
        let pairs: &[[u8; 2]; 32] = pairs.try_into().map_err(|_| BadDigest)?;
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = 16 * nibble(*high)? + nibble(*low)?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Result<u8, BadDigest> {
    let value = char::from(digit).to_digit(16).ok_or(BadDigest)?;
    u8::try_from(value).map_err(|_| BadDigest)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_digits_of_either_case_and_nothing_else() {
        let lower = "0123456789abcdef".repeat(4);
        assert_eq!(lower.parse::<Digest>().unwrap().to_string(), lower);
        assert_eq!(lower.to_uppercase().parse::<Digest>().unwrap().to_string(), lower);
        for bad in ["", &lower[..62], &lower[..63], &format!("{lower}0"), &lower.replace('f', "g"), &"+1".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
