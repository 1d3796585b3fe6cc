//! Integration tests of brunt-iscsi, one module each; linked into one binary and run in parallel.

mod both_ends;
mod many_sessions;
mod target;
