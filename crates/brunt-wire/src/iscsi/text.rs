//! `key=value` pairs of login and text PDUs (RFC 7143, 6.1); each pair ends with a zero byte.

use crate::Malformed;

/// Maximum length of a key (RFC 7143, 6.1).
pub const KEY_BYTES_MAX: usize = 63;
/// Maximum length of a value: known keys have up to 255 bytes; binary values (CHAP) have up to 1024 bytes, and their
/// text form has twice that plus two (6.1). Longer values are rejected.
pub const VALUE_BYTES_MAX: usize = 8192;

/// Splits a data segment into its pairs, in order. The pairs borrow from `data`.
///
/// # Errors
/// A pair lacks `=`, its key is empty or too long, its value is too long, or it is not UTF-8.
pub fn parse_pairs(data: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    let mut pairs = Vec::new();
    let mut at = 0;
    for pair in data.split(|&byte| byte == 0) {
        let start = at;
        at += pair.len() + 1;
        // Trailing zeros are padding that some initiators count as part of the segment.
        if pair.is_empty() {
            continue;
        }
        let text =
            std::str::from_utf8(pair).map_err(|_| Malformed::new(start, "text is not UTF-8"))?;
        let (key, value) = text
            .split_once('=')
            .ok_or(Malformed::new(start, "key=value pair without '='"))?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Malformed::new(start, "key is not 1 to 63 bytes long"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Malformed::new(start, "value too long"));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Appends one pair.
///
/// # Panics
/// Panics if the key is invalid: empty, or containing `=` or a zero byte. Keys come from our own code, or were parsed
/// as keys.
pub fn push_pair(out: &mut Vec<u8>, key: &str, value: &str) {
    assert!(
        !key.is_empty() && !key.contains(['=', '\0']),
        "'{key}' is not a valid text key"
    );
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// Parses a numeric value: decimal or `0x` hexadecimal (RFC 7143, 6.1).
pub fn parse_number(value: &str) -> Option<u64> {
    match value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None if value.bytes().all(|b| b.is_ascii_digit()) => value.parse().ok(),
        None => None,
    }
}

/// Parses a large binary value: `0x` hexadecimal or `0b` base64 (RFC 7143, 6.1).
pub fn parse_binary(value: &str) -> Option<Vec<u8>> {
    if let Some(hex) = value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        let digits: Option<Vec<u8>> = hex
            .bytes()
            .map(|b| (b as char).to_digit(16).map(|digit| digit as u8))
            .collect();
        let mut digits = digits.filter(|digits| !digits.is_empty())?;
        if digits.len() % 2 == 1 {
            digits.insert(0, 0);
        }
        return Some(
            digits
                .chunks(2)
                .map(|pair| pair[0] << 4 | pair[1])
                .collect(),
        );
    }
    let base64 = value
        .strip_prefix("0b")
        .or_else(|| value.strip_prefix("0B"))?;
    let symbols = base64.trim_end_matches('=');
    if symbols.is_empty() || symbols.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(symbols.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for symbol in symbols.bytes() {
        let six = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// Formats a large binary value in hexadecimal, which all peers understand.
pub fn format_binary(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs are returned in order; padding zeros are not a pair.
    #[test]
    fn pairs_are_returned_in_order() {
        let mut data = Vec::new();
        push_pair(&mut data, "InitiatorName", "iqn.2026-11.io.brunt:a");
        push_pair(&mut data, "SessionType", "Normal");
        data.extend_from_slice(&[0, 0, 0]);
        let pairs = parse_pairs(&data).unwrap();
        assert_eq!(
            pairs,
            [
                ("InitiatorName", "iqn.2026-11.io.brunt:a"),
                ("SessionType", "Normal")
            ]
        );
        for end in 0..data.len() {
            let _ = parse_pairs(&data[..end]);
        }
    }

    #[test]
    fn errors_contain_the_position() {
        assert_eq!(parse_pairs(b"a=b\0cd\0").unwrap_err().offset, 4);
        assert!(parse_pairs(b"=b\0").is_err());
        assert!(parse_pairs(b"\xff=b\0").is_err());
    }

    /// Numbers and binary values are accepted in all forms that the RFC allows, and in no other form.
    #[test]
    fn numbers_and_binaries_are_parsed_in_every_form_of_the_rfc() {
        assert_eq!(parse_number("0x1F"), Some(31));
        assert_eq!(parse_number("262144"), Some(262144));
        assert_eq!(parse_number("0x"), None);
        assert_eq!(parse_number("-1"), None);
        assert_eq!(parse_binary("0xabc"), Some(vec![0x0a, 0xbc]));
        assert_eq!(parse_binary("0bQUJD"), Some(b"ABC".to_vec()));
        assert_eq!(parse_binary("0bQUI="), Some(b"AB".to_vec()));
        assert_eq!(parse_binary("ABC"), None);
        assert_eq!(format_binary(&[0, 255]), "0x00ff");
    }
}
