//! Parses parts of URLs: place and options, for commands that talk to a store directly, without layers and other
//! devices; and percent-encoded names.
//!
//! The rule: options that the store doesn't have are rejected.

use brunt_block::table::{OpenError, UrlOptions};

/// Splits what follows a URL's scheme into the place and its options, which must be among `known`.
pub(crate) fn place_and_options<'a>(
    rest: &'a str,
    known: &[(&str, &str)],
) -> Result<(&'a str, UrlOptions), OpenError> {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut options = UrlOptions::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if known.iter().all(|(name, _)| *name != key) {
            return Err(OpenError::BadValue {
                option: key.to_string(),
                value: value.to_string(),
                wanted: "a URL of this store has no such option; see 'brunt help devices'"
                    .to_string(),
            });
        }
        options.set(key, value);
    }
    Ok((place, options))
}

/// Decodes percent-encoding (RFC 3986, 2.1); `None` if a percent sign lacks its two digits,
/// or the result is not UTF-8 or contains a NUL.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8,
            byte => byte,
        });
    }
    String::from_utf8(decoded)
        .ok()
        .filter(|text| !text.contains('\0'))
}

/// Percent-encodes a text where a URL requires it.
pub(crate) fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:+,@!$'()*;".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match plain(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}
