//! The page of a running capture: rendered for each request; the browser reloads it every few seconds.
//!
//! The rule: viewers never slow down the capture. Pages are rendered one at a time, on a thread of the server.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};

use crate::http::answer::{of, plain, trouble, wrong_method};
use crate::http::{HttpServer, Place};
use crate::live::site::{own_name, own_pages_only};

/// Renders one of the pages or its data.
type Make = Arc<Mutex<Box<dyn Fn() -> String + Send>>>;

/// Until the server is dropped, serves `page`, an HTML document, at `/`, and `state`, a JSON object with the same
/// figures, at `/state.json`. Requests from other sites are rejected.
///
/// # Errors
/// A thread can't be started.
pub fn serve(
    listener: TcpListener,
    page: impl Fn() -> String + Send + 'static,
    state: impl Fn() -> String + Send + 'static,
) -> io::Result<HttpServer> {
    let make = |make: Box<dyn Fn() -> String + Send>| -> Make { Arc::new(Mutex::new(make)) };
    let (page, state) = (make(Box::new(page)), make(Box::new(state)));
    let site = Router::new()
        .route("/", get(html).with_state(page))
        .route("/state.json", get(json).with_state(state))
        .method_not_allowed_fallback(async || wrong_method())
        .fallback(async || {
            let what = "not found: the page is at /, its figures are at /state.json";
            trouble(StatusCode::NOT_FOUND, what, None)
        })
        .layer(from_fn_with_state(own_name(), own_pages_only));
    HttpServer::start(listener, "capture page", site)
}

async fn html(State(page): State<Make>, place: Extension<Arc<Place>>) -> Response {
    answer(page, place, "text/html; charset=utf-8").await
}

async fn json(State(state): State<Make>, place: Extension<Arc<Place>>) -> Response {
    answer(state, place, "application/json").await
}

async fn answer(
    make: Make,
    Extension(place): Extension<Arc<Place>>,
    content_type: &'static str,
) -> Response {
    let make = move || {
        let make = make.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that has already waited too long gets no page.
        if place.is_late() { None } else { Some(make()) }
    };
    match tokio::task::spawn_blocking(make).await {
        Ok(Some(text)) => of(StatusCode::OK, content_type, text),
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
