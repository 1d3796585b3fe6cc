//! Parts of URLs: of whole ones, for commands that talk to a store themselves, without layers and other devices; and
//! percent-encoded names.
//!
//! The rule: an option that the store does not have is refused.

use brunt_block::table::{OpenError, UrlOptions};

/// What stands behind a URL's scheme: the place, and its options, which are among `known`.
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

/// Takes percent-encoding off (RFC 3986, 2.1); `None` where a percent sign stands without two digits, or what comes out is no
/// UTF-8 or has a NUL.
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

/// Puts it on, where a URL needs it.
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
