//! The byte alphabet of byte-level BPE: one printable character per byte, so that merges can be written as text.

/// Bytes that are their own character: printable Latin-1 without the space, the no-break space and the soft hyphen.
const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// `ALPHABET[byte]` is the character a byte is written as. The other 68 bytes take U+0100 onwards, in byte order.
pub(crate) const ALPHABET: [char; 256] = {
    let mut alphabet = ['\0'; 256];
    let mut next = 0x100_u32;
    let mut byte = 0_usize;
    while byte < 256 {
        alphabet[byte] = if stands_for_itself(byte as u8) {
            byte as u8 as char
        } else {
            next += 1;
            match char::from_u32(next - 1) {
                Some(c) => c,
                None => panic!("U+0100..U+0144 are characters"),
            }
        };
        byte += 1;
    }
    alphabet
};

/// The inverse for the characters above Latin-1: `SHIFTED[c - 0x100]`.
const SHIFTED: [u8; 68] = {
    let mut shifted = [0_u8; 68];
    let mut byte = 0_usize;
    while byte < 256 {
        if !stands_for_itself(byte as u8) {
            shifted[ALPHABET[byte] as usize - 0x100] = byte as u8;
        }
        byte += 1;
    }
    shifted
};

/// The byte a character stands for; `None` outside the alphabet.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        Err(_) => SHIFTED.get((code - 0x100) as usize).copied(),
    }
}

/// Writes `text` in the byte alphabet.
pub(crate) fn spell(text: &str, out: &mut String) {
    out.extend(text.bytes().map(|byte| ALPHABET[usize::from(byte)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255_u8 {
            let c = ALPHABET[usize::from(byte)];
            assert!(seen.insert(c), "{c:?} twice");
            assert!(!c.is_whitespace() && !c.is_control(), "{c:?}");
            assert_eq!(byte_of(c), Some(byte));
        }
        assert_eq!((ALPHABET[usize::from(b' ')], ALPHABET[usize::from(b'\n')]), ('Ġ', 'Ċ'));
        assert_eq!(ALPHABET[0xAD], '\u{143}');
    }

    #[test]
    fn characters_outside_the_alphabet_stand_for_nothing() {
        for c in ['\0', ' ', '\n', '\u{7f}', '\u{a0}', '\u{ad}', '\u{144}', '日', '\u{10ffff}'] {
            assert_eq!(byte_of(c), None, "{c:?}");
        }
    }
}
