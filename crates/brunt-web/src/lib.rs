//! What a run does, over HTTP: the server that all of it shares ([`http`]), metrics for Prometheus ([`metrics`]), and the
//! live page of a run ([`live`]): server-sent events from the hub that feeds tables and terminal, and the page that draws
//! them, which is built from `web/` and embedded ([`page`]); and what `brunt serve` lets the page do ([`api`]).
//!
//! The rule: whoever is measured never waits for whoever looks. What cannot be taken is dropped, counted and said.
#![forbid(unsafe_code)]

pub mod api;
pub mod http;
pub mod live;
pub mod metrics;
pub mod page;
