//! The response formats shared by all sites: plain lines for people and Prometheus, JSON for the page.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A plain-text response.
pub fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    of(status, "text/plain; charset=utf-8", text.into())
}

/// A response with this body and content type.
pub fn of(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    (status, [(CONTENT_TYPE, content_type)], body.into()).into_response()
}

/// A value as JSON, which browsers don't cache.
///
/// # Panics
/// Never: the values are plain data.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("plain data");
    let mut answer = of(status, "application/json", text);
    answer
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An error and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble<'a> {
    /// What went wrong.
    pub error: &'a str,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'a str>,
}

/// An error, as JSON.
pub fn trouble(status: StatusCode, error: &str, advice: Option<&str>) -> Response {
    json(status, &Trouble { error, advice })
}

/// The response to a method that this path doesn't support; [`name_methods`] completes it.
pub fn wrong_method() -> Response {
    plain(StatusCode::METHOD_NOT_ALLOWED, "")
}

/// Completes [`wrong_method`] with the allowed methods, which only the path's router knows.
pub fn name_methods(answer: Response) -> Response {
    let allowed = answer
        .headers()
        .get(ALLOW)
        .and_then(|allow| allow.to_str().ok());
    let Some(allowed) = allowed.filter(|_| answer.status() == StatusCode::METHOD_NOT_ALLOWED)
    else {
        return answer;
    };
    let methods: Vec<&str> = allowed.split(',').map(str::trim).collect();
    let methods = methods.join(", ");
    let mut named = plain(StatusCode::METHOD_NOT_ALLOWED, format!("use {methods}\n"));
    if let Ok(value) = HeaderValue::from_str(&methods) {
        named.headers_mut().insert(ALLOW, value);
    }
    named
}
