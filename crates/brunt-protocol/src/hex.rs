//! Encodes bytes in a message as hexadecimal: two digits per byte, where a list of numbers takes up to four
//! characters per byte.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    let text: String = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect();
    serializer.serialize_str(&text)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(value(*high)? << 4 | value(*low)?).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    bytes.ok_or_else(|| D::Error::custom("no pairs of hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Bytes(#[serde(with = "super")] Vec<u8>);

    #[test]
    fn bytes_round_trip_as_hexadecimal() {
        let all = Bytes((0..=255).collect());
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.starts_with("\"000102") && text.len() == 514, "{text}");
        assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), all);
        for wrong in ["\"0\"", "\"0g\"", "\"+1\"", "\"\u{e4}\"", "7"] {
            assert!(serde_json::from_str::<Bytes>(wrong).is_err(), "{wrong}");
        }
    }
}
