//! Fields of a line of text: cut at a separator, trimmed, and read as numbers. Used by all text formats.
//!
//! The rule: digits only and exact; what does not fit is `None`, never another number.

use std::num::NonZeroU64;

use crate::record::ContentHash;

/// The fields of a line; blanks around each are not theirs.
pub struct DelimitedFields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> DelimitedFields<'a> {
    /// Of a line without its end.
    pub fn new(line: &'a [u8], separator: u8) -> DelimitedFields<'a> {
        DelimitedFields { rest: Some(line), separator }
    }
}

impl<'a> Iterator for DelimitedFields<'a> {
    type Item = &'a [u8];
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let field = match memchr::memchr(self.separator, rest) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                &rest[..at]
            }
            None => {
                self.rest = None;
                rest
            }
        };
        Some(field.trim_ascii())
    }
}

/// A whole number.
#[inline]
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut value = 0u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Seconds with a fraction, in nanoseconds; what is finer is cut.
#[inline]
pub fn seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b"0"[..]),
    };
    let whole = if whole.is_empty() { 0 } else { number(whole)? };
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let nanos = number(digits)? * 10u64.pow(9 - digits.len() as u32);
    whole.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// A byte as one or two hexadecimal digits.
pub fn hex_byte(text: &[u8]) -> Option<u8> {
    if !(1..=2).contains(&text.len()) {
        return None;
    }
    text.iter().try_fold(0u8, |value, digit| Some(value << 4 | (*digit as char).to_digit(16)? as u8))
}

/// What stands for contents with this hash, of 32 hexadecimal digits: the first half of them.
pub fn content_hash(text: &[u8]) -> Option<ContentHash> {
    if text.len() != 32 || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let half = text[..16]
        .iter()
        .fold(0u64, |value, digit| value << 4 | u64::from((*digit as char).to_digit(16).unwrap_or_default()));
    // Zero is as rare as any other; it stands for another number.
    Some(ContentHash(NonZeroU64::new(half).unwrap_or(NonZeroU64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_none() {
        let check = |text: &str, expected| assert_eq!(number(text.as_bytes()), expected, "{text}");
        check("0", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        for text in ["", "-1", "1.0", "1e3", "0x1", "١"] {
            check(text, None);
        }
        let check = |text: &str, expected| assert_eq!(seconds(text.as_bytes()), expected, "{text}");
        check("0.551706", Some(551_706_000));
        check("3597.137874735", Some(3_597_137_874_735));
        check("1.0000000019", Some(1_000_000_001));
        check("7", Some(7_000_000_000));
        check(".5", Some(500_000_000));
        for text in ["", ".", "1.", "-1.0", "1.5e3", "99999999999999999999.0"] {
            check(text, None);
        }
    }

    #[test]
    fn hexadecimal_is_exact_or_none() {
        assert_eq!(
            ["2a", "8", "FF", "", "2g", "123"].map(|text| hex_byte(text.as_bytes())),
            [Some(0x2a), Some(8), Some(255), None, None, None]
        );
        let hash = |text: &str| content_hash(text.as_bytes()).map(|hash| hash.0.get());
        assert_eq!(hash("56f11b711d91a065a2b6458eca924523"), Some(0x56f1_1b71_1d91_a065));
        assert_eq!(hash("0000000000000000a2b6458eca924523"), Some(u64::MAX));
        assert_eq!((hash("56f1"), hash("x6f11b711d91a065a2b6458eca924523")), (None, None));
    }

    #[test]
    fn fields_are_trimmed() {
        let fields: Vec<&[u8]> = DelimitedFields::new(b" 1 ;; a ", b';').collect();
        assert_eq!(fields, [b"1".as_slice(), b"", b"a"]);
    }
}
