//! Integration tests of brunt-web, one module each: linked once and run in parallel.

mod browser;
mod live_page;
mod served;
mod support;
