//! Integration tests of brunt-store, one module each; linked into one binary and run in parallel.

mod sheepdog_recorded;
