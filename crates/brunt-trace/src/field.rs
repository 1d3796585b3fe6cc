//! Fields of a line of text: cut at a separator, trimmed, and read as numbers. Used by all text formats.
//!
//! The rule: digits only and exact; what does not fit is `None`, never another number.

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
    fn fields_are_trimmed() {
        let fields: Vec<&[u8]> = DelimitedFields::new(b" 1 ;; a ", b';').collect();
        assert_eq!(fields, [b"1".as_slice(), b"", b"a"]);
    }
}
