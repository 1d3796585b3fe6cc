//! Splits a line of text into fields, trims them and parses numbers. Used by all text formats.
//!
//! The rule: parse digits only, and exactly; a value that doesn't fit is `None`, never another number.
//!
//! Fields are short, so bytes are examined eight at a time in a register, without a function call per field.

use std::num::NonZeroU64;

use crate::record::ContentHash;

/// Iterates over the fields of a line, trimmed of blanks.
pub struct DelimitedFields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> DelimitedFields<'a> {
    /// Splits a line, given without its line end.
    pub fn new(line: &'a [u8], separator: u8) -> DelimitedFields<'a> {
        DelimitedFields {
            rest: Some(line),
            separator,
        }
    }
}

impl<'a> Iterator for DelimitedFields<'a> {
    type Item = &'a [u8];
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let field = match find(self.separator, rest) {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                &rest[..at]
            }
            None => {
                self.rest = None;
                rest
            }
        };
        Some(trimmed(field))
    }
}

/// Passes the fields of a line, untrimmed, to `wants_more` until it returns false. Examines each 8-byte
/// word of the line once, which for many short fields is faster than searching for each separator.
#[inline]
pub fn each_field<'a>(line: &'a [u8], separator: u8, mut wants_more: impl FnMut(&'a [u8]) -> bool) {
    let (words, rest) = line.as_chunks::<8>();
    let mut start = 0;
    for (number, word) in words.iter().enumerate() {
        let apart = u64::from_le_bytes(*word) ^ (LOW_BITS * u64::from(separator));
        // The high bit of exactly those bytes that are zero.
        let mut zero = !(((apart & !HIGH_BITS) + !HIGH_BITS) | apart | !HIGH_BITS);
        while zero != 0 {
            let at = number * 8 + zero.trailing_zeros() as usize / 8;
            if !wants_more(&line[start..at]) {
                return;
            }
            start = at + 1;
            zero &= zero - 1;
        }
    }
    let behind = line.len() - rest.len();
    for at in (behind..line.len()).filter(|at| line[*at] == separator) {
        if !wants_more(&line[start..at]) {
            return;
        }
        start = at + 1;
    }
    wants_more(&line[start..]);
}

/// The lowest and the highest bit of each byte of a word.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

/// The position of a byte in a short text.
#[inline]
pub fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let apart = u64::from_le_bytes(*word) ^ (LOW_BITS * u64::from(byte));
        // The lowest zero byte has its high bit set; only higher bytes may have false positives.
        let zero = apart.wrapping_sub(LOW_BITS) & !apart & HIGH_BITS;
        if zero != 0 {
            return Some(number * 8 + zero.trailing_zeros() as usize / 8);
        }
    }
    rest.iter()
        .position(|other| *other == byte)
        .map(|at| words.len() * 8 + at)
}

/// Trims surrounding blanks; usually there are none.
#[inline]
pub fn trimmed(text: &[u8]) -> &[u8] {
    match (text.first(), text.last()) {
        (Some(first), Some(last)) if *first > b' ' && *last > b' ' => text,
        _ => text.trim_ascii(),
    }
}

/// Any number with this many digits fits in 64 bits.
const DIGITS_SAFE: usize = 19;

/// Parses a whole number.
#[inline]
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > DIGITS_SAFE {
        return long_number(text);
    }
    let (words, rest) = text.as_chunks::<8>();
    let mut value = 0;
    for word in words {
        value = value * 100_000_000 + eight_digits(u64::from_le_bytes(*word))?;
    }
    for byte in rest {
        value = value * 10 + digit(*byte)?;
    }
    Some(value)
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    let digit = byte.wrapping_sub(b'0');
    (digit <= 9).then_some(u64::from(digit))
}

/// Parses a number that may overflow.
#[cold]
fn long_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > DIGITS_SAFE + 1 {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        value.checked_mul(10)?.checked_add(digit(*byte)?)
    })
}

/// Parses eight digits, the first of them in the lowest byte: combines neighbouring digits, then pairs, then fours.
#[inline]
fn eight_digits(word: u64) -> Option<u64> {
    const UPPER: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROES: u64 = LOW_BITS * b'0' as u64;
    // '0' to '9' are 0x30 to 0x39: the upper half of each byte is 3, and remains 3 after adding 6.
    let all = word & UPPER == ZEROES && word.wrapping_add(LOW_BITS * 6) & UPPER == ZEROES;
    if !all {
        return None;
    }
    let ones = word & !UPPER;
    let twos = (ones.wrapping_mul(10 * 256 + 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos.wrapping_mul(100 * (1 << 16) + 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000 * (1 << 32) + 1) >> 32)
}

/// Parses seconds with a fraction into nanoseconds, truncating finer digits.
#[inline]
pub fn seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let (whole, fraction) = match find(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b"0"[..]),
    };
    let whole = if whole.is_empty() { 0 } else { number(whole)? };
    let (digits, finer) = fraction.split_at(fraction.len().min(9));
    if !finer.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanos = number(digits)? * NANOS_OF_DIGIT[digits.len()];
    whole.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Nanoseconds per unit of the last digit, by the number of decimals.
const NANOS_OF_DIGIT: [u64; 10] = [
    1_000_000_000,
    100_000_000,
    10_000_000,
    1_000_000,
    100_000,
    10_000,
    1000,
    100,
    10,
    1,
];

/// Marks bytes that aren't hexadecimal digits; ORing it with any value leaves it unchanged.
const NO_HEX_DIGIT: u8 = 0xff;

/// The value of each byte as a hexadecimal digit.
const HEX_DIGITS: [u8; 256] = {
    let (mut digits, mut byte) = ([NO_HEX_DIGIT; 256], 0);
    while byte < 256 {
        digits[byte] = match byte as u8 {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            digit @ b'A'..=b'F' => digit - b'A' + 10,
            _ => NO_HEX_DIGIT,
        };
        byte += 1;
    }
    digits
};

/// Parses a byte of one or two hexadecimal digits.
pub fn hex_byte(text: &[u8]) -> Option<u8> {
    if !(1..=2).contains(&text.len()) {
        return None;
    }
    text.iter().try_fold(0u8, |value, digit| {
        Some(value << 4 | (*digit as char).to_digit(16)? as u8)
    })
}

/// The content identifier for a hash of 32 hexadecimal digits: its first half.
pub fn content_hash(text: &[u8]) -> Option<ContentHash> {
    let text: &[u8; 32] = text.try_into().ok()?;
    let (mut half, mut all) = (0u64, 0u8);
    for digit in &text[..16] {
        let value = HEX_DIGITS[usize::from(*digit)];
        (half, all) = (half << 4 | u64::from(value), all | value);
    }
    all = text[16..]
        .iter()
        .fold(all, |all, digit| all | HEX_DIGITS[usize::from(*digit)]);
    if all == NO_HEX_DIGIT {
        return None;
    }
    // Zero is as rare as any other value; map it to another one.
    Some(ContentHash(
        NonZeroU64::new(half).unwrap_or(NonZeroU64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_between_separators() {
        let mut random = brunt_core::random::Random::new(7);
        for len in 0..200 {
            let line: Vec<u8> = (0..len)
                .map(|_| b",+-\xac7"[random.below(5) as usize])
                .collect();
            let mut found = Vec::new();
            each_field(&line, b',', |field| {
                found.push(field);
                true
            });
            assert_eq!(found, line.split(|byte| *byte == b',').collect::<Vec<_>>());
            let mut count = 0;
            each_field(&line, b',', |_| {
                count += 1;
                count < 3
            });
            assert_eq!(count, found.len().min(3));
        }
    }

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

    /// Parsing eight bytes at a time gives the same numbers and errors as the standard library.
    #[test]
    fn numbers_equal_those_of_the_standard_library() {
        let mut random = brunt_core::random::Random::new(1);
        let symbols = b"0123456789000000999999 /:a\x80";
        let mut whole = 0;
        for _ in 0..200_000 {
            let len = random.below(22) as usize;
            let digits = if random.chance(0.7) {
                10
            } else {
                symbols.len() as u64
            };
            let text: Vec<u8> = (0..len)
                .map(|_| symbols[random.below(digits) as usize])
                .collect();
            let plain = std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse::<u64>().ok());
            // A number with more digits starts with zeros, which no trace contains.
            let plain = plain.filter(|_| len <= DIGITS_SAFE + 1);
            assert_eq!(number(&text), plain, "{}", text.escape_ascii());
            whole += u32::from(plain.is_some());
            for byte in [b'0', b'5', b'/', 0x80] {
                assert_eq!(
                    find(byte, &text),
                    text.iter().position(|other| *other == byte)
                );
            }
            assert_eq!(trimmed(&text), text.trim_ascii());
        }
        assert!(whole > 50_000);
    }

    #[test]
    fn hexadecimal_is_exact_or_none() {
        assert_eq!(
            ["2a", "8", "FF", "", "2g", "123"].map(|text| hex_byte(text.as_bytes())),
            [Some(0x2a), Some(8), Some(255), None, None, None]
        );
        let hash = |text: &str| content_hash(text.as_bytes()).map(|hash| hash.0.get());
        assert_eq!(
            hash("56f11b711d91a065a2b6458eca924523"),
            Some(0x56f1_1b71_1d91_a065)
        );
        assert_eq!(hash("0000000000000000a2b6458eca924523"), Some(u64::MAX));
        assert_eq!(
            (hash("56f1"), hash("x6f11b711d91a065a2b6458eca924523")),
            (None, None)
        );
    }

    #[test]
    fn fields_are_trimmed() {
        let fields: Vec<&[u8]> = DelimitedFields::new(b" 1 ;; a ", b';').collect();
        assert_eq!(fields, [b"1".as_slice(), b"", b"a"]);
    }
}
