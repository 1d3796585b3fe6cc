//! Report pages, such as those of `brunt report`: self-contained HTML files with charts and data inside, which open
//! from disk or mail without a network.
//!
//! [`page`] and [`chart`] define the content of a page, and [`format`](mod@format) how numbers are shown; [`html`]
//! renders the file. [`experiment`] fills a page from the results of `brunt run`, [`capture`] from those of `brunt
//! analyze`, [`trace`] from those of `brunt trace info`, and [`history`](mod@history) from many results.
#![forbid(unsafe_code)]

pub mod capture;
pub mod chart;
pub mod experiment;
pub mod flame;
pub mod format;
pub mod history;
pub mod html;
pub mod page;
pub mod thin;
pub mod trace;
