//! Converts between names, which are bytes, and texts, which are UTF-8. Called by writers and readers of traces of
//! network traffic. The one rule: the conversion is lossless.

use std::borrow::Cow;
use std::fmt::Write;

/// Bytes as text: a backslash is doubled, and a byte that is not UTF-8 becomes `\xNN`.
pub fn from_bytes(bytes: &[u8]) -> Cow<'_, str> {
    if !bytes.contains(&b'\\')
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    Cow::Owned(out)
}

/// Whether the bytes are ASCII without a backslash and so equal their text, as almost all names do. No branch
/// per byte.
#[inline]
pub fn is_plain(bytes: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const ONES: u64 = 0x0101_0101_0101_0101;
    const BACKSLASHES: u64 = ONES * b'\\' as u64;
    // Sets the high bit of each byte that is not ASCII or is a backslash; it may also be set in bytes more
    // significant than a backslash.
    let odd = |word: u64| {
        let other = word ^ BACKSLASHES;
        (word | (other.wrapping_sub(ONES) & !other)) & HIGH
    };
    let (eights, rest) = bytes.as_chunks::<8>();
    let found = eights
        .iter()
        .fold(0, |found, eight| found | odd(u64::from_ne_bytes(*eight)));
    let last = match bytes.last_chunk::<8>() {
        Some(last) => u64::from_ne_bytes(*last),
        None => rest
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    found | odd(last) == 0
}

/// Bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
}

/// Converts a text back to bytes; text without escapes is returned as it is.
pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('\\') {
        return Cow::Borrowed(text.as_bytes());
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
                out.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            _ => out.push(first),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ordinary names are unchanged, and all others survive the round trip.
    #[test]
    fn every_name_survives_the_round_trip() {
        let check = |bytes: &[u8], text: &str| {
            assert_eq!(
                is_plain(bytes),
                text.as_bytes() == bytes && text.is_ascii(),
                "{text}"
            );
            assert_eq!(from_bytes(bytes), text);
            assert_eq!(to_bytes(text), bytes);
        };
        check(b"file1_a.txt", "file1_a.txt");
        check("Übung".as_bytes(), "Übung");
        check(b"a\\b", "a\\\\b");
        check(b"\\x41", "\\\\x41");
        check(b"caf\xe9\\", "caf\\xe9\\\\");
        check(b"\xff\xfe", "\\xff\\xfe");
        for len in 0..40 {
            let mut bytes = vec![b'a'; len];
            assert!(is_plain(&bytes));
            for at in 0..len {
                for byte in 0..=255 {
                    bytes[at] = byte;
                    assert_eq!(
                        is_plain(&bytes),
                        byte < 0x80 && byte != b'\\',
                        "{byte} at {at} of {len}"
                    );
                }
                bytes[at] = b'a';
            }
        }
        for byte in 0..=255 {
            let bytes = [b'a', byte, b'\\', byte, b'x'];
            assert_eq!(to_bytes(&from_bytes(&bytes)), &bytes[..], "{byte}");
        }
        assert_eq!(to_bytes("odd\\q"), &b"odd\\q"[..]);
        let mut hex = String::new();
        hexadecimal(&[0x00, 0x7f, 0xa9], &mut hex);
        assert_eq!(hex, "007fa9");
    }
}
