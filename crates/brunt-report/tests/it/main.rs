//! Pages of real experiments and captures: what they hold as data, and how they look in a browser.

mod holds;
mod looks;
mod support;
