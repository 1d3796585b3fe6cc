//! Pages: what `brunt report` writes. One HTML file each, with its charts and data inside, for people
//! who would rather look than read; it opens from a disk or a mail, without a network.
//!
//! [`page`] and [`chart`] say what is on a page, [`format`](mod@format) how numbers look, [`html`] makes the
//! file. [`experiment`] fills a page from the results of `brunt run`, [`capture`] from what
//! `brunt analyze` found in a capture.
#![forbid(unsafe_code)]

pub mod capture;
pub mod chart;
pub mod experiment;
pub mod format;
pub mod html;
pub mod page;
pub mod thin;
