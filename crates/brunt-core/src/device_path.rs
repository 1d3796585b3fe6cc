//! File and device paths in device URLs. A path is bytes and a URL is text, so `file:` URLs escape bytes that text
//! cannot express: `file:/tmp/disk%FF.img` (RFC 3986, 2.1).
//!
//! The `file` backend decodes, the command line encodes, and messages show paths in this form. The rule: no two paths
//! have the same form, so a message always identifies the file that was used. A bare path, without `file:`, is used
//! verbatim.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::device_url::split_options;

const SCHEME: &str = "file:";

/// Decodes the path in a `file:` URL; `place` is the part after the colon. A percent sign that isn't followed by two
/// hexadecimal digits is literal.
pub fn decode(place: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(place.len());
    let mut rest = place.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = escaped_byte(rest);
        bytes.push(escaped.unwrap_or(*first));
        rest = escaped.map_or(after, |_| &rest[3..]);
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Decodes an escape such as `%FF` at the start of a text.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// Encodes a path for a `file:` URL: escapes characters with a special meaning there, control characters, and bytes
/// that are not UTF-8.
pub fn encode(path: &Path) -> String {
    escape(path.as_os_str().as_bytes(), |one| {
        one.is_control() || matches!(one, '%' | '?' | '[' | ']' | ',')
    })
}

/// Encodes a bare path for a `file:` URL.
pub fn encode_bare(path: &str) -> Cow<'_, str> {
    let is_escape = |(at, _): (usize, &str)| escaped_byte(&path.as_bytes()[at..]).is_some();
    match path.match_indices('%').any(is_escape) {
        true => path.replace('%', "%25").into(),
        false => path.into(),
    }
}

/// Escapes special characters and all bytes that are not UTF-8.
fn escape(bytes: &[u8], is_special: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escaped =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("%{byte:02X}")).collect() };
    for chunk in bytes.utf8_chunks() {
        for one in chunk.valid().chars() {
            match is_special(one) {
                true => text += &escaped(one.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(one),
            }
        }
        text += &escaped(chunk.invalid());
    }
    text
}

/// Formats a path for messages and results: unchanged if it is plain text, otherwise as a `file:` URL.
pub fn shown(path: &Path) -> impl Display + '_ {
    Shown(path)
}

struct Shown<'a>(&'a Path);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_str() {
            Some(text) if !text.contains(char::is_control) => f.write_str(text),
            _ => write!(f, "{SCHEME}{}", encode(self.0)),
        }
    }
}

/// Converts a command-line argument to a device URL. Only arguments that aren't UTF-8 change: a path, possibly with
/// options, becomes a `file:` URL; in any other URL, bytes that aren't UTF-8 are escaped.
pub fn from_argument(word: OsString) -> String {
    let word = match word.into_string() {
        Ok(text) => return text,
        Err(word) => word,
    };
    let bytes = word.as_bytes();
    let has_scheme = bytes
        .iter()
        .position(|byte| matches!(byte, b':' | b'/'))
        .is_some_and(|at| bytes[at] == b':' && bytes[..at].is_ascii());
    if has_scheme {
        return escape(bytes, |_| false);
    }
    let whole = Path::new(&word);
    if whole.exists() {
        return format!("{SCHEME}{}", encode(whole));
    }
    // Options are text; they begin at the same question mark, whatever bytes the path contains.
    let text: String = bytes.iter().map(|byte| char::from(byte & 0x7f)).collect();
    let (place, options) = split_options(&text);
    // Commas are not escaped, because a comma may start a LUN option.
    let path = escape(&bytes[..place.len()], |one| one.is_control() || one == '%');
    let options = match options {
        "" => String::new(),
        _ => escape(&bytes[place.len()..], |_| false),
    };
    format!("{SCHEME}{path}{options}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const NAMES: &[&[u8]] = &[
        b"/tmp/plain.img",
        b"/tmp/disk\xff.img",
        b"/tmp/\xc3\xbc.img",
        b"/tmp/\xc3",
        b"/tmp/a?b=c&d",
        b"/tmp/a#b",
        b"/tmp/a%b",
        b"/tmp/a%41b",
        b"/tmp/a%25",
        b"/tmp/100%",
        b"/tmp/a,b c\nd\te",
        b"a:b",
        b"a]b[",
    ];

    fn path(bytes: &[u8]) -> &Path {
        Path::new(OsStr::from_bytes(bytes))
    }

    #[test]
    fn encoded_paths_are_decoded_and_differ() {
        for name in NAMES {
            assert_eq!(decode(&encode(path(name))), path(name));
            let word = shown(path(name)).to_string();
            assert!(!word.contains(char::is_control), "{word:?}");
            match word.strip_prefix(SCHEME) {
                Some(place) => assert_eq!(decode(place), path(name)),
                None => assert_eq!(Path::new(&word), path(name)),
            }
            if let Ok(text) = std::str::from_utf8(name) {
                assert_eq!(decode(&encode_bare(text)), path(name));
            }
        }
    }

    #[test]
    fn escapes_have_two_hexadecimal_digits() {
        let check = |text: &str, bytes: &[u8]| assert_eq!(decode(text), path(bytes), "{text}");
        check("/a%41b", b"/aAb");
        check("/a%fFb", b"/a\xffb");
        check("/a%2541b", b"/a%41b");
        check("/a%4", b"/a%4");
        check("/a%zz%", b"/a%zz%");
    }

    #[test]
    fn command_line_arguments_become_urls() {
        let check = |word: &[u8], url: &str| {
            let word = OsString::from_vec(word.to_vec());
            assert_eq!(from_argument(word), url);
        };
        check(b"/no/a%41?b=c", "/no/a%41?b=c");
        check(b"/no/disk\xff.img", "file:/no/disk%FF.img");
        check(b"no/disk\xff%", "file:no/disk%FF%25");
        check(b"no/disk\xff,ro", "file:no/disk%FF,ro");
        check(
            b"/no/disk\xff.img?size=1MiB&create=yes",
            "file:/no/disk%FF.img?size=1MiB&create=yes",
        );
        check(b"file:/no/a%41\xff?size=1M", "file:/no/a%41%FF?size=1M");
        check(b"array:raid0,[file:/\xff]", "array:raid0,[file:/%FF]");
        let folder = tempfile::tempdir().unwrap();
        let mut name = folder.path().as_os_str().as_bytes().to_vec();
        name.extend(b"/\xff?a=b");
        std::fs::write(path(&name), "").unwrap();
        let url = from_argument(OsString::from_vec(name.clone()));
        assert!(url.ends_with("/%FF%3Fa=b"), "{url}");
        assert_eq!(decode(url.strip_prefix(SCHEME).unwrap()), path(&name));
    }
}
