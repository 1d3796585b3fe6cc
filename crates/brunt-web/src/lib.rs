//! Everything that Brunt serves over HTTP: the shared server ([`http`]), Prometheus metrics ([`metrics`]), the live
//! page of a run ([`live`]), and the actions that `brunt serve` offers on it ([`api`]). The live page receives
//! server-sent events from the hub that also feeds tables and the terminal; its files are built from `web/` and
//! embedded ([`page`]).
//!
//! The rule: viewers never slow down the run. Events that don't fit into a viewer's queue are dropped, counted and
//! reported.
#![forbid(unsafe_code)]

pub mod api;
pub mod capture;
pub mod http;
pub mod live;
pub mod metrics;
pub mod page;
