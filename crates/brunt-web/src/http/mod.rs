//! HTTP/1.1 for a page, its events, metrics and an API: axum's routes on hyper, on a separate thread. `server`
//! decides when a request is answered, `access` which requests are rejected, and `place` how long a request may take.
//!
//! The rule: only this folder handles sockets and timeouts. A site is a table of routes and nothing else.

pub(crate) mod access;
pub(crate) mod answer;
mod place;
mod server;
mod stalled;

pub(crate) use place::Place;
pub use server::HttpServer;
