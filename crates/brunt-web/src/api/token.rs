//! The token that a client needs to check, start or stop experiments and to read results. It is created when the
//! program starts, printed with the address, and kept only in memory. Every user of this machine can reach a loopback
//! address; the token keeps other users out.
//!
//! The rule: the token is compared in constant time, and appears in no log, result or response.

use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq;

use crate::http::Place;
use crate::http::answer::trouble;

/// 128 bits are too many to be guessed.
const BYTES: usize = 16;

/// Unguessable text, for a token or a temporary link.
///
/// # Errors
/// The system can't provide random numbers.
pub fn unguessable() -> Result<String, getrandom::Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    let mut text = String::with_capacity(2 * BYTES);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// A server's token.
#[derive(Clone)]
pub struct ServerToken(Arc<str>);

impl ServerToken {
    /// Creates a token.
    ///
    /// # Errors
    /// The system can't provide random numbers.
    pub fn make() -> std::io::Result<ServerToken> {
        let text = unguessable().map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(ServerToken(text.into()))
    }

    /// The token's text, only for printing the address.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether these headers contain the token.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (all.next(), all.next()) else {
            return false;
        };
        let Some((scheme, sent)) = value.to_str().ok().and_then(|value| value.split_once(' '))
        else {
            return false;
        };
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        is_bearer && bool::from(sent.trim().as_bytes().ct_eq(self.0.as_bytes()))
    }
}

/// Rejects requests without the token. Requests with the token have no time limit.
pub async fn bearer_only(
    State(token): State<ServerToken>,
    Extension(place): Extension<Arc<Place>>,
    request: Request,
    next: Next,
) -> Response {
    if token.is_in(request.headers()) {
        place.give_up();
        return next.run(request).await;
    }
    let advice = "open the page at the address that the terminal printed, with its token";
    trouble(
        StatusCode::UNAUTHORIZED,
        "this request needs the server's token",
        Some(advice),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = ServerToken::make().expect("random numbers");
        assert_eq!(token.text().len(), 2 * BYTES);
        assert_ne!(
            token.text(),
            ServerToken::make().expect("random numbers").text()
        );
        let check = |values: &[String], expected: bool| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("a header"));
            }
            assert_eq!(token.is_in(&headers), expected, "{values:?}");
        };
        let whole = token.text();
        check(&[format!("Bearer {whole}")], true);
        check(&[format!("bearer  {whole} ")], true);
        check(&[], false);
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Basic x",
            &whole[..31],
            &whole[1..],
            whole,
        ] {
            check(&[wrong.to_string()], false);
            check(&[format!("Bearer {wrong}x")], false);
        }
        check(&[format!("Bearer {}", &whole[..31])], false);
        check(&[format!("Basic {whole}")], false);
        check(
            &[format!("Bearer {whole}"), format!("Bearer {whole}")],
            false,
        );
    }
}
