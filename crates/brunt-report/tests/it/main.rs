//! Tests pages of real experiments and captures: their contents as data, and their appearance in a browser.

mod holds;
mod pages_in_browser;
mod support;
