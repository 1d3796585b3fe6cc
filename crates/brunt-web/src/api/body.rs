//! The request bodies that the API accepts: JSON of limited size. Other content types are rejected: forms on other
//! sites can send only those.

use std::time::Duration;

use axum::body::{HttpBody, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::http::answer::trouble;

/// Longer bodies are rejected. The limit covers the largest experiment file plus JSON's overhead.
const BYTES_MAX: usize = 1 << 20;
/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request's body.
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<JsonBody<T>, Response> {
        let content_type = request
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let kind = content_type
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/json") {
            let advice = Some("send Content-Type: application/json");
            return Err(trouble(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body is not JSON",
                advice,
            ));
        }
        let too_long = || {
            let what = format!("the body is longer than {BYTES_MAX} bytes, or was cut off");
            trouble(StatusCode::PAYLOAD_TOO_LARGE, &what, None)
        };
        let body = request.into_body();
        // Don't read a body whose announced length already exceeds the limit.
        if body.size_hint().lower() > BYTES_MAX as u64 {
            return Err(too_long());
        }
        let late = |_| {
            trouble(
                StatusCode::REQUEST_TIMEOUT,
                "timed out reading the body",
                None,
            )
        };
        let bytes = timeout(PATIENCE, to_bytes(body, BYTES_MAX))
            .await
            .map_err(late)?;
        let bytes = bytes.map_err(|_| too_long())?;
        serde_json::from_slice(&bytes)
            .map(JsonBody)
            .map_err(|error| {
                trouble(
                    StatusCode::BAD_REQUEST,
                    &format!("the body does not have the expected fields: {error}"),
                    None,
                )
            })
    }
}
