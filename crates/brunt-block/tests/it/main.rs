//! The integration tests of brunt-block, one module each: linked into one binary and run in parallel.

mod conformance;
mod suite;
