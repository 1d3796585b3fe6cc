//! Parses the place and options of a URL, for commands that talk to a store directly, without layers or other
//! devices.
//!
//! The rule: options that the store doesn't have are rejected.

use brunt_block::table::{OpenError, UrlOptions};

/// Splits the part after a URL's scheme into the place and its options, which must be among `known`.
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
                wanted: "unknown option for this store; see 'brunt help devices'".to_string(),
            });
        }
        options.set(key, value);
    }
    Ok((place, options))
}
