//! The page and its events, as served to browsers. Nothing here needs a token, because nothing here starts, stops or
//! changes anything; requests from other sites are rejected ([`crate::http::access`]), whatever their path.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::stream;

use super::viewers::{NextFrames, VIEWERS_MAX, Viewers};
use crate::http::Place;
use crate::http::access::admit;
use crate::http::answer::{trouble, wrong_method};
use crate::page::{self, PageFile};

/// A comment is sent after this long without a frame, to detect clients that are gone.
const QUIET: Duration = Duration::from_secs(10);

/// The page, its events and the routes in `more`, all restricted to this machine's own pages.
pub fn site(viewers: Arc<Viewers>, more: Router) -> Router {
    let page = page::FILES.iter().fold(Router::new(), |routes, file| {
        routes.route(file.path, get(async move || document(file)))
    });
    page.route("/events", get(events))
        .with_state(viewers)
        .merge(more)
        .method_not_allowed_fallback(async || wrong_method())
        .fallback(async || {
            let what = "not found: the live page is at /, its events are at /events";
            trouble(StatusCode::NOT_FOUND, what, None)
        })
        .layer(from_fn_with_state(own_name(), own_pages_only))
}

/// The name of this machine, if the system has one.
pub(crate) fn own_name() -> Option<Arc<str>> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    name.map(|name| name.trim().into())
        .filter(|name: &Arc<str>| !name.is_empty())
}

/// Rejects requests from other sites.
pub(crate) async fn own_pages_only(
    State(own_name): State<Option<Arc<str>>>,
    request: Request,
    next: Next,
) -> Response {
    let is_document = page::find(request.uri().path()).is_some();
    let (parts, body) = request.into_parts();
    match admit(&parts, own_name.as_deref(), is_document) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => trouble(refusal.status(), &refusal.to_string(), None),
    }
}

fn document(file: &'static PageFile) -> Response {
    let headers = page::HEADERS.map(|(name, value)| (HeaderName::from_static(name), value));
    (headers, [(CONTENT_TYPE, file.content_type)], file.bytes).into_response()
}

/// Streams frames to a viewer.
async fn events(
    State(viewers): State<Arc<Viewers>>,
    Extension(place): Extension<Arc<Place>>,
) -> Response {
    let Some(viewer) = viewers.join() else {
        let what = format!("this page already has {VIEWERS_MAX} viewers");
        return trouble(StatusCode::SERVICE_UNAVAILABLE, &what, Some("close one"));
    };
    let viewer = Arc::new(viewer);
    // The viewer counts as gone when its last frame is sent, not when the frame is taken from its queue.
    place.give_up_with(Arc::clone(&viewer));
    let frames = stream::unfold(viewer, async |viewer| {
        let bytes = match viewer.next(QUIET).await {
            NextFrames::Frames(bytes) => bytes,
            NextFrames::Quiet => b": nothing new\n\n".to_vec(),
            NextFrames::Over => return None,
        };
        Some((Ok::<_, Infallible>(bytes), viewer))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(frames)).into_response()
}
