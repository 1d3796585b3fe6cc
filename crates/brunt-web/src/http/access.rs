//! Decides who may read a page on a loopback address: the page itself, and programs on this machine. A page of another
//! origin may not, even if its name was made to resolve to this machine (DNS rebinding: the browser then sends that
//! name as `Host` and treats our responses as the other page's own).
//!
//! The rule: a `Host` must be an IP address, `localhost` or this machine's own name, because DNS rebinding gives
//! another site none of these; an `Origin` must equal that `Host`. The port may differ from this server's: `ssh -L`
//! changes it, and rebinding doesn't depend on it. Ambiguous requests are rejected: two `Host` headers could mean
//! one thing to a browser and another to us.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::{StatusCode, Version};

/// Fetch metadata headers: where a request comes from, and the request's mode.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessRefusal {
    /// The request doesn't name a host.
    NoHost,
    /// The request names several hosts or origins.
    Ambiguous,
    /// The request names a host that others can make resolve to this machine.
    ForeignHost(String),
    /// The request comes from a page with this origin.
    ForeignOrigin(String),
    /// The request comes from a page of another site, according to the browser.
    CrossSite,
}

impl AccessRefusal {
    /// The status to respond with.
    pub fn status(&self) -> StatusCode {
        match self {
            AccessRefusal::NoHost | AccessRefusal::Ambiguous => StatusCode::BAD_REQUEST,
            AccessRefusal::ForeignHost(_) => StatusCode::MISDIRECTED_REQUEST,
            AccessRefusal::ForeignOrigin(_) | AccessRefusal::CrossSite => StatusCode::FORBIDDEN,
        }
    }
}

impl fmt::Display for AccessRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessRefusal::NoHost => f.write_str("the request has no Host header"),
            AccessRefusal::Ambiguous => {
                f.write_str("the request has more than one Host or Origin header")
            }
            AccessRefusal::ForeignHost(host) => write!(
                f,
                "the Host '{host}' is not this machine's: open the page at its address, or at localhost"
            ),
            AccessRefusal::ForeignOrigin(origin) => {
                write!(
                    f,
                    "a page at {origin} may not read this page: open this page itself"
                )
            }
            AccessRefusal::CrossSite => {
                f.write_str("a page of another site may not read this page: open this page itself")
            }
        }
    }
}

/// Checks whether a request may be answered. `own_name` is this machine's name. `is_document` allows links from other
/// sites; set it only for resources that contain no secrets and cannot be embedded in another page.
///
/// # Errors
/// The reason why the request is rejected.
pub fn admit(
    request: &Parts,
    own_name: Option<&str>,
    is_document: bool,
) -> Result<(), AccessRefusal> {
    let host = host(request)?.ok_or(AccessRefusal::NoHost)?;
    if !is_own(&host, own_name) {
        return Err(AccessRefusal::ForeignHost(shown(&host)));
    }
    if let Some(origin) = only(request, &ORIGIN)? {
        let is_host = origin
            .strip_prefix("http://")
            .is_some_and(|rest| rest.eq_ignore_ascii_case(&host));
        if !is_host {
            return Err(AccessRefusal::ForeignOrigin(shown(&origin)));
        }
    }
    // Browsers request other pages' images, scripts and frames without an Origin header, but always with this header.
    let led_here = is_document && only(request, &SEC_FETCH_MODE)?.as_deref() == Some("navigate");
    match only(request, &SEC_FETCH_SITE)?.as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if led_here => Ok(()),
        Some(_) => Err(AccessRefusal::CrossSite),
    }
}

/// The host that a request is for: from an absolute URL, regardless of the header (RFC 9112, 3.2.2), otherwise from the
/// header. `None` if an HTTP/1.0 client doesn't name a host.
///
/// # Errors
/// Several hosts are named, or none although HTTP/1.1 requires one (RFC 9112, 3.2).
pub fn host(request: &Parts) -> Result<Option<Cow<'_, str>>, AccessRefusal> {
    let named = only(request, &HOST)?;
    if named.is_none() && request.version >= Version::HTTP_11 {
        return Err(AccessRefusal::NoHost);
    }
    let of_url = request.uri.authority();
    Ok(of_url.map(|url| Cow::from(url.as_str())).or(named))
}

/// The header with this name, which must not occur twice. Non-UTF-8 bytes never become an accepted value.
fn only<'a>(request: &'a Parts, name: &HeaderName) -> Result<Option<Cow<'a, str>>, AccessRefusal> {
    let mut all = request.headers.get_all(name).iter();
    let first = all
        .next()
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    if all.next().is_some() {
        Err(AccessRefusal::Ambiguous)
    } else {
        Ok(first)
    }
}

/// Untrusted text, shortened to fit a line and without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

fn is_own(host: &str, own_name: Option<&str>) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else {
                return false;
            };
            let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            return is_port && address.parse::<Ipv6Addr>().is_ok();
        }
        None => match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => host,
        },
    };
    // The name may have the trailing dot of a fully qualified name.
    let is_name = |own: &str| {
        let name = name.strip_suffix('.').unwrap_or(name);
        name.eq_ignore_ascii_case(own)
    };
    name.parse::<Ipv4Addr>().is_ok() || is_name("localhost") || own_name.is_some_and(is_name)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_at(uri: &str, headers: &str, is_document: bool, expected: Result<(), AccessRefusal>) {
        let mut request = axum::http::Request::builder().uri(uri);
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").expect("a header");
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        assert_eq!(
            admit(&parts, Some("lab-7"), is_document),
            expected,
            "{headers}"
        );
    }

    fn check(headers: &str, is_document: bool, expected: Result<(), AccessRefusal>) {
        check_at("/", headers, is_document, expected);
    }

    /// If two parties interpret a request differently, an attacker can bypass one of them.
    #[test]
    fn ambiguous_requests_are_refused() {
        for headers in [
            "Host: localhost\r\nHost: evil.example\r\n",
            "Host: localhost\r\nhost: localhost\r\n",
            "Host: localhost:1\r\nOrigin: http://localhost:1\r\nOrigin: http://evil.example\r\n",
            "Host: localhost\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n",
        ] {
            check(headers, true, Err(AccessRefusal::Ambiguous));
        }
        // If the request has an absolute URL, the header is ignored.
        for (url, host, expected) in [
            ("http://localhost:1/", "evil.example", Ok(())),
            ("http://127.0.0.1/", "127.0.0.1", Ok(())),
            (
                "http://evil.example/",
                "localhost",
                Err(AccessRefusal::ForeignHost("evil.example".into())),
            ),
            (
                "http://localhost@evil.example/",
                "localhost",
                Err(AccessRefusal::ForeignHost("localhost@evil.example".into())),
            ),
        ] {
            check_at(url, &format!("Host: {host}\r\n"), true, expected);
        }
    }

    #[test]
    fn this_machines_addresses_and_names_are_admitted() {
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost:9",
            "LocalHost",
            "localhost.",
            "lab-7.:8080",
            "[::1]:80",
            "[fe80::1]",
            "10.1.2.3:1",
            "lab-7:80",
        ] {
            check(&format!("Host: {host}\r\n"), false, Ok(()));
            check(
                &format!("Host: {host}\r\nOrigin: http://{host}\r\n"),
                false,
                Ok(()),
            );
        }
        check(
            "Host: localhost:1\r\nSec-Fetch-Site: same-origin\r\n",
            false,
            Ok(()),
        );
        check(
            "Host: localhost:1\r\nSec-Fetch-Site: none\r\n",
            false,
            Ok(()),
        );
    }

    /// A name that its owner made resolve to 127.0.0.1.
    #[test]
    fn foreign_host_names_are_refused() {
        check("", false, Err(AccessRefusal::NoHost));
        for host in [
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "lab-70",
            "",
            "[::1",
            "[::1]x",
            "[evil]:1",
            "127.0.0.1:x",
            "127.0.0.1:1:2",
            "127.0.0.1:99999",
        ] {
            check(
                &format!("Host: {host}\r\n"),
                true,
                Err(AccessRefusal::ForeignHost(host.into())),
            );
        }
    }

    /// These origins include the same host on another port, and opaque origins.
    #[test]
    fn pages_on_other_origins_are_refused() {
        for origin in [
            "http://evil.example",
            "http://localhost:2",
            "https://localhost:1",
            "null",
            "localhost:1",
            "",
        ] {
            let headers = format!("Host: localhost:1\r\nOrigin: {origin}\r\n");
            check(
                &headers,
                true,
                Err(AccessRefusal::ForeignOrigin(origin.into())),
            );
        }
        for site in ["cross-site", "same-site", "?"] {
            let headers = format!("Host: localhost:1\r\nSec-Fetch-Site: {site}\r\n");
            check(&headers, false, Err(AccessRefusal::CrossSite));
            check(&headers, true, Err(AccessRefusal::CrossSite));
            let link = format!("{headers}Sec-Fetch-Mode: navigate\r\n");
            check(&link, true, Ok(()));
            check(&link, false, Err(AccessRefusal::CrossSite));
        }
    }

    #[test]
    fn a_refusal_is_one_short_printable_line() {
        let refusal = AccessRefusal::ForeignHost(shown(&format!("a\u{1b}[2J{}", "x".repeat(500))));
        assert!(refusal.to_string().len() < 200 && !refusal.to_string().contains('\u{1b}'));
    }
}
