//! Finds the options and secrets in a device URL. The parser (`brunt-block`) and all code that shows or stores URLs use
//! the same rules, so every secret that the parser accepts can also be masked.
//!
//! The rule: when in doubt, treat text as secret. A masked host name is a nuisance; a printed password is a leak.

use std::ops::Range;

/// Shown in place of a secret.
pub const MASK: &str = "***";
/// See [`is_sought`].
const SOUGHT_BYTES_MIN: usize = 6;

/// Splits a device URL into the part before its options and the options. A nested device
/// in brackets keeps its own options.
pub fn split_options(text: &str) -> (&str, &str) {
    let outside = if text.ends_with(']') {
        None
    } else {
        Some(text.rfind(']').map_or(0, |at| at + 1))
    };
    match outside.and_then(|from| Some(from + text[from..].rfind('?')?)) {
        // A path may contain a question mark; options also contain an equals sign.
        Some(at) if text[at..].contains('=') => (&text[..at], &text[at + 1..]),
        _ => (text, ""),
    }
}

/// Options to set in a device URL, in place of existing values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlOptionChanges(Vec<(String, Option<String>)>);

impl UrlOptionChanges {
    /// Sets an option to a value, or removes it without one, so that its default applies.
    pub fn set(&mut self, option: &str, value: Option<String>) {
        self.0.retain(|(known, _)| known != option);
        self.0.push((option.to_string(), value));
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The URL with these changes. A new value replaces all values of its option.
    pub fn applied_to(&self, url: &str) -> String {
        let (place, options) = split_options(url);
        let is_kept = |pair: &&str| {
            let key = pair.split('=').next();
            !pair.is_empty()
                && self
                    .0
                    .iter()
                    .all(|(changed, _)| Some(changed.as_str()) != key)
        };
        let kept = options.split('&').filter(is_kept).map(String::from);
        let set = self.0.iter();
        let set = set.filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
        let all: Vec<String> = kept.chain(set).collect();
        match all.is_empty() {
            true => place.to_string(),
            false => format!("{place}?{}", all.join("&")),
        }
    }
}

impl std::fmt::Display for UrlOptionChanges {
    /// `first_burst=8KiB&send_buffer=default`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, (key, value)) in self.0.iter().enumerate() {
            let join = if number > 0 { "&" } else { "" };
            write!(
                f,
                "{join}{key}={}",
                value.as_deref().unwrap_or(OPTION_DEFAULT)
            )?;
        }
        Ok(())
    }
}

/// Represents the default of a URL option where a value is expected.
pub const OPTION_DEFAULT: &str = "default";

/// Whether the value of this URL option or configuration key is a secret.
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.ends_with("chap")
        || ["passw", "pasw", "passphrase", "secret", "token"]
            .iter()
            .any(|word| key.contains(word))
}

/// The secret parts of a device URL, in order: the login password (even if the scheme is misspelt), the values of
/// options such as `target_password`, and the secrets of devices in brackets.
pub fn secrets(url: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    find(url, 0, &mut found);
    merged(found)
}

/// The URL with each secret replaced by [`MASK`].
pub fn without_secrets(url: &str) -> String {
    masked(url, &secrets(url))
}

/// Masks all secrets in text that may contain URLs, such as a message or a shell command. The end of a secret can be
/// ambiguous there, so the rest of its line may be masked too.
pub fn text_without_secrets(text: &str) -> String {
    masked(text, &secrets_in_text(text))
}

/// Like [`text_without_secrets`], and also masks every secret in `known`.
pub fn text_without_these(text: &str, known: &[String]) -> String {
    let mut found = secrets_in_text(text);
    for secret in known.iter().filter(|secret| is_sought(secret)) {
        found.extend(
            text.match_indices(secret.as_str())
                .map(|(at, part)| at..at + part.len()),
        );
    }
    masked(text, &merged(found))
}

/// Whether to search for a secret in text that isn't a URL. A short secret is not searched for, because it could be
/// part of any word.
pub fn is_sought(secret: &str) -> bool {
    secret.len() >= SOUGHT_BYTES_MIN
}

/// The secret parts of text that may contain URLs.
pub fn secrets_in_text(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut base = 0;
    for line in text.split_inclusive('\n') {
        let line_end = base + line.trim_end_matches(['\n', '\r']).len();
        in_line(&text[base..line_end], base, &mut found);
        base += line.len();
    }
    merged(found)
}

/// Replaces each of these ranges of `text`, which must be in order, with [`MASK`].
pub fn masked(text: &str, secrets: &[Range<usize>]) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut from = 0;
    for secret in secrets {
        clean.push_str(&text[from..secret.start]);
        clean.push_str(MASK);
        from = secret.end;
    }
    clean.push_str(&text[from..]);
    clean
}

fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn find(text: &str, base: usize, found: &mut Vec<Range<usize>>) {
    let (place, options) = split_options(text);
    let has_slashes = place
        .split_once(':')
        .is_some_and(|(_, argument)| argument.starts_with("//"));
    // Brackets enclose the members of an array. The brackets of an IPv6 address come after two slashes.
    let mut options_start = base + text.len() - options.len();
    if !has_slashes && place.contains('[') {
        // A secret that contains brackets may be split between what look like devices.
        logins_in_line(place, base, found);
        match bracketed(place) {
            Some(devices) => devices
                .into_iter()
                .for_each(|device| find(&place[device.clone()], base + device.start, found)),
            // For example, a secret may contain an unbalanced bracket.
            None => {
                in_line(place, base, found);
                let login = login_secret(text, place);
                found.extend(login.map(|part| part.start + base..part.end + base));
            }
        }
    } else {
        let login = login_secret(text, place);
        let host = login.as_ref().map_or(0, |part| part.end);
        // Options start at the first question mark: a later one may be part of a secret.
        if let Some(at) = text[host..].find('?') {
            options_start = base + host + at + 1;
        }
        found.extend(login.map(|part| part.start + base..part.end + base));
    }
    in_options(&text[options_start - base..], options_start, found);
}

/// The password in the login of a URL; `place` is the part before its options.
fn login_secret(text: &str, place: &str) -> Option<Range<usize>> {
    let is_path = place.starts_with(['/', '.', '~']) || place.starts_with("file:");
    if is_path {
        return None;
    }
    let start = place
        .find("://")
        .map(|at| at + 3)
        // The first colon ends the scheme; a later one may precede a port.
        .or_else(|| {
            place
                .find([':', '%'])
                .map(|at| at + usize::from(place[at..].starts_with(':')))
        })
        .unwrap_or(0);
    let Some(end) = place.rfind('@').filter(|end| *end >= start) else {
        let percent = start + place[start..].find('%')?;
        return match text.rfind('@') {
            // The secret contains text that looks like the start of options.
            Some(end) if end > percent => Some(percent + 1..end),
            // The '@' is missing. The zone of an IPv6 address is not a secret.
            _ if place[start..percent].contains(['/', '[']) => None,
            _ => Some(percent + 1..place.len()),
        };
    };
    if let Some(percent) = place[start..end].find('%') {
        return Some(start + percent + 1..end);
    }
    // Other programs write logins as `user:password@`. An iSCSI name may contain both ':' and '@'.
    let colon = start + place[start..end].find(':')?;
    let is_login = !place.starts_with("iscsi:") && !place[start..colon].contains('/');
    is_login.then(|| colon + 1..end)
}

/// The secret values in `a=b&c=d`. A part that doesn't begin with a name and an equals sign
/// continues a value that contained `&`.
fn in_options(options: &str, base: usize, found: &mut Vec<Range<usize>>) {
    let (mut at, mut is_secret) = (0, false);
    for pair in options.split('&') {
        let value_start = match pair.find('=') {
            Some(equals) if !is_secret || is_name(&pair[..equals]) => {
                is_secret = is_secret_key(&pair[..equals]);
                equals + 1
            }
            _ => 0,
        };
        if is_secret {
            found.push(base + at + value_start..base + at + pair.len());
        }
        at += pair.len() + 1;
    }
}

/// Whether this is a valid option name.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The contents of each outermost pair of brackets; `None` if the brackets are unbalanced.
fn bracketed(text: &str) -> Option<Vec<Range<usize>>> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => {
                if depth == 0 {
                    start = at + 1;
                }
                depth += 1;
            }
            ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    parts.push(start..at);
                }
            }
            _ => {}
        }
    }
    (depth == 0).then_some(parts)
}

/// The secrets of all URLs in a line.
fn in_line(line: &str, base: usize, found: &mut Vec<Range<usize>>) {
    logins_in_line(line, base, found);
    let lower = line.to_ascii_lowercase();
    for word in ["password=", "passwd=", "secret="] {
        for (at, _) in lower.match_indices(word) {
            let start = at + word.len();
            found.push(base + start..base + line.len());
        }
    }
}

/// Secrets that extend from the `%` of a login to the last `@` before the next URL.
fn logins_in_line(line: &str, base: usize, found: &mut Vec<Range<usize>>) {
    let urls: Vec<usize> = line.match_indices("://").map(|(at, _)| at + 3).collect();
    for (number, start) in urls.iter().enumerate() {
        let rest = &line[*start..];
        let next = urls.get(number + 1).map_or(rest.len(), |next| next - start);
        let before = rest[..next].find(|c: char| c.is_whitespace() || c == '%');
        let Some(percent) = before.filter(|at| rest[*at..].starts_with('%')) else {
            continue;
        };
        // A secret may contain "://", so the text after it may belong to the secret.
        let end = rest[..next]
            .rfind('@')
            .filter(|end| *end > percent)
            .or_else(|| rest.rfind('@').filter(|end| *end > percent));
        if let Some(end) = end {
            found.push(base + start + percent + 1..base + start + end);
        }
    }
}

/// Decodes percent-encoding (RFC 3986, 2.1); `None` if a percent sign lacks its two digits,
/// or the result is not UTF-8 or contains a NUL.
pub fn percent_decode(text: &str) -> Option<String> {
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

/// Percent-encodes text where a URL requires it.
pub fn percent_encode(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_options_replace_those_of_the_url() {
        let check = |url: &str, changes: &[(&str, Option<&str>)], expected: &str, said: &str| {
            let mut all = UrlOptionChanges::default();
            for (option, value) in changes {
                all.set(option, value.map(String::from));
            }
            assert_eq!(
                (all.applied_to(url).as_str(), all.to_string().as_str()),
                (expected, said)
            );
        };
        let buffer: &[_] = &[("send_buffer", Some("64k"))];
        check(
            "tcp://h:1",
            buffer,
            "tcp://h:1?send_buffer=64k",
            "send_buffer=64k",
        );
        let url = "iscsi://h/t/0?sessions=2&send_buffer=1M";
        check(
            url,
            buffer,
            "iscsi://h/t/0?sessions=2&send_buffer=64k",
            "send_buffer=64k",
        );
        check(
            url,
            &[("send_buffer", None)],
            "iscsi://h/t/0?sessions=2",
            "send_buffer=default",
        );
        let array = "array:raid1,[memory:1M?cache=2],[null:1M]";
        let cached = "array:raid1,[memory:1M?cache=2],[null:1M]?cache=3";
        check(array, &[("cache", Some("3"))], cached, "cache=3");
        let both: &[_] = &[("a", Some("1")), ("b", None), ("a", Some("2"))];
        check("null:1M?a=7&a=8&b=9", both, "null:1M?a=2", "b=default&a=2");
        check("null:1M?b=9", &[("b", None)], "null:1M", "b=default");
    }

    #[test]
    fn urls_are_shown_without_their_secrets() {
        let check = |url: &str, expected: &str| assert_eq!(without_secrets(url), expected);
        check(
            "iscsi://me%secret@host:3260/iqn/0",
            "iscsi://me%***@host:3260/iqn/0",
        );
        // Every secret that the parser accepts is masked: the parser ends a login at the last '@'.
        check(
            "iscsi://me%s/e@c,r'e\"t %x@h/iqn/0?sessions=2",
            "iscsi://me%***@h/iqn/0?sessions=2",
        );
        check("iscsi://me%a?b=c@h/iqn/0", "iscsi://me%***@h/iqn/0");
        check("iscsi://host/iqn%2a@x/0", "iscsi://host/iqn%***@x/0");
        check(
            "iscsi://h/iqn.a:b@c/0?target_user=t&target_password=a/b@c&timeout=5s",
            "iscsi://h/iqn.a:b@c/0?target_user=t&target_password=***&timeout=5s",
        );
        check(
            "iscsi://h/n/0?target_password=a?b=c",
            "iscsi://h/n/0?target_password=***",
        );
        check(
            "iscsi://h/n/0?target_password=a&b",
            "iscsi://h/n/0?target_password=***&***",
        );
        check(
            "array:raid1,[iscsi://u%a,b@h/n/0?sessions=2],[iscsi://u%c@h/n/1]?retry=3",
            "array:raid1,[iscsi://u%***@h/n/0?sessions=2],[iscsi://u%***@h/n/1]?retry=3",
        );
        check("nbd://me:word@host/x", "nbd://me:***@host/x");
    }

    #[test]
    fn a_misspelt_url_is_shown_without_its_secret() {
        let check = |url: &str, expected: &str| assert_eq!(without_secrets(url), expected);
        check("iscs://me%secret@h/n/0", "iscs://me%***@h/n/0");
        check("iscsi:me%secret@h/n/0", "iscsi:me%***@h/n/0");
        check("iscsi:/me%back]zQ[@h/n/0", "iscsi:/me%***@h/n/0");
        check(
            "array:raid1,[iscsi://me%back]zQ[@h/n/0],[memory:1MiB]",
            "array:raid1,[iscsi://me%***@h/n/0],[memory:1MiB]",
        );
        check(
            "iscsi://h/n/0?target_password=a&b?q=c",
            "iscsi://h/n/0?target_password=***&***",
        );
        check("iscsi//me%secret@h/n/0", "iscsi//me%***@h/n/0");
        check("iscsi://me%secret/n/0", "iscsi://me%***");
    }

    #[test]
    fn urls_without_secrets_are_unchanged() {
        for url in [
            "/data/50%@x.img?size=1GiB",
            "file:a%b@c",
            "memory:1MiB?retry=3",
            "iscsi://[fe80::1%25eth0]:3260/iqn.a:b/0",
            "iscsi://h:3260/iqn.2026-11.io.brunt:a@b/0",
            "tcp://127.0.0.1:5260",
            "",
        ] {
            assert_eq!(without_secrets(url), url);
        }
    }

    #[test]
    fn texts_are_shown_without_the_secrets_of_their_urls() {
        let check = |text: &str, expected: &str| assert_eq!(text_without_secrets(text), expected);
        check(
            "url = \"iscsi://a%b@c/d/0\" # and iscsi://e%f@g, no more",
            "url = \"iscsi://a%***@c/d/0\" # and iscsi://e%***@g, no more",
        );
        check("iscsi://a%b/c d@e: no answer", "iscsi://a%***@e: no answer");
        check("iscsi://a%b://c@e", "iscsi://a%***@e");
        check("75% @ most http://h/ 75% @", "75% @ most http://h/ 75% @");
        check("x?target_password=a\nb", "x?target_password=***\nb");
        let known = ["longer secret".to_string(), "short".to_string()];
        assert_eq!(
            text_without_these("the longer secret, short", &known),
            "the ***, short"
        );
    }

    /// Text is cut at character boundaries, and ranges stay in order.
    #[test]
    fn unusual_text_never_panics() {
        for text in [
            "é://ü%ö@ß",
            "%@",
            "@%",
            "://",
            "[[",
            "]",
            "a:[b",
            "iscsi://%@",
            "?=&",
            "a?password",
            "×%×@×?password=×&×",
        ] {
            let _ = (without_secrets(text), text_without_secrets(text));
        }
    }
}
