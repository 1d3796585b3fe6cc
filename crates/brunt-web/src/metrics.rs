//! Prometheus metrics: one page, rendered per request. `run`, `replay`, `capture` and `target` use it, each with its
//! own metrics.
//!
//! The rule: viewers never slow down the run. Pages are rendered one at a time, on a thread of the server.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};

use crate::http::answer::{of, plain, wrong_method};
use crate::http::{HttpServer, Place};

/// Renders the page.
type Page = Arc<Mutex<Box<dyn Fn() -> String + Send>>>;

/// Serves `page`'s output at `/metrics` until the server is dropped.
///
/// # Errors
/// A thread can't be started.
pub fn serve(
    listener: TcpListener,
    page: impl Fn() -> String + Send + 'static,
) -> io::Result<HttpServer> {
    let page: Page = Arc::new(Mutex::new(Box::new(page)));
    let site = Router::new()
        .route("/metrics", get(metrics))
        .with_state(page)
        .method_not_allowed_fallback(async || wrong_method())
        .fallback(async || plain(StatusCode::NOT_FOUND, "see /metrics\n"));
    HttpServer::start(listener, "metrics", site)
}

async fn metrics(State(page): State<Page>, Extension(place): Extension<Arc<Place>>) -> Response {
    let make = move || {
        let page = page.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that has already waited too long gets no page.
        if place.is_late() { None } else { Some(page()) }
    };
    match tokio::task::spawn_blocking(make).await {
        Ok(Some(text)) => of(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            text,
        ),
        Ok(None) => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many concurrent requests\n",
        ),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot create the page\n",
        ),
    }
}
