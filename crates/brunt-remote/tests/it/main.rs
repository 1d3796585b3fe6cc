//! Integration tests of brunt-remote, one module each; linked into one binary and run in parallel.

mod lakes;
mod moving;
mod support;
