//! HTTP/1.1 for a page, its events, metrics and an API: axum's routes on hyper, on a thread of their own. `server` says who
//! is answered when, `access` who is not, `place` how long.
//!
//! The rule: this is the only folder that knows sockets and time-outs. A site is a table of routes, and nothing else.

pub(crate) mod access;
pub(crate) mod answer;
mod place;
mod server;
mod stalled;

pub(crate) use place::Place;
pub use server::HttpServer;
